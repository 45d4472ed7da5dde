package engine

import (
	"sync/atomic"
	"time"

	"pegasus/accel/residence"
)

// Ledger is one worker's view of the memory that all workers have on the device, on accelerators where allocations can
// be evicted.
type Ledger struct {
	*Worker
	mover   *Worker // has a copy engine while memory is evicted; otherwise not a worker of its own
	closing atomic.Bool
}

var _ residence.Ledger = (*Ledger)(nil)

// NewLedger returns the ledger of a worker, which takes a second place in the page of its domain.
func NewLedger(w *Worker) (*Ledger, error) {
	mover, err := queueIn(w.engines, w.memory, w.clock) // the time of moves is charged to the same domain
	if err != nil {
		return nil, err
	}
	return &Ledger{Worker: w, mover: mover}, nil
}

// Close releases the second place. No method may be in progress.
func (l *Ledger) Close() { l.mover.engines.leave(l.mover.place) }

// areaPart is the divisor that gives the part of the device reserved for evicted memory.
const areaPart = 10

// Area returns the bytes of the device that are reserved for evicted memory.
func (m *Memory) Area() uint64 {
	if m.fixed.swap == 0 {
		return 0
	}
	return m.fixed.memory / areaPart
}

// Capacity returns the bytes of the device that allocations may use.
func (m *Memory) Capacity() uint64 { return m.fixed.memory - m.Area() }

// resident returns the bytes on the device: the domains' own memory is never evicted.
func (m *Memory) resident() uint64 {
	return m.sum(func(s *reserver) *counted { return &s.resident }) + m.Commons()
}

// Occupy reserves n bytes of the device, if as many are free.
func (l *Ledger) Occupy(n uint64) bool {
	for range 2 {
		l.reserver().resident.Add(n) // first counted, then checked: a process that dies in between loses nothing
		if l.memory.resident() <= l.memory.Capacity() {
			return true
		}
		l.reserver().resident.Add(-n)
		l.memory.Sweep()
	}
	return false
}

// ForceOccupy reserves n bytes of the device in any case.
func (l *Ledger) ForceOccupy(n uint64) { l.reserver().resident.Add(n) }

// Vacate releases n bytes of the device.
func (l *Ledger) Vacate(n uint64) { l.reserver().resident.Add(-n) }

// OccupyHost moves n occupied bytes to the area for evicted memory, if there is room in it.
func (l *Ledger) OccupyHost(n uint64) bool {
	l.reserver().stashed.Add(n)
	if l.memory.sum(func(s *reserver) *counted { return &s.stashed }) > l.memory.Area() {
		l.reserver().stashed.Add(-n)
		return false
	}
	l.reserver().resident.Add(-n)
	return true
}

// VacateHost releases n bytes of the area.
func (l *Ledger) VacateHost(n uint64) { l.reserver().stashed.Add(-n) }

// Free returns the bytes of the device that allocations may still use. It is less than 0 if domains' own memory was
// reserved before the allocations in its place were evicted.
func (l *Ledger) Free() int64 { return int64(l.memory.Capacity()) - int64(l.memory.resident()) }

// Others appends the other workers to a list. The guarantee does not protect workers of this worker's own domain, as
// memory taken from them stays with the domain.
func (l *Ledger) Others(to []residence.Owner) []residence.Owner {
	to = l.memory.owners(to, func(i int) bool { return i != l.at.index })
	for i := range to {
		if to[i].Domain == l.reserver().domain.Load() {
			to[i].Guarantee = 0
		}
	}
	return to
}

// Queue records since when this worker waits for room.
func (l *Ledger) Queue() { l.reserver().waits.Store(l.clock()) }

// Unqueue records that this worker waits no longer, and wakes those that wait for it.
func (l *Ledger) Unqueue() {
	l.reserver().waits.Store(0)
	wakeParked(&l.memory.l.answered)
}

// Ahead returns the worker that has waited for room the longest, and since when; or false if none waits, or this worker
// has waited longer. Of two that began at the same time, the one in the lower place is ahead.
func (l *Ledger) Ahead() (owner int, since int64, ok bool) {
	owner, since, ok = l.ahead()
	if ok && !l.memory.alive(owner) {
		l.memory.Sweep()
		owner, since, ok = l.ahead()
	}
	return owner, since, ok
}

func (l *Ledger) ahead() (owner int, since int64, ok bool) {
	first := l.reserver().waits.Load()
	owner = l.at.index
	for i := range l.memory.used() {
		s := &l.memory.l.workers[i]
		waits := s.waits.Load()
		if waits == 0 || ownerPid(s.owner.Load()) == 0 {
			continue
		}
		if first == 0 || waits < first || waits == first && i < owner {
			owner, first = i, waits
		}
	}
	return owner, first, owner != l.at.index
}

