package acceltest

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// usages receives the reported usages.
type usages chan accel.Usage

func (u usages) done(_ cuda.Result, used accel.Usage) { u <- used }

// clocks is the tolerated difference between the accelerator's clock and the host's.
const clocks = 1e6 // ns

// testUsage checks that work is charged to its engine, for the time in which the engine executed it.
func testUsage(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.module(kernels)
	p := b.alloc(8 << 20)
	data := make([]byte, 8<<20)
	count := launch(m, "count", binary.LittleEndian.AppendUint32(words64(p), 200_000))
	for _, c := range []struct {
		name  string
		work  accel.Work
		class accel.Class
	}{
		{"kernel", count, accel.Compute},
		{"in", linear(at(p), host(data), len(data)), accel.CopyIn},
		{"out", linear(host(data), at(p), len(data)), accel.CopyOut},
		{"within", linear(at(p), at(p+4<<20), 4<<20), accel.CopyDevice},
		{"fill", accel.Fill{Address: p, Width: 8 << 20, Height: 1, ElementSize: 1}, accel.CopyDevice},
	} {
		u := make(usages, 1)
		before := now()
		b.want(b.ctx.Submit(b.ctx.DefaultStream(), c.work, u.done), cuda.Success)
		used := <-u
		after := now()
		if used.Class != c.class || used.Start < before-clocks || used.End > after+clocks || used.End <= used.Start {
			t.Errorf("%s: between %d and %d it used %+v", c.name, before, after, used)
		}
	}
	// A kernel that polls is charged for its time, and work that waits for the kernel is not.
	k := b.spinner()
	s := b.stream(1)
	kernel, copied := make(usages, 1), make(usages, 1)
	b.want(b.ctx.Submit(s, k.work(), kernel.done), cuda.Success)
	b.want(b.ctx.Submit(s, linear(host(data[:64]), at(p), 64), copied.done), cuda.Success)
	time.Sleep(500 * time.Millisecond) // long compared with the delays of a busy host
	k.letGo()
	if used := <-kernel; used.End-used.Start < 250e6 {
		t.Errorf("a kernel of 500 ms used %d ns", used.End-used.Start)
	}
	if used := <-copied; used.End-used.Start > 250e6 {
		t.Errorf("a copy of 64 bytes behind it used %d ns", used.End-used.Start)
	}
	u := make(usages, 1)
	b.want(b.ctx.Submit(s, accel.Record{Event: b.event()}, u.done), cuda.Success)
	if used := <-u; used.End != used.Start {
		t.Errorf("a record used %+v", used)
	}
}

// testOverlap checks that the time in which work runs concurrently is charged once.
func testOverlap(t *testing.T, b *bench) {
	b.start(Options{})
	m := b.module(kernels)
	p := b.alloc(64)
	count := launch(m, "count", binary.LittleEndian.AppendUint32(words64(p), 30_000))
	before := now()
	u := make(usages, 200)
	var streams []accel.Stream
	for range 8 {
		streams = append(streams, b.stream(1))
	}
	for i := range 160 {
		b.want(b.ctx.Submit(streams[i%len(streams)], count, u.done), cuda.Success)
	}
	b.want(b.sync(), cuda.Success)
	took := now() - before
	sum := int64(0)
	for range 160 {
		used := <-u
		sum += used.End - used.Start
	}
	if sum > took || sum < took/50 {
		t.Errorf("within %d ns kernels were charged %d", took, sum)
	}
}

func testPredict(t *testing.T, b *bench) {
	b.start(Options{})
	p := b.dev.Capabilities().Prediction
	if p == nil {
		t.Skip("the accelerator predicts nothing")
	}
	m := b.module(kernels)
	to := b.alloc(64)
	w := launch(m, "count", binary.LittleEndian.AppendUint32(words64(to), 200_000))
	if ns := p.Predict(w); ns != 0 {
		t.Errorf("without a history %d ns are predicted", ns)
	}
	u := make(usages, 1)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), w, u.done), cuda.Success)
	used := <-u
	b.want(b.sync(), cuda.Success)
	if ns, was := p.Predict(&w), used.End-used.Start; ns < was/2 || ns > 2*was {
		t.Errorf("after a launch of %d ns, %d are predicted", was, ns)
	}
	w.Grid[0] = 2
	if ns := p.Predict(w); ns != 0 {
		t.Errorf("for another grid %d ns are predicted", ns)
	}
	for _, strange := range []accel.Work{accel.Launch{}, accel.Launch{Module: m, Function: -1}, accel.Fill{}} {
		if ns := p.Predict(strange); ns != 0 {
			t.Errorf("for %+v %d ns are predicted", strange, ns)
		}
	}
}

