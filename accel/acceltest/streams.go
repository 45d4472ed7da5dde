package acceltest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/cuda"
)

// notes records the order in which work was reported as ended.
type notes struct {
	mu  sync.Mutex
	all []string
}

func (n *notes) of(name string) accel.Done {
	return func(cuda.Result, accel.Usage) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.all = append(n.all, name)
	}
}

func (n *notes) order() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.all)
}

// testOrder checks that work of every kind in a stream is executed, and reported as ended, in order.
func testOrder(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.module(kernels)
	s := b.stream(1)
	p := b.alloc(64)
	var n notes
	var want []string
	add := func(w accel.Work) {
		want = append(want, fmt.Sprint(len(want)))
		b.want(b.ctx.Submit(s, w, n.of(want[len(want)-1])), cuda.Success)
	}
	params := binary.LittleEndian.AppendUint32(words64(p, p), 1)
	var out [4]byte
	for range 20 {
		add(launch(m, "add", params))
		add(linear(host(b.shared[:4]), at(p), 4))
		add(accel.HostFunc{Due: func(_ cuda.Result, finished func()) { b.shared[0]++; finished() }})
		add(linear(at(p), host(b.shared[:4]), 4))
		add(accel.Record{Event: b.event()})
		add(linear(at(p+8), at(p), 4))
		add(accel.Fill{Address: p + 12, Width: 1, Height: 1, Value: 1, ElementSize: 4})
		add(linear(host(out[:]), at(p+8), 4))
	}
	a := newAnswer()
	s.Synchronize(a.result)
	b.want(b.wait(a), cuda.Success)
	if got := n.order(); !slices.Equal(got, want) {
		t.Errorf("told of in the order %v", got)
	}
	if out[0] != 40 {
		t.Errorf("after 20 kernels and 20 host functions there is %d", out[0])
	}
}

func testLegacyStream(t *testing.T, b *bench) {
	b.start(Options{})
	blocking, free, third := b.stream(0), b.stream(1), b.stream(0)
	reached := make(chan func(), 1)
	var n notes
	due := accel.HostFunc{Due: func(_ cuda.Result, f func()) { reached <- f }}
	b.want(b.ctx.Submit(blocking, due, n.of("blocking host")), cuda.Success)
	finished := <-reached
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Record{Event: b.event()}, n.of("legacy")), cuda.Success)
	b.want(b.ctx.Submit(third, accel.Record{Event: b.event()}, n.of("third")), cuda.Success)
	b.want(b.ctx.Submit(free, accel.Record{Event: b.event()}, n.of("free")), cuda.Success)
	b.want(free.Query(), cuda.Success)
	b.want(blocking.Query(), cuda.ErrorNotReady)
	b.want(b.ctx.DefaultStream().Query(), cuda.ErrorNotReady)
	idle, ready := b.stream(0), newAnswer()
	b.want(idle.Query(), cuda.Success) // whatever the legacy stream does
	idle.Ended(ready.result)
	b.want(b.wait(ready), cuda.Success)
	b.want(third.Query(), cuda.ErrorNotReady)
	third.Ended(ready.result)
	finished()
	b.want(b.wait(ready), cuda.Success)
	b.want(third.Query(), cuda.Success)
	b.want(b.sync(), cuda.Success)
	if got := n.order(); !slices.Equal(got, []string{"free", "blocking host", "legacy", "third"}) {
		t.Error(got)
	}
	for _, s := range []accel.Stream{blocking, free, third, b.ctx.DefaultStream()} {
		b.want(s.Query(), cuda.Success)
	}
	if _, r := b.ctx.NewStream(2, 0); r != cuda.ErrorInvalidValue {
		t.Errorf("unknown flags: %v", r)
	}
}

