package soft

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// meeting is a barrier of kernels written in Go: they wait until so many run at the same time.
type meeting struct {
	mu      sync.Mutex
	here    int
	most    int
	all     chan struct{}
	awaited int
	met     bool
}

func newMeeting(awaited int) *meeting { return &meeting{awaited: awaited, all: make(chan struct{})} }

func (m *meeting) enter() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.here++
	m.most = max(m.most, m.here)
	if m.here == m.awaited && !m.met {
		m.met = true
		close(m.all)
	}
}

func (m *meeting) exit() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.here--
}

// Kernels of one block on streams of their own run at the same time, as many as there are cores and not more.
func TestKernelsOverlap(t *testing.T) {
	const kernels = 10
	_, c := open(t, func(c *Config) { c.Cores = kernels })
	all := newMeeting(kernels)
	m := goModule(c, 0, func(*run) *fault { all.enter(); <-all.all; return nil })
	for range kernels {
		submit(t, c, stream(t, c, 1), launchOf(m))
	}
	want(t, synchronize(t, c), cuda.Success)

	d, c := open(t, func(c *Config) { c.Cores = 2 })
	pairs := newMeeting(2)
	m = goModule(c, 0, func(*run) *fault {
		pairs.enter()
		defer pairs.exit()
		<-pairs.all
		time.Sleep(time.Millisecond)
		return nil
	})
	for range 10 * kernels {
		submit(t, c, stream(t, c, 1), launchOf(m))
	}
	want(t, synchronize(t, c), cuda.Success)
	if pairs.most != 2 {
		t.Errorf("%d kernels ran at the same time on 2 cores", pairs.most)
	}
	// Two execute kernels; others may still report the ends of theirs, so that there can be more than two.
	if e := d.executors[engine.Compute]; len(e.members) > 1+e.most {
		t.Errorf("%d members for %d kernels, more than 1+%d", len(e.members), 10*kernels, e.most)
	}
}

// A kernel that can use all cores runs alone, and neither a cooperative one joins others nor one of the same stream.
func TestKernelsThatDoNotJoin(t *testing.T) {
	_, c := open(t, func(c *Config) { c.Cores = 2 })
	var running, most atomic.Int32
	m := goModule(c, 0, func(*run) *fault {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(5 * time.Millisecond)
		running.Add(-1)
		return nil
	})
	one, two, cooperative := launchOf(m), launchOf(m), launchOf(m)
	two.Grid[0] = 2
	cooperative.Cooperative = true
	s, other := stream(t, c, 1), stream(t, c, 1)
	for name, ws := range map[string][4]accel.Launch{"behind all cores": {two, two, two, one}, "cooperative": {one, cooperative, cooperative, cooperative}} {
		most.Store(0)
		for i, w := range ws {
			submit(t, c, []accel.Stream{s, other}[i%2], w)
		}
		want(t, synchronize(t, c), cuda.Success)
		if most.Load() != 1 {
			t.Errorf("%s: %d at the same time", name, most.Load())
		}
	}
	most.Store(0)
	for range 4 {
		submit(t, c, s, one)
	}
	want(t, synchronize(t, c), cuda.Success)
	if most.Load() != 1 {
		t.Errorf("%d of one stream at the same time", most.Load())
	}
}

// Queued work begins in order: a fill waits until no kernel runs, and a kernel behind it for the fill.
func TestNothingOvertakes(t *testing.T) {
	d, c := open(t, func(c *Config) { c.Cores = 4 })
	at := alloc(t, c, 4)
	gate := make(chan struct{})
	word := func() uint32 { return binary.LittleEndian.Uint32(d.space.Raw(at, 4)) }
	two := newMeeting(2)
	before := goModule(c, 0, func(*run) *fault {
		two.enter()
		<-gate
		if word() != 0 {
			t.Error("the fill has begun beside a kernel")
		}
		return nil
	})
	behind := goModule(c, 0, func(*run) *fault {
		if word() != 7 {
			t.Error("a kernel has overtaken the fill")
		}
		return nil
	})
	submit(t, c, stream(t, c, 1), launchOf(before))
	submit(t, c, stream(t, c, 1), launchOf(before))
	<-two.all
	submit(t, c, stream(t, c, 1), accel.Fill{Address: at, Width: 1, Height: 1, Value: 7, ElementSize: 4})
	submit(t, c, stream(t, c, 1), launchOf(behind))
	time.Sleep(5 * time.Millisecond)
	close(gate)
	want(t, synchronize(t, c), cuda.Success)
}

// looping is a kernel in Go that stops and continues with its crew, as cores do, until let is set.
func looping(let *atomic.Bool, turns *atomic.Int64) goCode {
	return func(r *run) *fault {
		for !let.Load() {
			if r.Yield() {
				r.Resume()
			}
			if r.Cancel.Load() {
				return &fault{result: cuda.ErrorLaunchTimeout, message: "cancelled"}
			}
			turns.Add(1)
			time.Sleep(20 * time.Microsecond)
		}
		return nil
	}
}