// testStickyErrors checks that a fault ends its context, and no other context.
func testStickyErrors(t *testing.T, b *bench) {
	b.start(Options{})
	other := b.context()
	m := b.module(kernels)
	p := b.alloc(64)
	a := newAnswer()
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), launch(m, "fault", words64(8)), a.done), cuda.Success)
	b.want(b.wait(a), cuda.ErrorIllegalAddress)
	b.want(b.sync(), cuda.ErrorIllegalAddress)
	b.want(b.ctx.Err(), cuda.ErrorIllegalAddress)
	b.want(b.ctx.DefaultStream().Query(), cuda.ErrorIllegalAddress)
	_, r := b.ctx.Alloc(64)
	b.want(r, cuda.ErrorIllegalAddress)
	_, r = b.ctx.NewStream(0, 0)
	b.want(r, cuda.ErrorIllegalAddress)
	_, _, r = b.ctx.LoadModule([]byte(kernels))
	b.want(r, cuda.ErrorIllegalAddress)
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), accel.Fill{Address: p, Width: 1, Height: 1, ElementSize: 1}, nil), cuda.ErrorIllegalAddress)
	gone := make(chan struct{})
	b.ctx.Destroy(func() { close(gone) })
	b.until(gone)
	b.ctx = other
	if b.traits.Fatal {
		_, r := b.dev.NewContext(0)
		b.want(r, cuda.ErrorIllegalAddress)
		return
	}
	q := b.alloc(64)
	b.upload(q, []byte("fine"))
	if got := b.download(q, 4); string(got) != "fine" {
		t.Errorf("another context has %q", got)
	}
	// Work that is queued behind a fault ends with the fault's error, and isn't executed.
	m = b.module(kernels)
	s := b.stream(1)
	k := b.spinner()
	b.want(b.ctx.Submit(s, k.work(), a.done), cuda.Success)
	b.want(b.ctx.Submit(s, launch(m, "fault", words64(8)), a.done), cuda.Success)
	b.want(b.ctx.Submit(s, linear(host(b.shared[:4]), at(q), 4), a.done), cuda.Success)
	b.want(b.ctx.Submit(s, accel.HostFunc{Due: func(r cuda.Result, f func()) { a <- r; f() }}, a.done), cuda.Success)
	k.letGo()
	if r := b.wait(a); r != cuda.Success && (b.traits.Exact || r != cuda.ErrorIllegalAddress) {
		t.Errorf("what comes before a fault ends with %v", r)
	}
	for range 4 {
		b.want(b.wait(a), cuda.ErrorIllegalAddress)
	}
	if b.shared[0] != 0 {
		t.Error("what comes behind a fault was done")
	}
}

func (b *bench) until(c <-chan struct{}) {
	b.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		b.Fatalf("it doesn't come within %v", patience)
	}
}

func testLimits(t *testing.T, b *bench) {
	b.start(Options{})
	const stack, printf = 0, 1
	for _, c := range []struct {
		limit uint32
		value uint64
	}{{stack, 4096}, {printf, 2 << 20}} {
		got, r := b.ctx.SetLimit(c.limit, c.value)
		b.want(r, cuda.Success)
		if got < c.value {
			t.Errorf("limit %d set to %d is %d", c.limit, c.value, got)
		}
	}
	if _, r := b.ctx.SetLimit(99, 1); r != cuda.ErrorUnsupportedLimit && r != cuda.ErrorInvalidValue {
		t.Errorf("limit 99: %v", r)
	}
	b.want(b.ctx.Err(), cuda.Success)
	b.do(launch(b.module(kernels), "bump", nil))
}

// testFreeWaits checks that freed memory stays usable until the work that was submitted before has ended.
func testFreeWaits(t *testing.T, b *bench) {
	b.start(Options{})
	s := b.stream(1)
	p, q := b.alloc(4096), b.alloc(4096)
	b.upload(p, []byte("still there"))
	m := b.module(kernels)
	k := b.spinner()
	b.submit(s, k.work())
	b.submit(s, linear(at(q), at(p), 11))
	b.submit(s, launch(m, "bump", nil))
	freed := make(chan struct{})
	b.want(b.ctx.Free(p, func() { close(freed) }), cuda.Success)
	m.Unload()
	select {
	case <-freed:
		t.Error("freed while work uses it")
	case <-time.After(20 * time.Millisecond):
	}
	k.letGo()
	b.until(freed)
	b.want(b.sync(), cuda.Success)
	if got := b.download(q, 11); string(got) != "still there" {
		t.Errorf("copied %q", got)
	}
}

