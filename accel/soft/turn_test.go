package soft

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// turns is a Turn that a test starts and ends.
type turns struct {
	mu    sync.Mutex
	given sync.Cond
	held  bool
	asked atomic.Int32 // by how many Await is being called
	let   atomic.Int32 // how many calls of Await have returned
}

func newTurns(held bool) *turns {
	t := &turns{held: held}
	t.given.L = &t.mu
	return t
}

func (t *turns) Queued(accel.Class, int) {}

func (t *turns) Held(accel.Class) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}

func (t *turns) Await(_ accel.Class, stop func() bool) {
	t.asked.Add(1)
	defer t.asked.Add(-1)
	for !t.Held(0) && !stop() {
		time.Sleep(100 * time.Microsecond)
	}
	t.let.Add(1)
}

func (t *turns) give(yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = yes
}

// alternate gives the turn and takes it at random times, each lasting for less than most, until stop, which gives it.
func (t *turns) alternate(rng *rand.Rand, most time.Duration) (stop func()) {
	r := rand.New(rand.NewPCG(rng.Uint64(), 1))
	over := make(chan struct{})
	var turning sync.WaitGroup
	turning.Go(func() {
		for held := false; ; held = !held {
			select {
			case <-over:
				t.give(true)
				return
			case <-time.After(time.Duration(r.Int64N(int64(most)))):
				t.give(held)
			}
		}
	})
	return func() {
		close(over)
		turning.Wait()
	}
}

// awaited blocks until work waits for the turn.
func (t *turns) awaited(tb testing.TB) {
	tb.Helper()
	happens(tb, "work waits for its turn", func() bool { return t.asked.Load() != 0 })
}

func happens(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			tb.Fatal("it does not happen within 30 s: ", what)
		}
	}
}

// accelerator has the pages of an accelerator and of its only domain.
type accelerator struct {
	*engine.Memory
	engines *engine.Engines
}

// share sets a device up to use the accelerator.
func (a accelerator) share(c *Config) { c.Shared, c.Engines, c.Memory = a.Memory, a.engines, 0 }

// Holder returns the process that has an engine.
func (a accelerator) Holder(k engine.Token) int { return a.engines.Holder(k) }

// sharing opens a device on an accelerator that other devices use, too.
func sharing(t *testing.T, page accelerator, turn accel.Turn) (*Device, *Context) {
	t.Helper()
	return open(t, func(c *Config) {
		page.share(c)
		if turn != nil {
			c.Turn = turn
		}
	})
}

func newPage(t testing.TB, o engine.Options) accelerator {
	t.Helper()
	shared, err := engine.Create(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shared.Close() }) // after the devices
	engines, err := engine.CreateEngines()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engines.Close() })
	return accelerator{shared, engines}
}

// A kernel without an end releases the engine when its domain's turn is over, continues in the next, and is charged for
// its own time only.
func TestKernelGivesEngineBack(t *testing.T) {
	page := newPage(t, engine.Options{Memory: 64 << 20})
	turn := newTurns(true)
	_, long := sharing(t, page, turn)
	_, other := sharing(t, page, nil)
	var spent atomic.Int64
	w, ended := newWaiter(), make(chan accel.Usage, 1)
	launch := launchOf(load(t, long, endlessKernel))
	launch.Spent = func(u accel.Usage) { spent.Add(u.End - u.Start) }
	want(t, long.Submit(long.DefaultStream(), launch, func(r cuda.Result, u accel.Usage) { ended <- u; w <- r }), cuda.Success)
	var away time.Duration
	for range 3 {
		for spent.Load() == 0 && page.Holder(engine.Compute) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		turn.give(false)
		turn.awaited(t)
		before := spent.Load()
		begun := time.Now()
		quick := goModule(other, 0, func(*run) *fault { return nil })
		submit(t, other, other.DefaultStream(), launchOf(quick))
		want(t, synchronize(t, other), cuda.Success)
		time.Sleep(20 * time.Millisecond)
		away += time.Since(begun)
		if now := spent.Load(); now != before {
			t.Errorf("%d ns are charged while others have the engine", now-before)
		}
		turn.give(true)
	}
	gone := newWaiter()
	long.Destroy(func() { gone <- 0 })
	gone.wait(t)
	want(t, w.wait(t), cuda.ErrorContextIsDestroyed)
	if u := <-ended; u.End-u.Start != spent.Load() {
		t.Errorf("it held the engine for %d ns, %d were charged", u.End-u.Start, spent.Load())
	}
}

