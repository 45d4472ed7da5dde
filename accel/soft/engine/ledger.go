package engine

import (
	"sync/atomic"
	"time"

	"pegasus/accel/residence"
)

// Ledger is a worker's side of what all workers have on the device, where
// allocations may leave it.
type Ledger struct {
	*Worker
	mover   *Worker // has a copy engine while memory leaves the area; not a worker of its own otherwise
	closing atomic.Bool
}

var _ residence.Ledger = (*Ledger)(nil)

// NewLedger makes the ledger of a worker, which takes a second place in the page of its domain.
func NewLedger(w *Worker) (*Ledger, error) {
	mover, err := queueIn(w.engines, w.memory, w.clock) // moving is its domain's, too
	if err != nil {
		return nil, err
	}
	return &Ledger{Worker: w, mover: mover}, nil
}

// Close gives the second place back. No method may be in progress.
func (l *Ledger) Close() { l.mover.engines.leave(l.mover.place) }

// areaPart is which part of the device is set aside for what leaves it.
const areaPart = 10

// Area is how many bytes of the device are set aside for what leaves it.
func (m *Memory) Area() uint64 {
	if m.fixed.swap == 0 {
		return 0
	}
	return m.fixed.memory / areaPart
}

// Capacity is what allocations may take of the device.
func (m *Memory) Capacity() uint64 { return m.fixed.memory - m.Area() }

// resident is what is on the device: domains' own memory never leaves it.
func (m *Memory) resident() uint64 {
	return m.sum(func(s *reserver) *counted { return &s.resident }) + m.Commons()
}

// Settle takes n bytes of the device if there are so many.
func (l *Ledger) Settle(n uint64) bool {
	for range 2 {
		l.reserver().resident.Add(n) // first counted, then checked: dying in between loses nothing
		if l.memory.resident() <= l.memory.Capacity() {
			return true
		}
		l.reserver().resident.Add(-n)
		l.memory.Sweep()
	}
	return false
}

// Force takes n bytes of the device in any case.
func (l *Ledger) Force(n uint64) { l.reserver().resident.Add(n) }

// Unsettle gives n bytes of the device back.
func (l *Ledger) Unsettle(n uint64) { l.reserver().resident.Add(-n) }

// Stash makes n settled bytes some of the area, if there is room in it.
func (l *Ledger) Stash(n uint64) bool {
	l.reserver().stashed.Add(n)
	if l.memory.sum(func(s *reserver) *counted { return &s.stashed }) > l.memory.Area() {
		l.reserver().stashed.Add(-n)
		return false
	}
	l.reserver().resident.Add(-n)
	return true
}

// Unstash gives n bytes of the area back.
func (l *Ledger) Unstash(n uint64) { l.reserver().stashed.Add(-n) }

// Free is how many bytes of the device allocations may still take; less than 0: what domains have of their own was reserved
// without asking those whose allocations are there.
func (l *Ledger) Free() int64 { return int64(l.memory.Capacity()) - int64(l.memory.resident()) }

// Others appends the other workers to a list. From those of its own domain a worker
// takes nothing that the domain was promised.
func (l *Ledger) Others(to []residence.Owner) []residence.Owner {
	to = l.memory.owners(to, func(i int) bool { return i != l.at.index })
	for i := range to {
		if to[i].Domain == l.reserver().domain.Load() {
			to[i].Guarantee = 0
		}
	}
	return to
}

// MayGive is what this worker's domain has on the device beyond its guarantee.
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

// Touch notes that the worker has used its memory.
func (l *Ledger) Touch() { l.reserver().used.Store(l.clock()) }

const pressing = 1 << 47

// Ask asks another worker to give up memory.
func (l *Ledger) Ask(a residence.Ask) {
	s := &l.memory.l.workers[a.Owner]
	owner := s.owner.Load()
	if ownerPid(owner) == 0 {
		return
	}
	word := uint64(ownerEpoch(owner))<<48 | min(a.Bytes, pressing-1)
	if a.Pressing {
		word |= pressing
	}
	s.asked.Store(word)
	wakeParked(&s.parked)
}

// Asking says whether a worker that lives has not answered yet.
func (l *Ledger) Asking(i int) bool {
	s := &l.memory.l.workers[i]
	word, owner := s.asked.Load(), s.owner.Load()
	return word != 0 && ownerPid(owner) != 0 && uint16(word>>48) == ownerEpoch(owner)
}

// Withdraw asks a worker for nothing any more.
func (l *Ledger) Withdraw(i int) { l.memory.l.workers[i].asked.Store(0) }

// missed bounds how late an answer is heard that came between the caller's look and its sleep.
const missed = time.Millisecond

// AwaitAnswer waits until a worker has answered, at most for d.
func (l *Ledger) AwaitAnswer(d time.Duration) {
	w := &l.memory.l.answered
	w.Store(1)
	futexWait(w, int64(min(d, missed)))
}

// Asked is what others ask this worker for.
func (l *Ledger) Asked() (a residence.Ask, ok bool) {
	word := l.reserver().asked.Load()
	if word == 0 || uint16(word>>48) != l.at.epoch {
		return a, false
	}
	return residence.Ask{Owner: l.at.index, Bytes: word & (pressing - 1), Pressing: word&pressing != 0}, true
}

// Answer tells whoever asked that what could be done was done.
func (l *Ledger) Answer() {
	l.reserver().asked.Store(0)
	wakeParked(&l.memory.l.answered)
}

// AwaitAsk waits until this worker is asked for something, or woken, at most for d.
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

// Turn waits for the engine for kernels and returns what gives it back, for who holds it only while he asks others for room: nil
// if stop was set, at which Hurry has it look. One goroutine may call it at a time.
func (l *Ledger) Turn(stop *atomic.Bool) (over func()) {
	if _, ok := l.Acquire(Compute, stop); !ok {
		return nil
	}
	return func() { l.Release(Compute) }
}

// Hurry has a Turn that waits look whether it is to stop.
func (l *Ledger) Hurry() { l.Nudge(Compute) }

// Carry runs f with the engine for copies to the host held.
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
