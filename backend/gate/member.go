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

// Member is a worker's side of a Page. One goroutine, the poller, calls Try, Acquire, Calls, Prepare and the methods
// about the handling slot; any goroutine may call Finish and the memory methods.
type Member struct {
	page  *Page
	bell  *Bell
	index int
	slot  *slot
	stop  atomic.Bool

	place   *atomic.Uint32 // the poller's handling slot; nil: it has none
	handles int64          // since when

	mu sync.Mutex // held with the Page's lock, which identifies a slot and not a goroutine
}

// Join makes this process the worker of a slot and returns its Member.
func Join(p *Page, b *Bell, index int) *Member {
	m := &Member{page: p, bell: b, index: index, slot: &p.at.slot[index]}
	m.slot.dropHolds()
	m.slot.pid.Store(uint32(os.Getpid()))
	m.slot.idleSince.Store(Now())
	m.slot.state.Store(slotJoined)
	return m
}

// Ticket is the admission of one request. The worker passes it to Finish when the request ends.
type Ticket struct {
	class      Class
	generation uint32
	lease      *lease // that the request was charged to; nil: none
	budget     bool
	requests   bool
	predicted  int64
	spent      int64 // sum of the Spend calls; atomic until Finish

	Name string // of the kernel, for trace records; the caller sets it before Spend and Finish
}

// Verdict is the result of Try.
type Verdict uint8

const (
	Admitted Verdict = iota
	Closed           // no lease for the class, or the lease is used up
	Full             // the in-flight limit is reached
)

// limitPatience bounds the time that a request waits for room below the in-flight limit: the in-flight requests may
// depend on a later one, and smaller requests of the domain may be admitted ahead of it repeatedly.
const limitPatience = 50 * time.Millisecond

// Try admits one request of a class, predicted to hold its engine for that many ns, if the gate and the in-flight limit
// allow it now. unbounded skips the in-flight limit.
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

// open reports whether the gate is open for a class; its lease may be used up.
func (h *header) open(c Class, now int64) bool {
	return h.leases[0].open(now) || h.leases[1+c].open(now) || lost(h.aliveUntil.Load(), now)
}

func (l *lease) open(now int64) bool { return l.terms.Load() != 0 && now < l.deadline.Load() }

// leased reports whether the domain has a lease for a class.
func (h *header) leased(c Class, now int64) bool {
	return h.leases[0].open(now) || h.leases[1+c].open(now)
}

// take charges a request to the lease for its class and reports whether enough was left.
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

// lost reports whether the daemon has missed its promised heartbeat.
func lost(aliveUntil, now int64) bool { return aliveUntil != 0 && now > aliveUntil }

// depends records whether the work in flight may depend on its guest.
func (s *slot) depends(yes bool) {
	v := uint32(0)
	if yes {
		v = 1
	}
	if s.dependent.Load() != v {
		s.dependent.Store(v)
	}
}

// fits reports whether work may join the work in flight; it always may if none is in flight. Work of other workers that
// depends on their guests does not count: it is not on the accelerator, and may stay off it for long.
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

// take subtracts n from left if left is positive, and reports whether it did.
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

// defaultSlice bounds each sleep of a waiting request.
const defaultSlice = 100 * time.Millisecond

// Between is called before each sleep of a waiting request. It returns unbounded as for Try, and the bound on the
// sleep.
type Between func() (unbounded bool, slice time.Duration)

// About holds the properties of a request besides its class and predicted time.
type About struct {
	Key   uint64 // 63 bits: equal for requests of about equal cost; 0: unknown
	Known bool   // a similar request was measured before
	Size  uint64 // bytes that it copies, or threads that it starts; 0: unknown
}

