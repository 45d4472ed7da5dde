package gate

import (
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/callbuf"
)

// Member is a worker's side of a Page. Try, Acquire and Calls are for one
// goroutine, the poller; Finish and the memory methods for any.
type Member struct {
	page  *Page
	bell  *Bell
	index int
	slot  *slot
	stop  atomic.Bool

	mu sync.Mutex // held with the Page's lock, which names a slot and not a goroutine
}

// Join makes this process the worker of a slot.
func Join(p *Page, b *Bell, index int) *Member {
	m := &Member{page: p, bell: b, index: index, slot: &p.at.slot[index]}
	m.slot.dropHolds()
	m.slot.pid.Store(uint32(os.Getpid()))
	m.slot.idleSince.Store(Now())
	m.slot.state.Store(slotJoined)
	return m
}

// Ticket is a request's leave to be submitted; give it to Finish.
type Ticket struct {
	class      Class
	generation uint32
	lease      *lease // that it was taken from; nil: nothing was counted
	budget     bool
	requests   bool
	predicted  int64
	spent      int64 // what Spend was told of; atomic until Finish

	Name string // of the kernel, for notes; the caller sets it before Spend and Finish
}

// Verdict is what Try found.
type Verdict uint8

const (
	Admitted Verdict = iota
	Closed           // no lease for the class, or it is used up
	Full             // enough is in flight
)

// limitPatience is how long a request waits for room among others of its domain:
// they may be waiting for what comes after it, and smaller ones fit in before it
// again and again.
const limitPatience = 50 * time.Millisecond

// Try takes leave to submit one request of a class that will hold its engine for
// predicted ns, if there is any to be had now. unbounded leaves the in-flight
// limit out.
func (m *Member) Try(c Class, predicted int64, unbounded bool) (t Ticket, v Verdict) {
	h := &m.page.at.header
	t = Ticket{class: c, generation: h.generation.Load(), predicted: max(predicted, 1)}
	now := Now()
	if !h.open(c, now) {
		return t, Closed
	}
	if limit := h.inFlightLimit.Load(); limit > 0 && !unbounded && !m.fits(c, t.predicted, limit) {
		return t, Full
	}
	if !h.take(&t, now) {
		return t, Closed
	}
	m.slot.busy(now)
	m.slot.admitted[c].Add(1)
	m.slot.inFlight[c].Add(t.predicted)
	m.slot.requests[c].Add(1)
	return t, Admitted
}

// open says whether the gate is open for a class; its lease may be used up.
func (h *header) open(c Class, now int64) bool {
	return h.leases[0].open(now) || h.leases[1+c].open(now) || lost(h.aliveUntil.Load(), now)
}

func (l *lease) open(now int64) bool { return l.terms.Load() != 0 && now < l.deadline.Load() }

// leased reports whether the domain has a lease for a class.
func (h *header) leased(c Class, now int64) bool {
	return h.leases[0].open(now) || h.leases[1+c].open(now)
}

// take takes a request off the lease that it is for, if there is enough left.
func (h *header) take(t *Ticket, now int64) bool {
	return h.leases[0].take(t, now) || h.leases[1+t.class].take(t, now) || lost(h.aliveUntil.Load(), now)
}

func (l *lease) take(t *Ticket, now int64) bool {
	terms := l.terms.Load()
	if terms == 0 || now >= l.deadline.Load() {
		return false
	}
	budget, requests := terms&termBudget != 0, terms&termRequests != 0
	if budget && !take(&l.budget, t.predicted) {
		return false
	}
	if requests && !take(&l.requests, 1) {
		if budget {
			l.budget.Add(t.predicted)
		}
		return false
	}
	t.lease, t.budget, t.requests = l, budget, requests
	return true
}

// lost says whether the daemon has been silent for longer than it promised.
func lost(aliveUntil, now int64) bool { return aliveUntil != 0 && now > aliveUntil }

// depends notes whether what is in flight may wait for its guest.
func (s *slot) depends(yes bool) {
	v := uint32(0)
	if yes {
		v = 1
	}
	if s.dependent.Load() != v {
		s.dependent.Store(v)
	}
}

