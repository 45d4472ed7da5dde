package soft

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

func TestCopiesAndFills(t *testing.T) {
	_, c := open(t, nil)
	a := alloc(t, c, 1<<20)
	if !bytes.Equal(download(t, c, a, 1000), make([]byte, 1000)) {
		t.Fatal("new memory is not zeroed")
	}
	text := bytes.Repeat([]byte("pegasus "), 100_000)
	upload(t, c, a, text)
	if !bytes.Equal(download(t, c, a, len(text)), text) {
		t.Fatal("what was copied in does not come out")
	}
	b := alloc(t, c, 1<<20)
	submit(t, c, c.DefaultStream(), accel.Copy{Dst: accel.End{Address: b + 3}, Src: accel.End{Address: a + 5}, Width: 50_000, Height: 1, Depth: 1})
	if got := download(t, c, b+3, 50_000); !bytes.Equal(got, text[5:50_005]) {
		t.Fatal("device to device")
	}
	submit(t, c, c.DefaultStream(), accel.Fill{Address: b, Width: 3, Height: 2, Pitch: 16, Value: 0x01020304, ElementSize: 4})
	if got := download(t, c, b+16, 12); !bytes.Equal(got, []byte{4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1}) {
		t.Fatalf("fill: %v", got)
	}
	w := newWaiter()
	want(t, c.Free(a, func() { w <- 0 }), cuda.Success)
	w.wait(t)
	want(t, c.Free(a, nil), cuda.ErrorInvalidValue)
	want(t, c.Submit(c.DefaultStream(), accel.Fill{Address: a, Width: 3, Height: 1, ElementSize: 1}, nil), cuda.ErrorInvalidValue)
	want(t, c.Free(b+512, nil), cuda.ErrorInvalidValue)
}

func TestBadWork(t *testing.T) {
	_, c := open(t, nil)
	a := alloc(t, c, 4096)
	s := c.DefaultStream()
	big := uint64(1) << 63
	for name, w := range map[string]accel.Work{
		"past the end":       accel.Copy{Dst: accel.End{Address: a + 4000}, Src: accel.End{Address: a}, Width: 97, Height: 1, Depth: 1},
		"no memory":          accel.Copy{Dst: accel.End{Address: 4096}, Src: accel.End{Address: a}, Width: 1, Height: 1, Depth: 1},
		"huge width":         accel.Copy{Dst: accel.End{Address: a}, Src: accel.End{Address: a}, Width: ^uint64(0), Height: 1, Depth: 1},
		"overflowing box":    accel.Copy{Dst: accel.End{Address: a, Pitch: big}, Src: accel.End{Address: a, Pitch: big}, Width: 1, Height: 3, Depth: 1},
		"overflowing slices": accel.Copy{Dst: accel.End{Address: a, Pitch: 1 << 33, Height: 1 << 33}, Src: accel.End{Address: a, Pitch: 1, Height: 1}, Width: 1, Height: 1, Depth: 2},
		"pitch below width":  accel.Copy{Dst: accel.End{Address: a, Pitch: 3}, Src: accel.End{Address: a, Pitch: 4}, Width: 4, Height: 2, Depth: 1},
		"short host memory":  accel.Copy{Dst: accel.End{Address: a}, Src: accel.End{Host: make([]byte, 3)}, Width: 4, Height: 1, Depth: 1},
		"element of 3":       accel.Fill{Address: a, Width: 1, Height: 1, ElementSize: 3},
		"misaligned fill":    accel.Fill{Address: a + 1, Width: 1, Height: 1, ElementSize: 2},
		"wide fill":          accel.Fill{Address: a, Width: big, Height: 1, ElementSize: 4},
		"tall fill":          accel.Fill{Address: a, Width: 1, Height: big, Pitch: 1 << 20, ElementSize: 4},
	} {
		if r := c.Submit(s, w, nil); r != cuda.ErrorInvalidValue {
			t.Errorf("%s: %v", name, r)
		}
	}
	m := goModule(c, 4, func(*run) *fault { return nil })
	for name, l := range map[string]accel.Launch{
		"no blocks":    {Module: m, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 4)},
		"big block":    {Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1024, 2, 1}, Params: make([]byte, 4)},
		"tall grid":    {Module: m, Grid: [3]uint32{1, 65536, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 4)},
		"short params": {Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 3)},
		"much shared":  {Module: m, Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{1, 1, 1}, Params: make([]byte, 4), SharedBytes: 1 << 31},
	} {
		if r := c.Submit(s, l, nil); r != cuda.ErrorInvalidValue {
			t.Errorf("%s: %v", name, r)
		}
	}
	want(t, c.Submit(s, accel.Launch{Module: m, Function: 1}, nil), cuda.ErrorInvalidHandle)
	want(t, c.Submit(nil, launchOf(m), nil), cuda.ErrorInvalidHandle)
	want(t, c.Err(), cuda.Success)
}