// Acquire blocks until the request is admitted, as by Try. It announces a closed gate to the daemon once, with the
// properties that about returns at that time (nil: none). It returns ErrStopped after Stop. unbounded also marks the
// work in flight as possibly dependent on the worker's guest. A worker that waited has no handling slot afterwards.
func (m *Member) Acquire(c Class, predicted int64, unbounded bool, between Between, about func() About) (Ticket, error) {
	m.slot.depends(unbounded)
	t, v := m.Try(c, predicted, unbounded)
	if v == Admitted {
		m.waited(0)
		return t, nil
	}
	m.Rest()
	start := Now()
	m.slot.publishHead(predicted, about)
	m.slot.pending.Store(1 + uint32(c))
	m.slot.standing.Store(start)
	defer func() {
		m.slot.standing.Store(0)
		m.slot.stood.Add(max(Now()-start, 0))
		m.slot.pending.Store(0)
	}()
	m.slot.busy(start)
	announced := false
	var full int64 // since when the domain has been at its in-flight limit; 0: it is below, or the gate was closed
	for {
		if m.stop.Load() {
			m.slot.idleSince.CompareAndSwap(0, Now())
			m.passOn()
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
			kind := toEnter(c)
			if slice < defaultSlice {
				kind = toEnterSoon(c)
			}
			m.waitOpen(t.generation, slice, kind)
		} else {
			if full == 0 {
				full = Now()
				m.passOn()
			}
			unbounded = m.waitEnded(c, predicted, full, slice) || unbounded
		}
		if t, v = m.Try(c, predicted, unbounded); v == Admitted {
			m.waited(Now() - start)
			return t, nil
		}
	}
}

// publishHead publishes the properties of the request that is about to wait.
func (s *slot) publishHead(predicted int64, about func() About) {
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

// passOn wakes another worker's thread that waits to enter. It is called where a wait at the gate ends without
// admission: a lease of single requests wakes no more threads than it admits.
func (m *Member) passOn() { callbuf.FutexWakeOf(&m.page.at.generation, 1, uint32(anyEnter)) }

// waitOpen blocks until there is a lease, the daemon is lost, or slice has passed.
func (m *Member) waitOpen(generation uint32, slice time.Duration, kind waits) {
	if alive := m.page.at.aliveUntil.Load(); alive != 0 {
		slice = min(slice, max(time.Duration(alive-Now())+time.Millisecond, 0))
	}
	callbuf.FutexWaitAs(&m.page.at.generation, generation, slice, uint32(kind))
}

// waitEnded blocks until work of the domain ends or slice has passed. It reports whether the limit has been reached for
// limitPatience since the time since, so that the request waits no more.
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

// turnSlice bounds each sleep of AwaitTurn: no wake-up announces that its stop returns true.
const turnSlice = 10 * time.Millisecond

// HasTurn reports whether admitted work of a class may hold its engine now: while the gate is open and the lease's
// budget, if any, is not used up, and after that until the domain has used the in-flight limit. A turn therefore ends
// in time even if the daemon is late. Any goroutine may call it.
func (m *Member) HasTurn(c Class) bool {
	h := &m.page.at.header
	limit := h.inFlightLimit.Load()
	return h.inTurn(c, Now()) || limit == 0 || h.overrun[c].Load() < limit
}

// inTurn reports whether the gate is open for a class and the budget of the lease in force is not used up. Reserved
// budget counts as unused.
func (h *header) inTurn(c Class, now int64) bool {
	return lost(h.aliveUntil.Load(), now) || h.leases[0].inTurn(now) || h.leases[1+c].inTurn(now)
}

func (l *lease) inTurn(now int64) bool {
	return l.open(now) && (l.terms.Load()&termBudget == 0 || l.used.Load() < l.lent.Load())
}

// AwaitTurn blocks until HasTurn, Stop, or stop returns true. It is called before admitted work of a class takes an
// engine and, where a device can preempt work, after preempted work has released the engine. The daemon counts the work
// as waiting, like a request at the gate. Any goroutine may call it.
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
		m.waitOpen(generation, turnSlice, forTurn(c))
	}
	if held {
		m.slot.stood.Add(max(Now()-since, 0))
		m.slot.held[c].Add(^uint32(0))
	}
}