// fits says whether work may join what is in flight: always, if nothing is. What waits for
// the guests of other workers isn't on the accelerator, and may stay so for long.
func (m *Member) fits(c Class, predicted, limit int64) bool {
	var sum int64
	taken := m.page.at.taken()
	for i := range taken {
		if s := &taken[i]; s == m.slot || s.dependent.Load() == 0 {
			sum += s.inFlight[c].Load()
		}
	}
	return sum <= 0 || sum+predicted <= limit
}

// take takes n from what is left, if anything is.
func take(left *atomic.Int64, n int64) bool {
	for {
		have := left.Load()
		if have <= 0 {
			return false
		}
		if left.CompareAndSwap(have, have-n) {
			return true
		}
	}
}

// defaultSlice bounds each sleep of a request that waits.
const defaultSlice = 100 * time.Millisecond

// Between is what a waiting request's owner does before each sleep. It returns
// unbounded as for Try, and how long to sleep at most.
type Between func() (unbounded bool, slice time.Duration)

// About is what is known of a request besides its class and how long it will take.
type About struct {
	Key   uint64 // of 63 bits: the same for requests that cost about the same; 0: unknown
	Known bool   // the like was measured before
	Size  uint64 // bytes that it copies, or threads that it starts; 0: unknown
}

// Acquire is Try until it succeeds. A closed gate is announced to the daemon
// once, with what about then says of the request (nil: nothing). It returns
// ErrStopped after Stop. unbounded also says that what is in flight may wait for
// the worker's guest.
func (m *Member) Acquire(c Class, predicted int64, unbounded bool, between Between, about func() About) (Ticket, error) {
	m.slot.depends(unbounded)
	t, v := m.Try(c, predicted, unbounded)
	if v == Admitted {
		m.waited(0)
		return t, nil
	}
	start := Now()
	m.slot.tell(predicted, about)
	m.slot.pending.Store(1 + uint32(c))
	m.slot.standing.Store(start)
	defer func() {
		m.slot.standing.Store(0)
		m.slot.stood.Add(max(Now()-start, 0))
		m.slot.pending.Store(0)
	}()
	m.slot.busy(start)
	announced := false
	var full int64 // since when there has been no room; 0: there was, or the gate was closed
	for {
		if m.stop.Load() {
			m.slot.idleSince.CompareAndSwap(0, Now())
			return t, ErrStopped
		}
		if v == Closed && !announced {
			announced = true
			m.slot.arrived.Add(1)
			m.bell.Ring()
		}
		slice := defaultSlice
		if between != nil {
			unbounded, slice = between()
			m.slot.depends(unbounded)
		}
		if v == Closed {
			full = 0
			m.waitOpen(t.generation, slice)
		} else {
			if full == 0 {
				full = Now()
			}
			unbounded = m.waitEnded(c, predicted, full, slice) || unbounded
		}
		if t, v = m.Try(c, predicted, unbounded); v == Admitted {
			m.waited(Now() - start)
			return t, nil
		}
	}
}

// tell writes down what is known of the request that is going to wait.
func (s *slot) tell(predicted int64, about func() About) {
	var a About
	if about != nil {
		a = about()
	}
	like := a.Key << 1
	if a.Known {
		like |= 1
	}
	s.predicted.Store(predicted)
	s.like.Store(like)
	s.size.Store(a.Size)
}

// waitOpen sleeps until the lease changes, the daemon is lost, or a slice is over.
func (m *Member) waitOpen(generation uint32, slice time.Duration) {
	if alive := m.page.at.aliveUntil.Load(); alive != 0 {
		slice = min(slice, max(time.Duration(alive-Now())+time.Millisecond, 0))
	}
	callbuf.FutexWait(&m.page.at.generation, generation, slice)
}