// When the turn is over all kernels stop, the engine is released once, and all continue in the next turn. A kernel in a
// context that is destroyed meanwhile ends at once.
func TestCrewPauses(t *testing.T) {
	const members = 5
	page := newPage(t, engine.Options{Memory: 64 << 20})
	turn := newTurns(true)
	d, c := open(t, func(c *Config) { page.share(c); c.Cores, c.Turn = members, turn })
	doomed := context(t, d)
	_, other := sharing(t, page, nil)
	var let, letDoomed atomic.Bool
	var turns [members]atomic.Int64
	w, gone := newWaiter(), newWaiter()
	for i := range members - 1 {
		want(t, c.Submit(stream(t, c, 1), launchOf(goModule(c, 0, looping(&let, &turns[i]))), w.done), cuda.Success)
	}
	want(t, doomed.Submit(stream(t, doomed, 1), launchOf(goModule(doomed, 0, looping(&letDoomed, &turns[members-1]))), gone.done), cuda.Success)
	for round := range 3 {
		n := members
		if round > 1 {
			n--
		}
		for i := range n {
			before := turns[i].Load()
			happens(t, "a member runs", func() bool { return turns[i].Load() > before })
		}
		awaited := turn.let.Load()
		turn.give(false)
		turn.awaited(t)
		sum := func() (n int64) {
			for i := range turns {
				n += turns[i].Load()
			}
			return n
		}
		before := sum()
		submit(t, other, other.DefaultStream(), launchOf(goModule(other, 0, func(*run) *fault { time.Sleep(5 * time.Millisecond); return nil })))
		want(t, synchronize(t, other), cuda.Success)
		if round == 1 {
			doomed.Destroy(func() {})
			want(t, gone.wait(t), cuda.ErrorContextIsDestroyed)
		}
		if now := sum(); now != before {
			t.Errorf("kernels have gone on %d times while others had the engine", now-before)
		}
		turn.give(true)
		happens(t, "the crew goes on", func() bool { return sum() > before })
		if n := turn.let.Load() - awaited; n < 1 || n > 2 { // by another member if the first is destroyed
			t.Errorf("the engine was acquired %d times", n)
		}
	}
	let.Store(true)
	for range members - 1 {
		want(t, w.wait(t), cuda.Success)
	}
}

// A fault ends the kernels of its context, and none of another.
func TestFaultBesideKernels(t *testing.T) {
	d, c := open(t, func(c *Config) { c.Cores = 4 })
	other := context(t, d)
	var let atomic.Bool
	running := newMeeting(3)
	endless := goCode(func(r *run) *fault {
		running.enter()
		for !r.Cancel.Load() {
			if let.Load() {
				return nil
			}
			time.Sleep(50 * time.Microsecond)
		}
		return &fault{result: cuda.ErrorLaunchTimeout, message: "cancelled"}
	})
	w, fine := newWaiter(), newWaiter()
	for range 2 {
		want(t, c.Submit(stream(t, c, 1), launchOf(goModule(c, 0, endless)), w.done), cuda.Success)
	}
	want(t, other.Submit(stream(t, other, 1), launchOf(goModule(other, 0, endless)), fine.done), cuda.Success)
	<-running.all
	bad := goModule(c, 0, func(*run) *fault { return &fault{result: cuda.ErrorIllegalAddress, message: "test"} })
	want(t, c.Submit(stream(t, c, 1), launchOf(bad), w.done), cuda.Success)
	for range 3 {
		want(t, w.wait(t), cuda.ErrorIllegalAddress)
	}
	let.Store(true)
	want(t, fine.wait(t), cuda.Success)
	want(t, other.Err(), cuda.Success)
}

// Each kernel has its own time: one that computes for too long is ended beside one that does not compute, and so is the next.
func TestTimeoutBesideKernels(t *testing.T) {
	d, c := open(t, func(c *Config) {
		c.Cores = 3
		c.KernelTimeout = (100 * time.Millisecond).Nanoseconds()
	})
	other, third := context(t, d), context(t, d)
	gate := make(chan struct{})
	waits := goModule(third, 0, func(*run) *fault { <-gate; return nil })
	w, fine := newWaiter(), newWaiter()
	want(t, third.Submit(stream(t, third, 1), launchOf(waits), fine.done), cuda.Success)
	want(t, c.Submit(stream(t, c, 1), launchOf(load(t, c, endlessKernel)), w.done), cuda.Success)
	want(t, w.wait(t), cuda.ErrorLaunchTimeout)
	want(t, other.Submit(stream(t, other, 1), launchOf(load(t, other, endlessKernel)), w.done), cuda.Success)
	want(t, w.wait(t), cuda.ErrorLaunchTimeout)
	close(gate)
	want(t, fine.wait(t), cuda.Success)
}