// Queued adds by to the number of admitted requests of a class that wait for their engine behind other work: 1 when one
// begins to wait, -1 when it ends waiting.
func (m *Member) Queued(c Class, by int) { m.slot.queued[c].Add(uint32(by)) }

// Spend charges a part of a request's use while the request continues: one request may take as long as many, and its
// domain's other work then waits for its turn meanwhile. Any goroutine may call it, before Finish, which receives the
// sum of all parts.
func (m *Member) Spend(t *Ticket, u accel.Usage) {
	ns := max(u.End-u.Start, 0)
	m.charge(ClassOf(u.Class), u, ns, Now(), t.Name)
	h := &m.page.at.header
	over := atomic.AddInt64(&t.spent, ns) - t.predicted
	l, taken := h.budgeted(t.class), ns // the request continues under the lease in force now, which reserved nothing for it
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

// charge records a use of an engine, with the kernel's name if it has one.
func (m *Member) charge(c Class, u accel.Usage, ns, now int64, name string) {
	h := &m.page.at.header
	if u.Class < accel.NumClasses {
		m.slot.used[u.Class].Add(ns)
	}
	if h.noting.Load() != 0 && ns > 0 {
		m.page.at.traceRing[m.index].write(u, name)
	}
	if !h.inTurn(c, now) {
		h.overrun[c].Add(ns)
	} else if l := h.budgeted(c); l != nil {
		l.used.Add(ns)
	}
}

// Finish ends a request. u is the request's total use, with the parts charged by Spend. Finish returns the unused
// reservation to the lease and wakes the requests that wait for room.
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
	// The daemon decides again when a lease is used up, not at every request of a series: waking it takes a processor
	// from the workers that execute the requests.
	spent := t.requests && (!h.open(t.class, now) || t.lease.requests.Load() <= 0 && s.requests[t.class].Load() == 0)
	if spent || t.budget && t.lease.budget.Load() <= 0 {
		m.bell.Ring()
	}
}

// busy records that work is pending or in flight.
func (s *slot) busy(now int64) {
	if s.idleSince.Load() == 0 {
		return
	}
	if since := s.idleSince.Swap(0); since != 0 {
		s.idle.Add(max(now-since, 0))
		s.pauses.Add(1)
	}
}

// idle records that no work is pending or in flight since that time, and notifies the daemon if it set the drain watch.
func (m *Member) idle(since int64) {
	s := m.slot
	if s.requests[Compute].Load() != 0 || s.requests[Copy].Load() != 0 || s.pending.Load() != 0 {
		return
	}
	s.idleSince.Store(since)
	if s.requests[Compute].Load() != 0 || s.requests[Copy].Load() != 0 || s.pending.Load() != 0 {
		s.idleSince.CompareAndSwap(since, 0) // the poller submitted work meanwhile
		return
	}
	if w := &m.page.at.watch; w.Load() != 0 && w.CompareAndSwap(1, 0) {
		m.bell.Ring()
	}
}

// dry notifies the daemon, if it set the drain watch, that no work of a class is pending or in flight and the class has
// a lease of its own: other domains could use its engines now, whatever the other class still executes.
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

// Stop ends a wait in Acquire, AwaitTurn, Prepare or Handle, and every later one.
func (m *Member) Stop() {
	m.stop.Store(true)
	callbuf.FutexWake(&m.page.at.generation, 1<<30)
	callbuf.FutexWake(&m.page.at.released, 1<<30)
	callbuf.FutexWake(&m.page.at.prepared, 1<<30)
	callbuf.FutexWake(&m.page.at.handled, 1<<30)
}

// Calls adds n to the guest's call count.
func (m *Member) Calls(n uint64) { m.slot.calls.Add(n) }

// Called returns the guest's call count. Any goroutine may call it.
func (m *Member) Called() uint64 { return m.slot.calls.Load() }

func (m *Member) waited(ns int64) {
	m.slot.waits[min(bits.Len64(uint64(ns)), WaitBuckets-1)].Add(1)
}