// waitEnded sleeps until work of the domain ends. It says whether there has been
// no room since a time so long ago that it should be waited for no more.
func (m *Member) waitEnded(c Class, predicted, since int64, slice time.Duration) (enough bool) {
	l := m.page.at
	l.limitWaiters.Add(1)
	defer l.limitWaiters.Add(^uint32(0))
	seen := l.released.Load()
	limit := l.inFlightLimit.Load()
	for l.released.Load() == seen && !m.fits(c, max(predicted, 1), limit) {
		left := limitPatience - time.Duration(Now()-since)
		if left <= 0 {
			return true
		}
		if m.stop.Load() {
			return false
		}
		callbuf.FutexWait(&l.released, seen, min(left, slice))
		if slice < left {
			return false
		}
	}
	return false
}

// turnSlice bounds each sleep of AwaitTurn, which nobody wakes for its stop.
const turnSlice = 10 * time.Millisecond

// HasTurn reports whether admitted work of a class may hold its engine now: while the gate is open and its budget, if there is one,
// is not used up, and after that until the domain has used as much as may be in flight. So a turn ends in time even if the daemon
// is late. Any goroutine may call it.
func (m *Member) HasTurn(c Class) bool {
	h := &m.page.at.header
	limit := h.inFlightLimit.Load()
	return h.inTurn(c, Now()) || limit == 0 || h.overrun[c].Load() < limit
}

// inTurn reports whether the gate is open for a class, and the budget of the lease in force is not used up. What is
// only reserved counts as not used.
func (h *header) inTurn(c Class, now int64) bool {
	return lost(h.aliveUntil.Load(), now) || h.leases[0].inTurn(now) || h.leases[1+c].inTurn(now)
}

func (l *lease) inTurn(now int64) bool {
	return l.open(now) && (l.terms.Load()&termBudget == 0 || l.used.Load() < l.lent.Load())
}

// AwaitTurn blocks until HasTurn, Stop, or stop returns true. Any goroutine may call it, before admitted work of a class takes an
// engine and, where a device can stop what it executes, after that has given the engine back. The daemon sees the work wait as it
// sees a request at the gate.
func (m *Member) AwaitTurn(c Class, stop func() bool) {
	held, since := false, int64(0)
	for {
		generation := m.page.at.generation.Load()
		if m.HasTurn(c) || m.stop.Load() || stop() {
			break
		}
		if !held {
			held, since = true, Now()
			m.slot.held[c].Add(1)
			m.bell.Ring()
		}
		m.waitOpen(generation, turnSlice)
	}
	if held {
		m.slot.stood.Add(max(Now()-since, 0))
		m.slot.held[c].Add(^uint32(0))
	}
}

// Queued notes that admitted work of a class waits for its engine behind other work, with 1, and with -1 that it no longer does.
func (m *Member) Queued(c Class, by int) { m.slot.queued[c].Add(uint32(by)) }

// Spend charges a part of what a request uses, which may take as long as many: so the domain is charged, and what else it has to
// do waits for its turn, while the request goes on. Any goroutine may call it, before Finish, which receives the sum of all.
func (m *Member) Spend(t *Ticket, u accel.Usage) {
	ns := max(u.End-u.Start, 0)
	m.charge(ClassOf(u.Class), u, ns, Now(), t.Name)
	h := &m.page.at.header
	over := atomic.AddInt64(&t.spent, ns) - t.predicted
	l, taken := h.budgeted(t.class), ns // the request goes on under the lease in force now, which had nothing reserved for it
	if h.generation.Load() == t.generation {
		if !t.budget {
			return
		}
		l, taken = t.lease, min(over, ns)
	}
	if l != nil && taken > 0 && l.budget.Add(-taken) <= 0 {
		m.bell.Ring()
	}
}

// budgeted returns the lease with a budget that is in force for a class, or nil.
func (h *header) budgeted(c Class) *lease {
	for _, l := range [...]*lease{&h.leases[0], &h.leases[1+c]} {
		if l.terms.Load()&termBudget != 0 {
			return l
		}
	}
	return nil
}

