package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
)

// arbitrated is an accelerator with engines that an Arbiter grants.
type arbitrated struct {
	*Arbiter
	memory *Memory
}

// arbitrate starts the arbiter of an accelerator.
func arbitrate(t *testing.T, m *Memory) *arbitrated {
	t.Helper()
	a := NewArbiter(m, nil)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return &arbitrated{a, m}
}

// domain adds a domain that always has the turn.
func (a *arbitrated) domain(t *testing.T) (*Engines, *Party) {
	t.Helper()
	e, err := CreateEngines()
	if err != nil {
		t.Fatal(err)
	}
	d := a.Add(e, "")
	a.SetTurn(d, true, true)
	t.Cleanup(func() { a.Remove(d); e.Close() })
	return e, d
}

// stepped is an Arbiter that the test steps, at times that the test sets.
type stepped struct {
	*Arbiter
	t         *testing.T
	now       int64
	clock     atomic.Int64 // of the workers
	overtaken []*Party
	stop      atomic.Bool // ends all waits
	waits     sync.WaitGroup
}

func newStepped(t *testing.T) *stepped {
	m, err := Create(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s := &stepped{t: t, now: Now()}
	s.clock.Store(s.now)
	s.Arbiter = NewArbiter(m, func(d *Party, k Token) { s.overtaken = append(s.overtaken, d) })
	return s
}

// tenant is a domain at a stepped arbiter with one worker.
type tenant struct {
	*Party
	w   *Worker
	got chan struct{} // has an element when an Acquire has returned
}

func (s *stepped) tenant(turn bool) *tenant {
	s.t.Helper()
	e, err := CreateEngines()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { e.Close() })
	d := s.Add(e, "")
	s.SetTurn(d, turn, turn)
	n := &tenant{d, s.worker(e), make(chan struct{}, 1)}
	s.t.Cleanup(func() { s.stop.Store(true); n.w.Nudge(Compute); s.waits.Wait() })
	return n
}

func (s *stepped) worker(e *Engines) *Worker {
	s.t.Helper()
	w, err := s.memory.Register(e, s.clock.Load)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Close)
	return w
}

func (n *tenant) wants() bool { return n.Engines.l.grants[Compute].want.Load() != 0 }
func (n *tenant) has() bool   { return n.Engines.l.grants[Compute].load().mode() == present }

// ask has a tenant's worker acquire the engine, and waits until the arbiter can observe the request.
func (s *stepped) ask(n *tenant) {
	s.t.Helper()
	s.acquire(n.w, n.got)
	eventually(s.t, "the engine is wanted", n.wants)
}

// acquire has a worker acquire the engine, and send to got when it has.
func (s *stepped) acquire(w *Worker, got chan<- struct{}) {
	s.waits.Go(func() {
		if _, ok := w.Acquire(Compute, &s.stop); ok {
			got <- struct{}{}
		}
	})
}

// after steps the arbiter after a time.
func (s *stepped) after(ns int64) {
	s.now += ns
	s.clock.Store(s.now)
	s.step(s.now)
}

// gets waits for an Acquire that the arbiter has granted.
func (s *stepped) gets(n *tenant) {
	s.t.Helper()
	if !n.has() {
		s.t.Fatal("the engine was not granted")
	}
	<-n.got
}

// Engines go to domains in the order of their requests, one at a time, and stay where they are while no other domain
// requests them.
func TestFirstComeFirstGranted(t *testing.T) {
	s := newStepped(t)
	a, b, c := s.tenant(true), s.tenant(true), s.tenant(true)
	s.ask(a)
	s.after(1)
	s.gets(a)
	a.w.Release(Compute)
	for range 100 {
		a.w.Acquire(Compute, nil) // without a new grant
		a.w.Release(Compute)
	}
	a.w.Acquire(Compute, nil)
	s.ask(c)
	s.after(1)
	s.ask(b)
	s.after(1)
	if b.has() || c.has() || !a.has() {
		t.Error("the engine was taken from its user")
	}
	s.after(quantum)
	a.w.Release(Compute)
	s.after(1)
	s.gets(c)
	if a.has() || b.has() {
		t.Error("two domains have the engine")
	}
	c.w.Release(Compute)
	s.after(quantum)
	s.gets(b)
	b.w.Release(Compute)
}