func TestLegacyStream(t *testing.T) {
	_, c := open(t, nil)
	blocking, free := stream(t, c, 0), stream(t, c, 1)
	gate := make(chan struct{})
	var mu sync.Mutex
	var order []string
	note := func(s string) accel.Done {
		return func(cuda.Result, accel.Usage) { mu.Lock(); order = append(order, s); mu.Unlock() }
	}
	var finished func()
	due := accel.HostFunc{Due: func(_ cuda.Result, f func()) { finished = f; close(gate) }}
	want(t, c.Submit(blocking, due, note("blocking host")), cuda.Success)
	<-gate
	want(t, c.Submit(c.DefaultStream(), accel.Record{Event: event(t, c)}, note("legacy")), cuda.Success)
	want(t, c.Submit(stream(t, c, 0), accel.Record{Event: event(t, c)}, note("other")), cuda.Success)
	want(t, c.Submit(free, accel.Record{Event: event(t, c)}, note("free")), cuda.Success)
	want(t, free.Query(), cuda.Success)
	want(t, blocking.Query(), cuda.ErrorNotReady)
	want(t, c.DefaultStream().Query(), cuda.ErrorNotReady)
	finished()
	want(t, synchronize(t, c), cuda.Success)
	mu.Lock()
	defer mu.Unlock()
	if got := len(order); got != 4 || order[0] != "free" || order[1] != "blocking host" || order[2] != "legacy" || order[3] != "other" {
		t.Fatal(order)
	}
}

func TestEvents(t *testing.T) {
	_, c := open(t, nil)
	s, e, f := stream(t, c, 0), event(t, c), event(t, c)
	_, r := e.Time()
	want(t, r, cuda.ErrorInvalidHandle)
	w := newWaiter()
	e.Synchronize(w.result)
	want(t, w.wait(t), cuda.Success)
	submit(t, c, s, accel.Record{Event: e})
	gate := make(chan struct{})
	m := goModule(c, 0, func(*run) *fault { <-gate; return nil })
	submit(t, c, s, launchOf(m))
	submit(t, c, s, accel.Record{Event: f})
	_, r = f.Time()
	want(t, r, cuda.ErrorNotReady)
	f.Synchronize(w.result)
	close(gate)
	want(t, w.wait(t), cuda.Success)
	from, _ := e.Time()
	to, r := f.Time()
	want(t, r, cuda.Success)
	if to <= from {
		t.Fatalf("%d ns passed", to-from)
	}
}

// A caller that is notified of a record's completion may read its time at once, and query whether its stream is idle,
// or the one that waits for that.
func TestToldMayAsk(t *testing.T) {
	for name, ask := range map[string]func(*Context, accel.Stream, accel.Event) cuda.Result{
		"time":   func(_ *Context, _ accel.Stream, e accel.Event) cuda.Result { _, r := e.Time(); return r },
		"stream": func(_ *Context, s accel.Stream, _ accel.Event) cuda.Result { return s.Query() },
		"legacy": func(c *Context, _ accel.Stream, _ accel.Event) cuda.Result { return c.DefaultStream().Query() },
	} {
		t.Run(name, func(t *testing.T) {
			_, c := open(t, nil)
			s, e := stream(t, c, 0), event(t, c)
			gate, callbackRan := make(chan struct{}), make(chan struct{})
			m := goModule(c, 0, func(*run) *fault { <-gate; return nil })
			submit(t, c, s, launchOf(m))
			want(t, c.Submit(s, accel.Record{Event: e}, func(cuda.Result, accel.Usage) {
				close(callbackRan)
				time.Sleep(20 * time.Millisecond)
			}), cuda.Success)
			want(t, ask(c, s, e), cuda.ErrorNotReady)
			close(gate)
			<-callbackRan
			want(t, ask(c, s, e), cuda.Success)
		})
	}
}

func TestPredict(t *testing.T) {
	d, c := open(t, nil)
	m := goModule(c, 0, func(*run) *fault { time.Sleep(2 * time.Millisecond); return nil })
	l := launchOf(m)
	if p := d.Predict(l); p != 0 {
		t.Fatalf("%d ns without a history", p)
	}
	submit(t, c, c.DefaultStream(), l)
	synchronize(t, c)
	if p := d.Predict(&l); p < 2e6 {
		t.Fatalf("%d ns", p)
	}
	l.Grid[0] = 2
	if p := d.Predict(l); p != 0 {
		t.Fatalf("%d ns for another grid", p)
	}
}