// Work that waits for its turn with its kernel half done ends with its context or its device, and leaves the engine to
// others.
func TestPausedKernelEnds(t *testing.T) {
	page := newPage(t, engine.Options{Memory: 64 << 20})
	_, other := sharing(t, page, nil)
	for _, end := range []func(*Device, *Context){
		func(_ *Device, c *Context) { c.Destroy(func() {}) },
		func(d *Device, _ *Context) { d.Abort() },
		func(d *Device, _ *Context) { d.Close() },
	} {
		turn := newTurns(true)
		d, c := sharing(t, page, turn)
		w := newWaiter()
		want(t, c.Submit(c.DefaultStream(), launchOf(load(t, c, endlessKernel)), w.done), cuda.Success)
		for page.Holder(engine.Compute) == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		turn.give(false)
		turn.awaited(t)
		end(d, c)
		want(t, w.wait(t), cuda.ErrorContextIsDestroyed)
		submit(t, other, other.DefaultStream(), launchOf(goModule(other, 0, func(*run) *fault { return nil })))
		want(t, synchronize(t, other), cuda.Success)
	}
}

// Of several workers that waited for the engine within a turn, those that get it after the turn release it and wait.
func TestTurnIsAskedAtTheEngine(t *testing.T) {
	page := newPage(t, engine.Options{Memory: 64 << 20})
	turn := newTurns(true)
	_, first := sharing(t, page, nil)
	_, second := sharing(t, page, turn)
	gate := make(chan struct{})
	submit(t, first, first.DefaultStream(), launchOf(goModule(first, 0, func(*run) *fault { <-gate; return nil })))
	for page.Holder(engine.Compute) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	var ran atomic.Bool
	submit(t, second, second.DefaultStream(), launchOf(goModule(second, 0, func(*run) *fault { ran.Store(true); return nil })))
	happens(t, "the kernel goes to the engine", func() bool { return turn.let.Load() != 0 })
	turn.give(false)
	close(gate)
	turn.awaited(t)
	want(t, synchronize(t, first), cuda.Success)
	if ran.Load() {
		t.Error("a kernel ran after its turn")
	}
	turn.give(true)
	want(t, synchronize(t, second), cuda.Success)
	if !ran.Load() {
		t.Error("a kernel did not run in its turn")
	}
}

// flipping is a turn that ends after a number of queries.
type flipping struct{ n atomic.Int32 }

func (f *flipping) Queued(accel.Class, int)        {}
func (f *flipping) Held(accel.Class) bool          { return f.n.Add(1)%3 != 0 }
func (f *flipping) Await(accel.Class, func() bool) {}
func (f *flipping) clock(tick time.Duration) func() int64 {
	base, reads := engine.Now(), new(atomic.Int64)
	return func() int64 { return base + int64(tick)*reads.Add(1) }
}