// testDestroyInFlight checks that the ends of all submitted work are reported before Destroy reports its own end.
func testDestroyInFlight(t *testing.T, b *bench) {
	b.start(Options{})
	k := b.spinner()
	p := b.alloc(1 << 20)
	s := b.stream(1)
	a := newAnswer()
	var reported atomic.Int32
	done := func(r cuda.Result, _ accel.Usage) { reported.Add(1); a <- r }
	b.want(b.ctx.Submit(s, k.work(), done), cuda.Success)
	for range 10 {
		b.want(b.ctx.Submit(s, accel.Fill{Address: p, Width: 1 << 20, Height: 1, ElementSize: 1}, done), cuda.Success)
	}
	b.ctx.Synchronize(func(r cuda.Result) { reported.Add(1); a <- r })
	if !b.traits.Cancels {
		k.letGo() // such a device has to wait for the kernel
	}
	gone, again := make(chan struct{}), make(chan struct{})
	b.ctx.Destroy(func() { close(gone) })
	b.ctx.Destroy(func() { close(again) })
	b.until(gone)
	b.until(again)
	if n := reported.Load(); n != 12 {
		t.Errorf("%d of 12 ends were told of before the context was gone", n)
	}
	for range 12 {
		if r := b.wait(a); r != cuda.ErrorContextIsDestroyed && (b.traits.Cancels || r != cuda.Success) {
			t.Errorf("told of %v", r)
		}
	}
	b.want(b.ctx.Submit(s, accel.Fill{Address: p, Width: 1, Height: 1, ElementSize: 1}, nil), cuda.ErrorContextIsDestroyed)
	_, r := b.ctx.Alloc(1)
	b.want(r, cuda.ErrorContextIsDestroyed)
	late := make(chan struct{})
	b.ctx.Destroy(func() { close(late) })
	b.until(late)
	b.ctx = b.context()
	b.alloc(1 << 20)
}

// testDestroyHeld checks that Destroy doesn't wait for host functions of the context.
func testDestroyHeld(t *testing.T, b *bench) {
	b.start(Options{})
	a := newAnswer()
	reached := make(chan func(), 4)
	for range 2 {
		s := b.stream(1)
		hold := accel.HostFunc{Due: func(_ cuda.Result, f func()) { reached <- f }}
		b.want(b.ctx.Submit(s, hold, a.done), cuda.Success)
		b.want(b.ctx.Submit(s, hold, a.done), cuda.Success)
	}
	first, second := <-reached, <-reached
	gone := make(chan struct{})
	b.ctx.Destroy(func() { close(gone) })
	b.until(gone)
	for range 4 {
		b.want(b.wait(a), cuda.ErrorContextIsDestroyed)
	}
	first()
	second()
	if len(reached) != 0 {
		t.Error("a host function was due in a context that was destroyed")
	}
}

func testTimeout(t *testing.T, b *bench) {
	late := make(chan struct{}, 8)
	const limit = 2 * time.Second // a short kernel must end within it on a busy host, too
	b.start(Options{KernelTimeout: limit, OnTimeout: func() { late <- struct{}{} }})
	m := b.module(kernels)
	p := b.alloc(64)
	count := launch(m, "count", binary.LittleEndian.AppendUint32(words64(p), 1000))
	for start := time.Now(); time.Since(start) < limit*3/2; { // none exceeds the limit, their sum does
		for range 50 {
			b.submit(b.ctx.DefaultStream(), count)
		}
		b.want(b.sync(), cuda.Success)
	}
	k := b.spinner()
	a := newAnswer()
	start := time.Now()
	b.want(b.ctx.Submit(b.ctx.DefaultStream(), k.work(), a.done), cuda.Success)
	b.until(late)
	if took := time.Since(start); took < limit {
		t.Errorf("after %v a kernel has run for too long", took)
	}
	if !b.traits.Cancels {
		b.want(b.ctx.Err(), cuda.ErrorLaunchTimeout)
		k.way = nil
		// The kernel would run until the process ends. Nothing can be submitted any more, so release it directly.
		b.release(k)
	}
	b.want(b.wait(a), cuda.ErrorLaunchTimeout)
	b.want(b.sync(), cuda.ErrorLaunchTimeout)
}

// release ends a spinning kernel from another context.
func (b *bench) release(k *spinner) {
	b.Helper()
	other := b.context()
	a := newAnswer()
	b.want(other.Submit(other.DefaultStream(), linear(at(k.flag), host([]byte{1, 0, 0, 0}), 4), a.done), cuda.Success)
	b.want(b.wait(a), cuda.Success)
}

func testCloseInFlight(t *testing.T, b *bench) {
	b.start(Options{})
	k := b.spinner()
	a := newAnswer()
	b.want(b.ctx.Submit(b.stream(1), k.work(), a.done), cuda.Success)
	reached := make(chan func(), 1)
	b.want(b.ctx.Submit(b.stream(1), accel.HostFunc{Due: func(_ cuda.Result, f func()) { reached <- f }}, a.done), cuda.Success)
	<-reached
	if !b.traits.Cancels {
		k.letGo()
	}
	if err := b.dev.Close(); err != nil {
		t.Error(err)
	}
	got := []cuda.Result{b.wait(a), b.wait(a)}
	if !slices.Contains(got, cuda.ErrorContextIsDestroyed) {
		t.Errorf("told of %v", got)
	}
}
