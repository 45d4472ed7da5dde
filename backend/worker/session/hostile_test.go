package session

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/backend/worker/workertest"
	"pegasus/callbuf"
	"pegasus/cuda"
	"pegasus/test/seeds"
)

// survives checks that a session still replies, or has ended properly.
func (b *bench) survives() {
	b.t.Helper()
	err := b.ping(20 * time.Second)
	if err != nil && b.g.Poison() == 0 {
		b.t.Fatalf("the session neither answers nor has ended: %v", err)
	}
	if why := b.s.ending.why; strings.Contains(why, "bug:") {
		b.t.Fatalf("the worker stumbled: %s", why)
	}
}

var errPoisoned = errors.New("poisoned")

func (b *bench) ping(patience time.Duration) error {
	end := time.Now().Add(patience)
	_, _, err := b.g.Call(callbuf.Header{Op: uint16(cuda.OpNop)}, nil, nil, func() error {
		if b.g.Poison() != 0 {
			return errPoisoned
		}
		if time.Now().After(end) {
			return workertest.ErrStuck
		}
		return nil
	})
	return err
}

// FuzzServe sends packets of any content: each takes an operation, a context and
// stream, a length and that many bytes from the input.
func FuzzServe(f *testing.F) {
	f.Add([]byte{byte(cuda.OpMemAlloc), 1, 1, 0, 8, 0, 1, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{byte(cuda.OpContextDestroy), 1, 1, 0, 0, byte(cuda.OpNop), 1, 1, 0, 0})
	launch := (&cuda.LaunchArgs{Function: cuda.LaunchFunction(1, 1), Grid: [3]uint32{1, 1, 1}, Params: make([]byte, 8)}).Append(nil)
	f.Add(append([]byte{byte(cuda.OpLaunch), 0, 1, 0, byte(len(launch))}, launch...))
	copyArgs := (&cuda.CopyArgs{DstKind: 1, SrcKind: 2, Width: 5, Height: 3, Depth: 2, SrcPitch: 8, SrcHeight: 4}).Append(nil)
	f.Add(append([]byte{byte(cuda.OpCopy), 1, 1, 0, byte(len(copyArgs))}, copyArgs...))
	f.Add(append([]byte{byte(cuda.OpHostCallback), 0, 1, 0, 16, 1}, make([]byte, 15)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := newBench(t, workertest.SmallGeometry())
		b.page.SetQuota(gate.DeviceMemory, 1<<20)
		b.context(1)
		for range 100 {
			b.dev.Leave <- struct{}{}
		}
		for slot := uint16(0); len(in) >= 5 && slot < 60; slot++ {
			h := callbuf.Header{Op: uint16(in[0]), Flags: uint16(in[1] & 1), Context: uint32(in[2]), Stream: uint64(in[3]), ReplySlot: 63 - slot, ReplyTag: 1 << 30}
			n := min(int(in[4]), len(in)-5)
			if err := b.g.Send(h, in[5:5+n], workertest.Patience()); err != nil {
				t.Fatal(err)
			}
			in = in[5+n:]
		}
		b.survives()
	})
}

// TestHostileMemory writes random bytes into every word that host and guest
// share, while packets are served.
func TestHostileMemory(t *testing.T) {
	seed := seeds.Fixed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		hostileRound(t, random)
	}
}

func hostileRound(t *testing.T, random *rand.Rand) {
	b := newBench(t, workertest.SmallGeometry())
	b.page.SetQuota(gate.DeviceMemory, 1<<20)
	b.context(1)
	l := b.g.Layout()
	var stop atomic.Bool
	var scribblers sync.WaitGroup
	defer scribblers.Wait()
	defer stop.Store(true)
	region := [][2]uint64{
		{0, 4096}, {uint64(l.RingOffset), uint64(l.RingSlots) * callbuf.SlotBytes}, {uint64(l.ReplyOffset), uint64(l.ReplySlots) * callbuf.ReplyBytes},
		{uint64(l.EventOffset), 512}, {l.ArenaOffset, 16384},
	}[random.IntN(5)]
	r := rand.New(rand.NewPCG(random.Uint64(), 2))
	scribblers.Go(func() {
		for !stop.Load() {
			at := region[0] + r.Uint64N(region[1])
			b.mem[at] = byte(r.Uint32())
			if r.IntN(100) == 0 {
				time.Sleep(10 * time.Microsecond)
			}
		}
	})
	alive := func() error { return workertest.ErrStuck }
	payload := make([]byte, 200)
	for range 300 {
		for i := range payload {
			payload[i] = byte(random.Uint32() & random.Uint32())
		}
		h := callbuf.Header{Op: uint16(random.IntN(34)), Flags: uint16(random.IntN(2)), Context: 1, ReplySlot: uint16(random.IntN(64))}
		if b.g.Send(h, payload[:random.IntN(len(payload))], alive) != nil {
			break // the guest has destroyed its own access
		}
	}
	stop.Store(true)
	scribblers.Wait()
	// Whatever state the guest destroyed, the worker has not crashed and ends.
	b.s.end(cuda.ErrorDeinitialized, "")
	select {
	case <-b.served:
	case <-time.After(time.Minute):
		t.Fatal("the poller does not end")
	}
	if why := b.s.ending.why; strings.Contains(why, "bug:") {
		t.Fatalf("the worker stumbled: %s", why)
	}
	// The poller may have ended without waiting for the slow destruction of a context.
	b.until(func() bool {
		used, _ := b.page.Memory(gate.DeviceMemory)
		return used == 0
	})
}

func TestProtocolErrorDropsTheSegment(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.want(0, cuda.OpNop, 0, 0, nil)
	b.g.Send(callbuf.Header{Op: uint16(cuda.OpNop), Flags: callbuf.FlagReply, ReplySlot: 64}, nil, workertest.Patience())
	<-b.served
	if p := cuda.Result(b.g.Poison()); p != cuda.ErrorLaunchFailed {
		t.Errorf("poison %v", p)
	}
	if !strings.Contains(b.s.ending.why, "reply slot 64 of 64") {
		t.Errorf("why: %q", b.s.ending.why)
	}
}

func TestPanicPoisonsTheProcess(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	b.want(0, cuda.OpContextCreate, 1, 0, &cuda.ContextCreateArgs{})
	b.g.Send(callbuf.Header{Op: uint16(cuda.OpContextSetLimit), Flags: callbuf.FlagReply, Context: 1}, workertest.Payload(&cuda.ContextSetLimitArgs{Limit: workertest.PanicLimit}), workertest.Patience())
	b.until(func() bool { return b.g.Poison() != 0 })
	if p := cuda.Result(b.g.Poison()); p != cuda.ErrorUnknown {
		t.Errorf("poison %v", p)
	}
}
