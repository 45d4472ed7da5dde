package test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// greedy is a hostile guest with one context, and the initial memory of its worker.
type greedy struct {
	*raw
	t     testing.TB
	first int
}

func (h *host) greedy() greedy {
	h.t.Helper()
	r, err := enter(h.socket("bad"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(r.leave)
	if _, err := r.call(cuda.OpContextCreate, 1, &cuda.ContextCreateArgs{}); err != nil {
		h.t.Fatal(err)
	}
	return greedy{r, h.t, resident(h.t, r.pid)}
}

// holdsAtMost fails the test if the worker's memory has grown by more.
func (g greedy) holdsAtMost(bytes int) {
	g.t.Helper()
	grown := resident(g.t, g.pid) - g.first
	g.t.Logf("the worker has grown by %d KiB", grown>>10)
	if grown > bytes {
		g.t.Errorf("the worker has grown by %d MiB, want at most %d", grown>>20, bytes>>20)
	}
}

// alloc allocates device memory.
func (g greedy) alloc(n uint64) (uint64, error) {
	out, err := g.call(cuda.OpMemAlloc, 1, &cuda.MemAllocArgs{Size: n})
	if err != nil {
		return 0, err
	}
	var a cuda.MemAllocResult
	if !a.Decode(out) {
		return 0, errors.New("no address")
	}
	return a.Address, nil
}

// The number of tiny allocations is limited.
func TestTinyAllocations(t *testing.T) {
	h := startHost(t, hostileDomains)
	g := h.greedy()
	for range 65535 { // no reply is awaited
		if err := g.ask(cuda.OpMemAlloc, 0, &cuda.MemAllocArgs{Size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.alloc(1); err != nil {
		t.Errorf("allocation 65536: %v", err)
	}
	_, err := g.alloc(1)
	wantResult(t, err, cuda.ErrorOutOfMemory)
	g.holdsAtMost(128 << 20) // 32 MiB of it for the allocations
	if _, err := g.call(cuda.OpContextDestroy, 1, nil); err != nil {
		t.Fatal(err)
	}
	if memory := h.domains()["bad"].Memory; memory != 0 {
		t.Errorf("%d bytes are left", memory)
	}
	h.sound()
}

// Endlessly queued calls wait in the ring, not in the worker's memory.
func TestEndlessQueue(t *testing.T) {
	h := startHost(t, hostileDomains)
	g := h.greedy()
	at, err := g.alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 7000)
	for i := range 200_000 {
		var op cuda.Op
		var a arguments
		switch i % 4 {
		case 0:
			op, a = cuda.OpFill, &cuda.FillArgs{Dst: at, Width: 1 << 20, Height: 1, ElementSize: 1}
			if i%256 != 0 { // rarely, to finish in time
				a = &cuda.FillArgs{Dst: at, Width: 1 << 15, Height: 1, ElementSize: 1}
			}
		case 1:
			op, a = cuda.OpEventRecord, &cuda.EventRecordArgs{Event: 9, Serial: uint64(i)}
		case 2:
			op, a = cuda.OpEventCreate, &cuda.EventCreateArgs{Event: 9}
		case 3:
			op, a = cuda.OpCopyLinear, &cuda.CopyLinearArgs{Dst: at, Length: 7000, DstKind: cuda.EndDevice, SrcKind: cuda.EndInline, Data: big}
		}
		if i > 4 && op == cuda.OpEventCreate {
			continue
		}
		if err := g.queue(op, 0, a); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	g.holdsAtMost(256 << 20)
	if _, err := g.call(cuda.OpContextSynchronize, 1, nil); err != nil && !errors.Is(err, cuda.ErrorInvalidHandle) {
		t.Error(err)
	}
	h.sound()
}

// Work queued behind a host function that never returns is bounded too: the ring fills and blocks the guest until it
// ends; or calls fail, since this guest would report in the ring only, where the report would be stuck behind them.
func TestQueueBehindHungCallback(t *testing.T) {
	t.Parallel()
	h := startHost(t, hostileDomains)
	other := h.decent("good")
	floods := map[string]func(g greedy, i int) error{
		"records": func(g greedy, i int) error {
			return g.queue(cuda.OpEventRecord, 16, &cuda.EventRecordArgs{Event: 9, Serial: uint64(i)})
		},
		"inline copies": func(g greedy, i int) error {
			if i > 30_000 {
				return nil
			}
			return g.queue(cuda.OpCopyLinear, 16, &cuda.CopyLinearArgs{Dst: 1 << 20, Length: 7000, DstKind: cuda.EndArena, SrcKind: cuda.EndInline, Data: make([]byte, 7000)})
		},
		"synchronisations": func(g greedy, i int) error {
			return g.ask(cuda.OpStreamSynchronize, 16, nil)
		},
		"context synchronisations": func(g greedy, i int) error {
			if i < 5000 { // as many streams with work
				g.queue(cuda.OpStreamCreate, 0, &cuda.StreamCreateArgs{Stream: uint64(20 + i)})
				return g.queue(cuda.OpStreamWaitEvent, uint64(20+i), &cuda.StreamWaitEventArgs{Event: 9})
			}
			return g.ask(cuda.OpContextSynchronize, 0, nil)
		},
		"event waits": func(g greedy, i int) error {
			return g.queue(cuda.OpStreamWaitEvent, 16, &cuda.StreamWaitEventArgs{Event: 9})
		},
		"textures": func(g greedy, i int) error {
			g.queue(cuda.OpTextureCreate, 0, &cuda.TextureCreateArgs{Texture: uint64(100 + i), Resource: 2, Format: 1, Channels: 1, Width: 64})
			return g.queue(cuda.OpTextureDestroy, 0, &cuda.TextureDestroyArgs{Texture: uint64(100 + i)})
		},
	}
	var all sync.WaitGroup
	for name, flood := range floods {
		g := h.greedy()
		all.Go(func() {
			if err := g.stuff(flood); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			t.Log(name)
			g.holdsAtMost(400 << 20)
			g.worker.Close()
		})
	}
	all.Wait()
	eventually(t, soon, "the workers are gone", func() bool { return h.domains()["bad"].Processes == 0 })
	if err := other.round(seeded(t)); err != nil {
		t.Error(err)
	}
	h.sound()
}

// stuff queues calls behind a host function that never returns.
func (g greedy) stuff(flood func(g greedy, i int) error) error {
	if err := g.hang(); err != nil {
		return err
	}
	for i := range 100_000 {
		if err := flood(g, i); errors.Is(err, errImpatient) && !g.dropped() {
			return nil // as expected
		} else if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}

// hang makes stream 16 wait for a host function, and event 9 for stream 16.
func (g greedy) hang() error {
	return errors.Join(
		g.queue(cuda.OpStreamCreate, 0, &cuda.StreamCreateArgs{Stream: 16}),
		g.queue(cuda.OpEventCreate, 0, &cuda.EventCreateArgs{Event: 9}),
		g.queue(cuda.OpHostCallback, 16, &cuda.HostCallbackArgs{Callback: 1}),
		g.queue(cuda.OpEventRecord, 16, &cuda.EventRecordArgs{Event: 9, Serial: 1}),
	)
}

// A long queue behind a host function that does return is no error: its report is processed however much was queued
// meanwhile.
func TestLongQueueBehindCallback(t *testing.T) {
	h := startHost(t, hostileDomains)
	g := h.greedy()
	if err := g.hang(); err != nil {
		t.Fatal(err)
	}
	const n = 50_000
	reported := make(chan error, 1)
	queued := make(chan struct{})
	go func() {
		_, err := g.call(cuda.OpCallbackWait, 1, &cuda.CallbackWaitArgs{})
		<-queued
		if err == nil { // no reply: there is no other callback
			err = g.ask(cuda.OpCallbackWait, 0, &cuda.CallbackWaitArgs{Done: 1})
		}
		reported <- err
	}()
	for i := range uint64(n) {
		if i == n-3000 { // the ring is full of queued work, and behind
			close(queued)
		}
		if err := g.queue(cuda.OpEventRecord, 16, &cuda.EventRecordArgs{Event: 9, Serial: i + 2}); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if err := <-reported; err != nil {
		t.Fatal(err)
	}
	if _, err := g.call(cuda.OpContextSynchronize, 1, nil); err != nil {
		t.Error(err)
	}
	if got := g.guest.EventSerial(9); got != n+1 {
		t.Errorf("the event's word holds %d, want %d", got, n+1)
	}
}

// ask posts a packet that requests a reply and does not wait for it.
func (g greedy) ask(op cuda.Op, stream uint64, a arguments) error {
	h := callbuf.Header{Op: uint16(op), Flags: callbuf.FlagReply, ReplySlot: 7, ReplyTag: 1, Context: 1, Stream: stream}
	var payload []byte
	if a != nil {
		payload = a.Append(nil)
	}
	return g.guest.Send(h, payload, g.patience(10*time.Second))
}