// Copies and fills of any shape release the engine after each slice, with the same bytes as a result.
func TestCopiesAndFillsInSlices(t *testing.T) {
	turn := &flipping{}
	_, c := open(t, func(c *Config) {
		c.Turn = turn
		c.Clock = turn.clock(sliceNs) // each look finds that the slice is over
	})
	rng := rand.New(rand.NewPCG(1, 2))
	const size = 3 << 20
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	from, to := alloc(t, c, size), alloc(t, c, size)
	check := func(what string, parts, least int32, model []byte) {
		t.Helper()
		if got := download(t, c, to, size); !bytes.Equal(got, model) {
			t.Errorf("%s: wrong bytes", what)
		}
		if parts < least {
			t.Errorf("%s: %d parts, want %d at least", what, parts, least)
		}
	}
	model := make([]byte, size)
	for _, b := range []struct{ width, rows, slices, pitch, height uint64 }{
		{size, 1, 1, size, 1}, {1, 1 << 20, 1, 2, 1 << 20}, {700_000, 3, 1, 900_000, 3}, {1000, 100, 20, 1024, 110}, {4096, 100, 7, 4096, 100},
	} {
		upload(t, c, from, data)
		upload(t, c, to, model)
		var parts atomic.Int32
		w := newWaiter()
		e := accel.End{Pitch: b.pitch, Height: b.height}
		src, dst := e, e
		src.Address, dst.Address = from, to
		want(t, c.Submit(c.DefaultStream(), accel.Copy{Dst: dst, Src: src, Width: b.width, Height: b.rows, Depth: b.slices,
			Spent: func(accel.Usage) { parts.Add(1) }}, w.done), cuda.Success)
		want(t, w.wait(t), cuda.Success)
		for z := range b.slices {
			for y := range b.rows {
				at := (z*b.height + y) * b.pitch
				copy(model[at:at+b.width], data[at:at+b.width])
			}
		}
		check("copy", parts.Load(), int32(b.width*b.rows*b.slices/lookBytes/2), model)
	}
	for _, f := range []struct {
		width, rows, pitch uint64
		value, element     uint32
	}{
		{size, 1, size, 0x11, 1}, {1, 1 << 20, 3, 0x22, 1}, {size / 4, 1, size, 0x12345678, 4}, {175_001, 4, 700_020, 0, 4}, {300_001, 5, 600_002, 0xabcd, 2}, {3, 90_000, 8, 0xbeef, 2},
	} {
		var parts atomic.Int32
		w := newWaiter()
		want(t, c.Submit(c.DefaultStream(), accel.Fill{Address: to, Width: f.width, Height: f.rows, Pitch: f.pitch, Value: f.value, ElementSize: f.element,
			Spent: func(accel.Usage) { parts.Add(1) }}, w.done), cuda.Success)
		want(t, w.wait(t), cuda.Success)
		for y := range f.rows {
			for x := range f.width * uint64(f.element) {
				model[y*f.pitch+x] = byte(f.value >> (8 * (x % uint64(f.element))))
			}
		}
		check("fill", parts.Load(), int32(f.width*uint64(f.element)*f.rows/lookBytes/2), model)
	}
}

// A kernel that is compiled at its first launch is compiled without the engine, and before its time is measured.
func TestCompiledWithoutEngine(t *testing.T) {
	page := newPage(t, engine.Options{Memory: 64 << 20})
	d, c := sharing(t, page, nil)
	m := goModule(c, 0, nil)
	prepared := false
	m.functions[0].code = compiledLate{goCode(func(*run) *fault { return nil }), func() {
		prepared = true
		if holder := page.Holder(engine.Compute); holder != 0 {
			t.Errorf("process %d holds the engine meanwhile", holder)
		}
		if watches(d) {
			t.Error("the kernel's time counts already")
		}
	}}
	submit(t, c, c.DefaultStream(), launchOf(m))
	want(t, synchronize(t, c), cuda.Success)
	if !prepared {
		t.Error("the kernel was not compiled")
	}
}

type compiledLate struct {
	goCode
	compile func()
}

func (c compiledLate) prepare() error { c.compile(); return nil }

// A kernel is not ended for time in which it did not compute: here its domain's turn was over for longer than the
// timeout. One that computes for longer is, and so is a copy.
func TestTimeoutCountsComputing(t *testing.T) {
	const limit = 300 * time.Millisecond
	turn := newTurns(true)
	d, c := open(t, func(c *Config) {
		c.KernelTimeout = int64(limit)
		c.Turn = turn
	})
	w := newWaiter()
	want(t, c.Submit(c.DefaultStream(), launchOf(load(t, c, endlessKernel)), w.done), cuda.Success)
	for !watches(d) {
		time.Sleep(100 * time.Microsecond)
	}
	turn.give(false)
	turn.awaited(t)
	time.Sleep(2 * limit)
	if r := c.Err(); r != cuda.Success {
		t.Fatalf("%s while it waits for its turn", r.Name())
	}
	turn.give(true)
	want(t, w.wait(t), cuda.ErrorLaunchTimeout)
	if got := time.Duration(computed(d)); got < limit {
		t.Errorf("it was ended after %v of computing", got)
	}

	_, c = open(t, func(c *Config) { c.KernelTimeout = int64(20 * time.Millisecond) })
	a := alloc(t, c, 200<<20)
	copied := accel.Copy{Dst: accel.End{Address: a, Pitch: 2}, Src: accel.End{Address: a, Pitch: 2}, Width: 1, Height: 100 << 20, Depth: 1}
	want(t, c.Submit(c.DefaultStream(), copied, w.done), cuda.Success)
	want(t, w.wait(t), cuda.ErrorLaunchTimeout)
	want(t, c.Err(), cuda.ErrorLaunchTimeout)
}
