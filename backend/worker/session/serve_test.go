package session

import (
	"encoding/binary"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"pegasus/backend/gate"
	"pegasus/backend/worker/workertest"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// bench is a session served by a goroutine, with the guest's side of it and the
// daemon's side of its gate.
type bench struct {
	t      testing.TB
	s      *Session
	dev    *workertest.Device
	page   *gate.Page
	bell   *gate.Bell
	g      *callbuf.Guest
	h      *callbuf.Host
	mem    []byte
	served chan struct{}
	loaded cuda.ModuleLoadResult
}

func newBench(t testing.TB, geometry callbuf.Geometry) *bench {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := geometry.Layout()
	must(err)
	f, err := callbuf.NewFile(l)
	must(err)
	mem, err := callbuf.Map(f, l.SegmentBytes)
	must(err)
	f.Close()
	h, err := callbuf.Format(mem, l, 1, 0)
	must(err)
	g, err := callbuf.Open(mem)
	must(err)
	page, err := gate.New()
	must(err)
	bell, err := gate.NewBell()
	must(err)
	slot, err := page.TakeSlot()
	must(err)
	page.Grant(gate.Terms{Classes: gate.AllClasses, Until: gate.Forever})
	m := gate.Join(page, bell, slot)
	b := &bench{t: t, page: page, bell: bell, g: g, h: h, mem: mem, served: make(chan struct{})}
	b.s = New(h, m, 50*time.Microsecond, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	b.dev = workertest.NewDevice(workertest.DeviceConfig{OnTimeout: func() { b.s.end(cuda.ErrorLaunchTimeout, "timeout") }, Quota: func(d int64) bool {
		if d < 0 {
			m.Return(gate.DeviceMemory, uint64(-d))
			return true
		}
		return m.Reserve(gate.DeviceMemory, uint64(d)) == nil
	}})
	b.s.Use(b.dev)
	go func() {
		b.s.Poll()
		b.s.Close()
		close(b.served)
	}()
	t.Cleanup(func() {
		b.s.end(cuda.ErrorDeinitialized, "")
		<-b.served
		for alive := workertest.Patience(); b.dev.Close() != nil && alive() == nil; { // contexts that Close has not waited for
			time.Sleep(time.Millisecond)
		}
		page.Free()
		bell.Free()
		callbuf.Unmap(mem)
	})
	return b
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) { return len(b), nil }

var le = binary.LittleEndian

// call makes a call that has a reply.
func (b *bench) call(op cuda.Op, ctx uint32, stream uint64, a workertest.Appender) (cuda.Result, []byte) {
	b.t.Helper()
	r, data, err := b.g.Call(callbuf.Header{Op: uint16(op), Context: ctx, Stream: stream}, workertest.Payload(a), nil, workertest.Patience())
	if err != nil {
		b.t.Fatalf("%v: %v", op, err)
	}
	return cuda.Result(r), data
}

// queue makes a call that has none.
func (b *bench) queue(op cuda.Op, ctx uint32, stream uint64, a workertest.Appender) {
	b.t.Helper()
	if err := b.g.Send(callbuf.Header{Op: uint16(op), Context: ctx, Stream: stream}, workertest.Payload(a), workertest.Patience()); err != nil {
		b.t.Fatalf("%v: %v", op, err)
	}
}

func (b *bench) want(want cuda.Result, op cuda.Op, ctx uint32, stream uint64, a workertest.Appender) []byte {
	b.t.Helper()
	r, data := b.call(op, ctx, stream, a)
	if r != want {
		b.t.Fatalf("%v: %v, want %v", op, r.Name(), want.Name())
	}
	return data
}

// context makes context id with the fake module 1 in it and a word of memory.
func (b *bench) context(id uint32) (word uint64) {
	b.t.Helper()
	b.want(0, cuda.OpContextCreate, id, 0, &cuda.ContextCreateArgs{})
	copy(b.g.Arena(), "fake")
	data := b.want(0, cuda.OpModuleLoad, id, 0, &cuda.ModuleLoadArgs{Module: uint64(id), ImageLength: 4, LayoutOffset: 4096, LayoutCapacity: 4096, LogOffset: 8192, LogCapacity: 100})
	b.loaded.Decode(data)
	var m cuda.MemAllocResult
	m.Decode(b.want(0, cuda.OpMemAlloc, id, 0, &cuda.MemAllocArgs{Size: 8}))
	return m.Address
}

func (b *bench) launch(ctx uint32, stream uint64, function uint32, word uint64) {
	b.t.Helper()
	b.queue(cuda.OpLaunch, ctx, stream, &cuda.LaunchArgs{
		Function: cuda.LaunchFunction(uint64(ctx), function), Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1},
		Params: le.AppendUint64(nil, word),
	})
}

// read reads a word through the reply slot.
func (b *bench) read(ctx uint32, word uint64) uint64 {
	b.t.Helper()
	data := b.want(0, cuda.OpCopyLinear, ctx, 0, &cuda.CopyLinearArgs{Dst: 0, Src: word, Length: 8, DstKind: cuda.EndInline, SrcKind: cuda.EndDevice})
	return le.Uint64(data)
}

func TestLaunchAndRead(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	for range 1000 {
		b.launch(1, 0, 0, word)
	}
	if n := b.read(1, word); n != 1000 {
		t.Fatalf("word is %d after 1000 launches", n)
	}
	var l cuda.ModuleLayout
	if !l.Decode(b.g.Arena()[4096:4096+b.loaded.LayoutLength]) || len(l.Functions) != 4 || l.Functions[1].Name != "wait" {
		t.Fatalf("layout in the arena: %+v", l)
	}
	if s := string(b.g.Arena()[8192:8198]); s != "loaded" {
		t.Fatalf("log in the arena: %q", s)
	}
	var st gate.Statistics
	var ok bool
	b.until(func() bool { // counted in batches of 64, or when the poller is idle
		st, ok = b.page.Statistics(0)
		return st.Calls >= 1000
	})
	if !ok || st.Ended[0] != 1000 || st.Used[0] != 1000*b.dev.Cost || st.PID != os.Getpid() {
		t.Fatalf("statistics %+v", st)
	}
}

func TestBlockingCallsDoNotHoldUpOthers(t *testing.T) {
	b := newBench(t, workertest.SmallGeometry())
	word := b.context(1)
	b.queue(cuda.OpStreamCreate, 1, 0, &cuda.StreamCreateArgs{Stream: 16})
	b.launch(1, 16, 1, word) // waits for the test's permission
	var done sync.WaitGroup
	done.Go(func() { b.call(cuda.OpStreamSynchronize, 1, 16, nil) })
	for range 100 {
		b.want(0, cuda.OpNop, 1, 0, nil)
	}
	b.want(cuda.Success, cuda.OpStreamQuery, 1, 0, nil)
	b.dev.Leave <- struct{}{}
	done.Wait()
	if n := b.read(1, word); n != 1 {
		t.Fatalf("word is %d", n)
	}
}