// A domain continues short work for a quantum after another one requests the engine, and no longer.
func TestQuantum(t *testing.T) {
	s := newStepped(t)
	a, b := s.tenant(true), s.tenant(true)
	second := s.worker(a.Engines)
	s.ask(a)
	s.after(1)
	s.gets(a)
	s.ask(b)
	s.after(1)
	other := make(chan struct{}, 1)
	acquire := func() {
		s.acquire(second, other)
		tokens := &a.Engines.l.tokens[Compute]
		eventually(t, "another of its workers waits", func() bool { return tokens.tail.Load()-tokens.serving.Load() == 2 })
	}
	acquire()
	s.clock.Add(quantum - 1)
	a.w.Release(Compute)
	<-other
	if !a.has() {
		t.Error("given back before its time")
	}
	s.acquire(a.w, a.got)
	tokens := &a.Engines.l.tokens[Compute]
	eventually(t, "another of its workers waits", func() bool { return tokens.tail.Load()-tokens.serving.Load() == 2 })
	s.clock.Add(1)
	second.Release(Compute)
	eventually(t, "given back", func() bool { return !a.has() })
	s.after(1)
	s.gets(b)
	b.w.Release(Compute)
	eventually(t, "wanted again", a.wants)
	s.after(grace)
	s.gets(a)
	a.w.Release(Compute)
}

// A domain that keeps an engine after its turn is overtaken, the sooner the more often it was, and is charged for the time for
// any contents of its page. In its turn it is not.
func TestOvertaken(t *testing.T) {
	for name, forge := range map[string]func(*Engines){
		"late": func(*Engines) {},
		"forged": func(e *Engines) { // as if no domain had held anything
			tokens := &e.l.tokens[Compute]
			n := tokens.serving.Load()
			tokens.slot(n).word.Store(freeWord(n))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStepped(t)
			a, b := s.tenant(true), s.tenant(true)
			patience := int64(grace)
			for round := range 3 {
				s.ask(a)
				s.after(1)
				s.gets(a)
				s.ask(b)
				forge(a.Engines)
				s.after(1)
				s.after(1e9)
				if !a.has() || a.often != round {
					t.Fatal("overtaken in its turn")
				}
				before := a.Engines.extra[Compute].Load()
				s.SetTurn(a.Party, false, false)
				s.after(1)
				s.after(patience - 1)
				if !a.has() {
					t.Fatal("overtaken before the grace is over")
				}
				s.after(2)
				if a.has() || a.often != round+1 || len(s.overtaken) != 1 {
					t.Fatal("not overtaken, or told more than once")
				}
				s.gets(b)
				extra := a.Engines.extra[Compute].Load() - before
				if want := int64(1e9) + patience; name == "forged" && (extra < want-1e6 || extra > want+1e6) || name == "late" && extra != 0 {
					t.Errorf("charged %d ns beyond what its page says", extra)
				}
				a.Engines.Sweep()
				if name == "late" {
					a.w.Release(Compute)
				} else {
					a.Engines.renew(Compute, 100, s.now) // as the daemon mends it
				}
				b.w.Release(Compute)
				s.SetTurn(a.Party, true, true)
				patience /= 2
			}
		})
	}
}

// The time for which a domain may keep an engine in its turn is bounded by the kernel timeout, if there is one.
func TestLimitOfTurn(t *testing.T) {
	s := newStepped(t)
	a, b := s.tenant(true), s.tenant(true)
	a.SetLimit(4e9)
	s.ask(a)
	s.after(1)
	s.gets(a)
	s.ask(b)
	s.after(1)
	s.after(4e9 - 1)
	if !a.has() {
		t.Error("overtaken before its limit")
	}
	s.after(1)
	s.gets(b)
	b.w.Release(Compute)
	a.w.Release(Compute)
}

// Work without the turn gets an engine that is free, or that another domain leaves unused for a while.
func TestWithoutTurn(t *testing.T) {
	s := newStepped(t)
	a, b, c := s.tenant(true), s.tenant(false), s.tenant(false)
	s.ask(a)
	s.after(1)
	s.gets(a)
	a.w.Release(Compute)
	s.ask(b)
	s.after(1)
	s.after(lendAfter - 1)
	if b.has() {
		t.Error("the engine was taken in the turn of its domain, at once")
	}
	s.after(1)
	s.gets(b)
	s.ask(c)
	s.after(1e9)
	if c.has() {
		t.Error("two have the engine")
	}
	s.ask(a)
	s.after(1)
	b.w.Release(Compute)
	s.after(quantum)
	s.gets(a)
	a.w.Release(Compute)
}