// charge notes a use of an engine, by the kernel of a name if it has one.
func (m *Member) charge(c Class, u accel.Usage, ns, now int64, name string) {
	h := &m.page.at.header
	if u.Class < accel.NumClasses {
		m.slot.used[u.Class].Add(ns)
	}
	if h.noting.Load() != 0 && ns > 0 {
		m.page.at.reel[m.index].write(u, name)
	}
	if !h.inTurn(c, now) {
		h.overrun[c].Add(ns)
	} else if l := h.budgeted(c); l != nil {
		l.used.Add(ns)
	}
}

// Finish ends a request: u says what it used, what Spend was told of included. It returns
// what was reserved for it and wakes whoever waits for room.
func (m *Member) Finish(t Ticket, u accel.Usage) {
	s := m.slot
	measured := max(u.End-u.Start, 0)
	rest := max(measured-t.spent, 0)
	u.Start = u.End - rest
	h, now := &m.page.at.header, Now()
	if rest > 0 {
		m.charge(t.class, u, rest, now, t.Name)
	}
	if u.Class < accel.NumClasses {
		s.ended[t.class].Add(1)
	}
	if t.budget && h.generation.Load() == t.generation {
		t.lease.budget.Add(max(t.predicted, t.spent) - measured)
	}
	s.inFlight[t.class].Add(-t.predicted)
	s.requests[t.class].Add(-1)
	m.page.at.wakeLimitWaiters()
	m.idle(now)
	m.dry(t.class)
	// The daemon decides anew when what it lent has been used, not at every request
	// of a run, since waking it takes a processor from who executes them.
	spent := t.requests && (!h.open(t.class, now) || t.lease.requests.Load() <= 0 && s.requests[t.class].Load() == 0)
	if spent || t.budget && t.lease.budget.Load() <= 0 {
		m.bell.Ring()
	}
}

// busy notes that something is pending or in flight.
func (s *slot) busy(now int64) {
	if s.idleSince.Load() == 0 {
		return
	}
	if since := s.idleSince.Swap(0); since != 0 {
		s.idle.Add(max(now-since, 0))
		s.pauses.Add(1)
	}
}

// idle notes that nothing is pending or in flight since then, and tells the daemon if it asked.
func (m *Member) idle(since int64) {
	s := m.slot
	if s.requests[Compute].Load() != 0 || s.requests[Copy].Load() != 0 || s.pending.Load() != 0 {
		return
	}
	s.idleSince.Store(since)
	if s.requests[Compute].Load() != 0 || s.requests[Copy].Load() != 0 || s.pending.Load() != 0 {
		s.idleSince.CompareAndSwap(since, 0) // the poller was quicker
		return
	}
	if w := &m.page.at.watch; w.Load() != 0 && w.CompareAndSwap(1, 0) {
		m.bell.Ring()
	}
}

// dry tells the daemon, if it asked, that nothing of a class is pending or in flight,
// where the class has a lease to itself: others could have its engines now, whatever
// the other class still does.
func (m *Member) dry(c Class) {
	s, h := m.slot, &m.page.at.header
	if s.requests[c].Load() != 0 || s.pending.Load() == 1+uint32(c) || h.leases[1+c].terms.Load() == 0 {
		return
	}
	if h.watch.Load() != 0 && h.watch.CompareAndSwap(1, 0) {
		m.bell.Ring()
	}
}

func (l *layout) wakeLimitWaiters() {
	if l.limitWaiters.Load() != 0 {
		l.released.Add(1)
		callbuf.FutexWake(&l.released, 1<<30)
	}
}

// Stop calls off a wait that Acquire or Prepare is in, and every later one.
func (m *Member) Stop() {
	m.stop.Store(true)
	callbuf.FutexWake(&m.page.at.generation, 1<<30)
	callbuf.FutexWake(&m.page.at.released, 1<<30)
	callbuf.FutexWake(&m.page.at.prepared, 1<<30)
}

// Calls counts calls of the guest.
func (m *Member) Calls(n uint64) { m.slot.calls.Add(n) }

// Called is how many calls were counted. Any goroutine may ask.
func (m *Member) Called() uint64 { return m.slot.calls.Load() }

func (m *Member) waited(ns int64) {
	m.slot.waits[min(bits.Len64(uint64(ns)), WaitBuckets-1)].Add(1)
}