// All time for which the engine was held is charged, each nanosecond once, whatever runs, pauses, fails or is destroyed.
func TestChargesAddUp(t *testing.T) {
	rng := seed(t)
	page := newPage(t, engine.Options{Memory: 64 << 20})
	turn := newTurns(true)
	d, _ := open(t, func(c *Config) { page.share(c); c.Cores, c.Turn = 3, turn })
	_, rival := sharing(t, page, nil)
	var sum, rivals atomic.Int64
	for range 8 {
		stop := turn.alternate(rng, 3*time.Millisecond)
		contexts := []*Context{context(t, d), context(t, d)}
		var callbacks sync.WaitGroup
		for range 40 {
			c := contexts[rng.IntN(2)]
			length, fails := time.Duration(rng.IntN(4000))*time.Microsecond, rng.IntN(60) == 0
			var spent int64
			launch := launchOf(goModule(c, 0, func(r *run) *fault {
				for begun := time.Now(); time.Since(begun) < length; time.Sleep(50 * time.Microsecond) {
					if r.Yield() {
						r.Resume()
					}
					if r.Cancel.Load() {
						return &fault{result: cuda.ErrorLaunchTimeout}
					}
				}
				if fails {
					return &fault{result: cuda.ErrorIllegalAddress, message: "test"}
				}
				return nil
			}))
			launch.Grid[0] = 1 + rng.Uint32N(4)
			launch.Cooperative = rng.IntN(10) == 0
			launch.Spent = func(u accel.Usage) { spent += u.End - u.Start }
			callbacks.Add(1)
			done := func(_ cuda.Result, u accel.Usage) {
				if ns := u.End - u.Start; spent > ns {
					t.Errorf("%d ns in all, %d were told of", ns, spent)
				} else {
					sum.Add(ns)
				}
				callbacks.Done()
			}
			if c.Submit(stream(t, c, 1), launch, done) != cuda.Success {
				callbacks.Done()
			}
			if rng.IntN(8) == 0 {
				callbacks.Add(1)
				want(t, rival.Submit(rival.DefaultStream(), launchOf(goModule(rival, 0, func(*run) *fault { return nil })),
					func(_ cuda.Result, u accel.Usage) { rivals.Add(u.End - u.Start); callbacks.Done() }), cuda.Success)
			}
		}
		if rng.IntN(2) == 0 {
			contexts[0].Destroy(func() {})
		}
		callbacks.Wait()
		stop()
		happens(t, "the engine is given back", func() bool { return page.Holder(engine.Compute) == 0 })
		if held := page.engines.Total()[engine.Compute]; held != sum.Load()+rivals.Load() {
			t.Fatalf("the engine was held for %d ns, %d and %d were charged", held, sum.Load(), rivals.Load())
		}
	}
}

// A kernel that joins with fewer cores than it can use gets those that another one leaves.
func TestCoresOfThoseThatLeave(t *testing.T) {
	d, c := open(t, func(c *Config) { c.Cores = 3 })
	gate := make(chan struct{})
	first := launchOf(goModule(c, 0, func(*run) *fault { <-gate; return nil }))
	first.Grid[0] = 2
	w := newWaiter()
	want(t, c.Submit(stream(t, c, 1), first, w.done), cuda.Success)
	wide := launchOf(load(t, c, endlessKernel))
	wide.Grid[0] = 100
	submit(t, c, stream(t, c, 1), wide)
	has := func() (n int) {
		e := d.executors[engine.Compute]
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.open.Load() != shared { // the leader alone uses it
			return 0
		}
		for _, m := range e.crew {
			if e.leader != m {
				n += m.has
			}
		}
		return n
	}
	happens(t, "the wide kernel has the core that is left", func() bool { return has() == 1 })
	close(gate)
	want(t, w.wait(t), cuda.Success)
	happens(t, "it has all cores", func() bool { return has() == 3 })
	gone := newWaiter()
	c.Destroy(func() { gone <- 0 })
	gone.wait(t)
}

// Two kernels in PTX that wait for each other's word in memory end.
func TestKernelsMeet(t *testing.T) {
	_, c := open(t, func(c *Config) { c.Cores = 2 })
	m := load(t, c, header+`
.visible .entry meet(.param .u64 mine, .param .u64 other)
{ .reg .u64 %m, %o; .reg .u32 %v; .reg .pred %p;
ld.param.u64 %m, [mine]; ld.param.u64 %o, [other];
cvta.to.global.u64 %m, %m; cvta.to.global.u64 %o, %o;
st.volatile.global.u32 [%m], 1;
again:
ld.volatile.global.u32 %v, [%o];
setp.eq.u32 %p, %v, 0;
@%p bra again;
ret; }`)
	a, b := alloc(t, c, 4), alloc(t, c, 4)
	params := func(x, y uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, x), y)
	}
	submit(t, c, stream(t, c, 1), launchOf(m, params(a, b)...))
	submit(t, c, stream(t, c, 1), launchOf(m, params(b, a)...))
	want(t, synchronize(t, c), cuda.Success)
}
