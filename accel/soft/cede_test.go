package soft

import (
	"encoding/binary"
	"testing"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// flips is a Turn that ends and begins again between any two calls of Held.
type flips struct {
	*turns
	flip bool // guarded by mu
}

func (t *flips) Held(accel.Class) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	held := t.held
	t.held = held != t.flip
	return held
}

func (t *flips) set(held, flip bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held, t.flip = held, flip
}

// A kernel that has ceded its core for a kernel that may not join after all gets the core back.
func TestCededForNothing(t *testing.T) {
	turn := &flips{turns: newTurns(true)}
	_, c := open(t, func(c *Config) { c.Turn = turn })
	began, cedes, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	polls := goModule(c, 0, func(r *run) *fault {
		began <- struct{}{}
		<-cedes
		r.Cede()
		ended <- struct{}{}
		return nil
	})
	for range 2 {
		submit(t, c, stream(t, c, 1), launchOf(polls))
		<-began
	}
	submit(t, c, stream(t, c, 1), launchOf(goModule(c, 0, func(*run) *fault { return nil })))
	for range 2 {
		turn.set(true, true) // held when the core is ceded, but not when a member is to be woken
		cedes <- struct{}{}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("a kernel does not get its core back")
			c.Destroy(func() {})
			close(cedes)
			return
		}
	}
	turn.set(true, false)
	want(t, synchronize(t, c), cuda.Success)
}

// Cores that a kernel doesn't need when it joins go to those that wait for one.
func TestCededAndLeft(t *testing.T) {
	turn := newTurns(true)
	_, c := open(t, func(c *Config) { c.Turn = turn })
	began, cede, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	polls := goModule(c, 0, func(r *run) *fault {
		began <- struct{}{}
		<-cede
		r.Cede()
		close(end)
		return nil
	})
	submit(t, c, stream(t, c, 1), launchOf(polls))
	<-began
	turn.give(false)
	late := false
	submit(t, c, stream(t, c, 1), launchOf(goModule(c, 0, func(*run) *fault {
		select {
		case <-end:
		case <-time.After(time.Minute):
			late = true
		}
		return nil
	})))
	turn.give(true)
	close(cede)
	want(t, synchronize(t, c), cuda.Success)
	if late {
		t.Error("a kernel waits for a core while one is free")
	}
}

// A kernel that watches a clock is not executed by its submitter, however brief launches of its shape have been.
func TestClockIsNotBrief(t *testing.T) {
	_, c := open(t, nil)
	m := load(t, c, header+`
.visible .entry delay(.param .u64 ticks)
{ .reg .u64 %n, %v, %t; .reg .pred %p;
ld.param.u64 %n, [ticks];
mov.u64 %v, %clock64;
again:
mov.u64 %t, %clock64;
sub.u64 %t, %t, %v;
setp.lt.u64 %p, %t, %n;
@%p bra again;
ret; }`)
	f := &m.functions[0]
	if err := f.code.prepare(); err != nil {
		t.Fatal(err)
	}
	if f.code.independent() {
		t.Error("it waits for nothing")
	}
}

// Kernels that wait, for ever or for a while, end when their contexts are destroyed or the watchdog ends them, at any time:
// while they have ceded their cores, and while their turn is over.
func TestCedingKernelsEnd(t *testing.T) {
	rnd := seed(t)
	turn := newTurns(true)
	page := newPage(t, engine.Options{Memory: 64 << 20})
	d, _ := open(t, func(c *Config) {
		page.share(c)
		c.Cores, c.Turn, c.KernelTimeout = 3, turn, (60 * time.Millisecond).Nanoseconds()
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for held := true; ; held = !held {
			select {
			case <-stop:
				turn.give(true)
				return
			case <-time.After(4 * time.Millisecond):
				turn.give(held)
			}
		}
	}()
	_, other := sharing(t, page, nil)
	const words = 40
	launch := func(m *Module, at uint64, number, awaited uint32) accel.Launch {
		params := binary.LittleEndian.AppendUint64(nil, at)
		params = binary.LittleEndian.AppendUint32(params, number)
		params = binary.LittleEndian.AppendUint32(params, awaited)
		return launchOf(m, params...)
	}
	otherModule, otherAt := load(t, other, gathering), alloc(t, other, 4*words)
	for range 25 {
		c := context(t, d)
		m, at := load(t, c, gathering), alloc(t, c, 4*words)
		for n := range uint32(3 + rnd.IntN(20)) {
			l := launch(m, at, n, uint32(rnd.IntN(12))) // for all, and maybe for ever
			if rnd.IntN(4) != 0 {
				l = launch(m, at, n, uint32(rnd.IntN(20_000_000)))
				l.Function = 1
			}
			l.Grid[0] = uint32(1 + rnd.IntN(5))
			if c.Submit(stream(t, c, 1), l, func(cuda.Result, accel.Usage) {}) != cuda.Success { // the watchdog has ended an earlier one
				break
			}
		}
		submit(t, other, other.DefaultStream(), launch(otherModule, otherAt, 0, 0))
		time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
		gone := make(chan struct{})
		c.Destroy(func() { close(gone) })
		select {
		case <-gone:
		case <-time.After(20 * time.Second):
			t.Fatal("a context is not destroyed within 20 s")
		}
	}
	close(stop)
	<-stopped
	want(t, synchronize(t, other), cuda.Success)
	e := d.executors[engine.Compute]
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.waits) != 0 || len(e.crew) != 0 {
		t.Errorf("%d kernels and %d waits for cores are left", len(e.crew), len(e.waits))
	}
}