func testEvents(t *testing.T, b *bench) {
	b.start(Options{})
	s, e, f := b.stream(0), b.event(), b.event()
	_, r := e.Time()
	b.want(r, cuda.ErrorInvalidHandle)
	a := newAnswer()
	e.Synchronize(a.result)
	b.want(b.wait(a), cuda.Success)
	b.submit(s, accel.Record{Event: e})
	k := b.spinner()
	began := time.Now()
	b.submit(s, k.work())
	b.submit(s, accel.Record{Event: f})
	_, r = f.Time()
	b.want(r, cuda.ErrorNotReady)
	b.want(s.Query(), cuda.ErrorNotReady)
	f.Synchronize(a.result)
	time.Sleep(20 * time.Millisecond)
	k.letGo()
	b.want(b.wait(a), cuda.Success)
	took := time.Since(began)
	from, r := e.Time()
	b.want(r, cuda.Success)
	to, r := f.Time()
	b.want(r, cuda.Success)
	if d := time.Duration(to - from); d < 10*time.Millisecond || d > took+time.Second {
		t.Errorf("between the events passed %v, of %v", d, took)
	}
	// After a second record, the event stands for the later point of the stream.
	k = b.spinner()
	b.submit(s, k.work())
	b.submit(s, accel.Record{Event: e})
	_, r = e.Time()
	b.want(r, cuda.ErrorNotReady)
	k.letGo()
	e.Synchronize(a.result)
	b.want(b.wait(a), cuda.Success)
	if again, r := e.Time(); r != cuda.Success || again <= to {
		t.Errorf("recorded again it completed at %d, %v; the one before at %d", again, r, to)
	}
	e.Destroy()
	f.Destroy()
}

// testToldMayAsk checks that the event and the stream can be queried as soon as the record is reported as completed.
func testToldMayAsk(t *testing.T, b *bench) {
	b.start(Options{})
	for name, ask := range map[string]func(accel.Stream, accel.Event) cuda.Result{
		"time":   func(_ accel.Stream, e accel.Event) cuda.Result { _, r := e.Time(); return r },
		"stream": func(s accel.Stream, _ accel.Event) cuda.Result { return s.Query() },
		"legacy": func(accel.Stream, accel.Event) cuda.Result { return b.ctx.DefaultStream().Query() },
	} {
		s, e, order := b.stream(0), b.event(), make(chan struct{})
		k := b.spinner()
		b.submit(s, k.work())
		b.want(b.ctx.Submit(s, accel.Record{Event: e}, func(cuda.Result, accel.Usage) {
			close(order)
			time.Sleep(20 * time.Millisecond)
		}), cuda.Success)
		b.want(ask(s, e), cuda.ErrorNotReady)
		k.letGo()
		<-order
		if r := ask(s, e); r != cuda.Success {
			t.Errorf("%s: %v", name, r)
		}
	}
}

// testAtRest checks that on an idle device records and waits complete before Submit returns, and that Queued returns 0.
func testAtRest(t *testing.T, b *bench) {
	b.start(Options{})
	q := b.dev.Capabilities().Control
	if q == nil {
		t.Skip("the accelerator counts nothing")
	}
	p := b.alloc(64)
	for range 100 {
		b.do(accel.Fill{Address: p, Width: 64, Height: 1, ElementSize: 1})
		for end := time.Now().Add(patience); q.Queued() != 0; {
			if time.Now().After(end) {
				t.Fatalf("%d are queued when all has ended", q.Queued())
			}
		}
		e := b.event()
		var n notes
		b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Record{Event: e}, n.of("record")), cuda.Success)
		b.want(b.ctx.Submit(b.stream(0), accel.WaitEvent{Event: e}, n.of("wait")), cuda.Success)
		if got := n.order(); len(got) != 2 {
			t.Fatalf("at rest, told of %v before Submit returned", got)
		}
		if _, r := e.Time(); r != cuda.Success {
			t.Fatalf("its time: %v", r)
		}
		e.Destroy()
		if q.Queued() != 0 {
			t.Fatalf("%d are queued after a record", q.Queued())
		}
	}
}