// MayGive returns the bytes that this worker's domain has on the device beyond its guarantee.
func (l *Ledger) MayGive() uint64 {
	return residence.Excess(l.memory.owners(nil, func(int) bool { return true }), l.reserver().domain.Load())
}

func (m *Memory) owners(to []residence.Owner, which func(int) bool) []residence.Owner {
	for i := range m.used() {
		s := &m.l.workers[i]
		owner := s.owner.Load()
		if ownerPid(owner) == 0 || !which(i) {
			continue
		}
		to = append(to, residence.Owner{
			ID: i, Domain: s.domain.Load(), Priority: int(s.priority.Load()), Resident: s.resident.of(owner), Fixed: s.pinned.of(owner),
			Guarantee: s.guarantee.Load(), Used: s.used.Load(),
		})
	}
	return to
}

// Touch records that the worker has used its memory.
func (l *Ledger) Touch() { l.reserver().used.Store(l.clock()) }

const pressing = 1 << 47

// Ask requests that another worker evict memory. A worker of this domain may go below the guarantee for it.
func (l *Ledger) Ask(a residence.Ask) {
	s := &l.memory.l.workers[a.Owner]
	owner := s.owner.Load()
	if ownerPid(owner) == 0 {
		return
	}
	word := uint64(ownerEpoch(owner))<<48 | min(a.Bytes, pressing-1)
	if a.Pressing || s.domain.Load() == l.reserver().domain.Load() { // memory taken from the own domain stays with it
		word |= pressing
	}
	s.asked.Store(word)
	wakeParked(&s.parked)
}

// Asking reports whether a live worker has an unanswered request.
func (l *Ledger) Asking(i int) bool {
	s := &l.memory.l.workers[i]
	word, owner := s.asked.Load(), s.owner.Load()
	return word != 0 && ownerPid(owner) != 0 && uint16(word>>48) == ownerEpoch(owner)
}

// Withdraw cancels the request to a worker.
func (l *Ledger) Withdraw(i int) { l.memory.l.workers[i].asked.Store(0) }

// missed bounds the delay of an answer that came between the caller's check and its sleep.
const missed = time.Millisecond

// AwaitAnswer blocks until a worker has answered, at most for d.
func (l *Ledger) AwaitAnswer(d time.Duration) {
	w := &l.memory.l.answered
	w.Store(1)
	futexWait(w, int64(min(d, missed)))
}

// Asked returns the request of another worker to this one.
func (l *Ledger) Asked() (a residence.Ask, ok bool) {
	word := l.reserver().asked.Load()
	if word == 0 || uint16(word>>48) != l.at.epoch {
		return a, false
	}
	return residence.Ask{Owner: l.at.index, Bytes: word & (pressing - 1), Pressing: word&pressing != 0}, true
}

// Answer marks the request as served as far as possible, and wakes the requester.
func (l *Ledger) Answer() {
	l.reserver().asked.Store(0)
	wakeParked(&l.memory.l.answered)
}

// AwaitAsk blocks until there is a request to this worker, or Wake is called, at most for d.
func (l *Ledger) AwaitAsk(d time.Duration) {
	s := l.reserver()
	s.parked.Store(1)
	if s.asked.Load() == 0 && !l.closing.Load() {
		futexWait(&s.parked, int64(d))
	}
	s.parked.Store(0)
}

// Wake ends AwaitAsk and Carry, now and later.
func (l *Ledger) Wake() {
	l.closing.Store(true)
	wakeParked(&l.reserver().parked)
	l.mover.Nudge(CopyOut)
}

// Turn waits for the compute engine and returns a function that releases it, for callers that hold it only while they
// request memory from others. It returns nil if stop was set; Hurry makes it check stop. One goroutine may call it at a
// time.
func (l *Ledger) Turn(stop *atomic.Bool) (over func()) {
	if _, ok := l.Acquire(Compute, stop); !ok {
		return nil
	}
	return func() { l.Release(Compute) }
}

// Hurry makes a waiting Turn check stop.
func (l *Ledger) Hurry() { l.Nudge(Compute) }

// Carry runs f while it holds the engine for copies to the host.
func (l *Ledger) Carry(f func()) {
	if _, ok := l.mover.Acquire(CopyOut, &l.closing); ok {
		f()
		l.mover.Release(CopyOut)
	}
}

func wakeParked(w *atomic.Uint32) {
	if w.Load() != 0 && w.Swap(0) != 0 {
		futexWake(w)
	}
}