// The only domain that has the turn is granted the engine that it has used before, before its request.
func TestGrantedAhead(t *testing.T) {
	s := newStepped(t)
	a, b := s.tenant(false), s.tenant(true)
	for _, n := range []*tenant{a, b} {
		s.ask(n)
		s.after(quantum)
		s.after(lendAfter)
		s.gets(n)
		n.w.Release(Compute)
	}
	s.SetTurn(b.Party, false, false)
	s.SetTurn(a.Party, true, true)
	s.after(1)
	if !a.has() || b.has() {
		t.Error("the engine is not where the turn is")
	}
	s.ask(b)
	s.after(1)
	s.after(lendAfter)
	s.gets(b) // it was idle
	s.after(1)
	if !b.has() {
		t.Error("taken back though nobody asks for it")
	}
	b.w.Release(Compute)
}

// A grant that is revoked before its use is requested again.
func TestGrantTooLate(t *testing.T) {
	s := newStepped(t)
	a, b := s.tenant(true), s.tenant(true)
	s.ask(a)
	s.ask(b)
	s.after(1)
	first, second := a, b
	if b.has() {
		first, second = b, a
	}
	first.Engines.l.grants[Compute].word.Store(uint64(absent)) // as take does, before the worker has woken
	select {
	case <-first.got: // it has
		first.w.Release(Compute)
	default:
		eventually(t, "wanted again", func() bool { return first.wants() || len(first.got) > 0 })
	}
	s.after(1)
	s.gets(second)
	second.w.Release(Compute)
}

// Without a daemon domains take engines by themselves. The next daemon revokes an engine that several domains hold.
func TestNoArbiter(t *testing.T) {
	s := newStepped(t)
	a, b := s.tenant(true), s.tenant(true)
	for _, n := range []*tenant{a, b} {
		n.Engines.l.granting.Store(s.now - 1)
		n.w.Acquire(Compute, nil)
	}
	next := newStepped(t)
	var parties []*Party
	for _, n := range []*tenant{a, b} {
		d := next.Add(n.Engines, "")
		next.SetTurn(d, true, true)
		parties = append(parties, d)
	}
	if n := len(next.holders[Compute]); n != 2 {
		t.Fatalf("%d domains have the engine, want both", n)
	}
	next.after(1)
	a.w.Release(Compute)
	b.w.Release(Compute)
	next.after(quantum)
	if n := len(next.holders[Compute]); n != 0 || a.has() || b.has() {
		t.Errorf("%d domains have the engine after all have released it", n)
	}
	next.Remove(parties[0])
	if len(next.all) != 1 {
		t.Error("it is still there")
	}
}

// No two processes of any domains ever hold an engine at once.
func TestNeverTwoInside(t *testing.T) {
	f := newFixture(t, Options{})
	a := arbitrate(t, f.memory)
	var ps []*process
	for range 3 {
		e, _ := a.domain(t)
		for range 2 {
			ps = append(ps, f.startIn(e))
		}
	}
	for _, p := range ps {
		p.send("stress")
	}
	for _, p := range ps {
		p.expect("done")
	}
	if n := le(f.mem); n != uint32(len(ps))*2000 {
		t.Fatalf("%d increments, want %d", n, len(ps)*2000)
	}
}

// A domain without the turn that leaves its grants unused keeps other domains waiting for less time after each.
func TestGrantNotUsed(t *testing.T) {
	s := newStepped(t)
	h, v := s.tenant(false), s.tenant(false)
	var lost int64
	for range 10 {
		h.Engines.l.grants[Compute].want.Store(1)
		h.Engines.l.tokens[Compute].tail.Store(h.Engines.l.tokens[Compute].serving.Load() + 1) // as if one waited
		s.after(1)
		if !h.has() {
			t.Fatal("the engine is free, and was not granted")
		}
		s.SetTurn(v.Party, true, true)
		s.ask(v)
		for s.after(1); !v.has(); s.after(1e6) {
			lost += 1e6
		}
		s.gets(v)
		v.w.Release(Compute)
		s.SetTurn(v.Party, false, false)
		s.after(1)
	}
	if lost > 200e6 {
		t.Errorf("%d ms are lost in ten turns", lost/1e6)
	}
}

// A domain that took an engine while no daemon granted gives it back when another domain has it.
func TestTakenMeanwhile(t *testing.T) {
	s := newStepped(t)
	a, b := s.tenant(true), s.tenant(true)
	a.Engines.l.granting.Store(s.now - 1)
	a.w.Acquire(Compute, nil) // no daemon grants
	s.ask(b)
	s.after(1)
	s.gets(b)
	if a.has() || len(s.holders[Compute]) != 1 {
		t.Errorf("%d domains have the engine, and one that was not granted it: %v", len(s.holders[Compute]), a.has())
	}
	a.w.Release(Compute)
	b.w.Release(Compute)
}