// now returns the time by the clock of accel.Usage.
func now() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// testTimes checks that events that are recorded later have later times, also over some seconds.
func testTimes(t *testing.T, b *bench) {
	b.start(Options{})
	first := b.event()
	before := time.Now()
	b.submit(b.ctx.DefaultStream(), accel.Record{Event: first})
	start, last := time.Now(), int64(0)
	from, r := first.Time()
	b.want(r, cuda.Success)
	for time.Since(start) < 9*time.Second {
		e := b.event()
		least := time.Since(start)
		b.submit(b.ctx.DefaultStream(), accel.Record{Event: e})
		at, r := e.Time()
		b.want(r, cuda.Success)
		most := time.Since(before)
		if at < last || at-from > int64(most)+2e6 || at-from < int64(least)-500e6 {
			t.Fatalf("an event recorded between %v and %v was at %d ns after the first; the one before it at %d", least, most, at-from, last-from)
		}
		last = at
		e.Destroy()
		if testing.Short() {
			break
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// testWaitForEvents checks that event waits order the work of two streams, and the reports of its ends.
func testWaitForEvents(t *testing.T, b *bench) {
	b.start(Options{})
	one, two := b.stream(1), b.stream(1)
	e := b.event()
	p, q := b.alloc(64), b.alloc(64)
	k := b.spinner()
	var n notes
	b.want(b.ctx.Submit(one, k.work(), n.of("kernel")), cuda.Success)
	b.want(b.ctx.Submit(one, linear(at(p), host([]byte("words to be copied")), 18), n.of("in")), cuda.Success)
	b.want(b.ctx.Submit(one, accel.Record{Event: e}, n.of("record")), cuda.Success)
	b.want(b.ctx.Submit(two, accel.WaitEvent{Event: e}, n.of("wait")), cuda.Success)
	b.want(b.ctx.Submit(two, linear(at(q), at(p), 18), n.of("within")), cuda.Success)
	b.submit(one, accel.Record{Event: e}) // the wait refers to the earlier record
	b.want(two.Query(), cuda.ErrorNotReady)
	k.letGo()
	b.want(b.sync(), cuda.Success)
	if got := n.order(); !slices.Equal(got, []string{"kernel", "in", "record", "wait", "within"}) {
		t.Error(got)
	}
	if got := b.download(q, 18); !bytes.Equal(got, []byte("words to be copied")) {
		t.Errorf("the other stream copied %q", got)
	}
	b.submit(two, accel.WaitEvent{Event: b.event()}) // never recorded: the wait ends at once
	b.want(b.sync(), cuda.Success)
}

func testHostFunctions(t *testing.T, b *bench) {
	b.start(Options{})
	type call struct {
		name     string
		status   cuda.Result
		finished func()
	}
	due := make(chan call, 8)
	hold := func(name string) accel.HostFunc {
		return accel.HostFunc{Due: func(r cuda.Result, f func()) { due <- call{name, r, f} }}
	}
	one, two := b.stream(1), b.stream(1)
	p := b.alloc(64)
	var n notes
	b.want(b.ctx.Submit(one, accel.Fill{Address: p, Width: 1, Height: 1, Value: 1, ElementSize: 1}, n.of("fill")), cuda.Success)
	b.want(b.ctx.Submit(one, hold("one"), n.of("one")), cuda.Success)
	b.want(b.ctx.Submit(one, accel.Fill{Address: p, Width: 1, Height: 1, Value: 2, ElementSize: 1}, n.of("after")), cuda.Success)
	first := <-due
	if first.name != "one" || first.status != cuda.Success || !slices.Equal(n.order(), []string{"fill"}) {
		t.Errorf("due is %v, told of was %v", first, n.order())
	}
	var seen [1]byte
	a := newAnswer()
	b.want(b.ctx.Submit(b.stream(1), linear(host(seen[:]), at(p), 1), a.done), cuda.Success)
	b.want(b.wait(a), cuda.Success)
	if seen[0] != 1 {
		t.Errorf("while the stream is held there is %d", seen[0])
	}
	// Host functions of other streams become due meanwhile.
	b.want(b.ctx.Submit(two, hold("two"), n.of("two")), cuda.Success)
	second := <-due
	first.finished()
	first.finished()
	one.Synchronize(a.result)
	b.want(b.wait(a), cuda.Success)
	second.finished()
	b.want(b.sync(), cuda.Success)
	if got := n.order(); !slices.Equal(got, []string{"fill", "one", "after", "two"}) {
		t.Error(got)
	}
	// Many host functions run one after another, and call finished themselves.
	count := 0
	for range 200 {
		b.submit(one, accel.HostFunc{Due: func(_ cuda.Result, f func()) { count++; f() }})
	}
	b.want(b.sync(), cuda.Success)
	if count != 200 {
		t.Errorf("%d of 200 host functions were due", count)
	}
}
