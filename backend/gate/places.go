package gate

import (
	"sync/atomic"
	"time"

	"pegasus/callbuf"
)

// maxPreparers and maxHandlers bound the numbers of a domain's workers that prepare work at once, and that handle calls.
const (
	maxPreparers = 16
	maxHandlers  = 64
)

// Preparing and handling calls take processor time and no engine. A bounded number of a domain's workers do each at
// once: otherwise a domain with many processes would take the processors from those of other domains, on which kernels
// run, and from the daemon. The kernel divides processors by weights too, but keeps them less well where many threads
// wake often.
const (
	// prepareSlice is the period at which a worker that waits for a preparation slot checks that the slots' holders are
	// alive.
	prepareSlice = 100 * time.Millisecond
	// preparePatience and handlePatience are after how long without a change a waiting worker takes over a slot from its
	// holder: hostile code may have taken over workers and keep all slots, and a call may wait for another worker. How
	// long a worker has waited does not matter: many that wait would all begin at that time.
	preparePatience = 10 * time.Second
	handlePatience  = 100 * time.Millisecond
	// handleTime is how long a worker handles calls while others wait, and handlePause the longest time after that for
	// which it leaves its slot to them.
	handleTime  = time.Millisecond
	handlePause = 10 * time.Millisecond
)

// SetPreparers limits how many of the domain's workers prepare work at once.
func (p *Page) SetPreparers(n int) { p.at.preparers.Store(uint32(min(max(n, 1), maxPreparers))) }

// SetHandlers limits how many of the domain's workers handle calls at once.
func (p *Page) SetHandlers(n int) { p.at.handlers.Store(uint32(min(max(n, 1), maxHandlers))) }

// Prepare calls f, which parses or compiles. It blocks first while the permitted number of the domain's workers prepare
// work. One more begins if none of these ends for preparePatience. After Stop it does not block. The worker has no
// handling slot after it.
func (m *Member) Prepare(f func()) {
	m.Rest()
	all := m.page.preparation()
	if place := m.takePlace(all, preparePatience, prepareSlice); place != nil {
		defer all.leave(place, uint32(m.index)+1)
	}
	f()
}

// MayHandle reports whether the worker may handle a call now, and takes a handling slot for that if it has none. Where
// it may not, Handle waits.
func (m *Member) MayHandle() bool {
	all := m.page.handling()
	if m.place != nil && !all.has(m.place, uint32(m.index)+1) {
		m.Rest() // the limit is lower now, or another worker has taken the slot over
	}
	if m.place != nil {
		return !m.Others() || Now()-m.handles < handleTime.Nanoseconds()
	}
	if len(all.holders) == 0 {
		return true
	}
	m.place, m.handles = all.free(uint32(m.index)+1), Now()
	return m.place != nil
}

// Handle takes a handling slot. It blocks while the permitted number of the domain's workers handle calls; if the worker
// has a slot, other workers are first. After Stop it does not block.
func (m *Member) Handle() {
	all := m.page.handling()
	if m.place != nil {
		left, woken := all.leave(m.place, uint32(m.index)+1)
		m.place = nil
		if woken { // else no other worker would take the slot: one that was stopped or killed counts as waiting
			all.wait(m.index, left, handlePause)
		}
	}
	m.place, m.handles = m.takePlace(all, handlePatience, handlePatience), Now()
}

// Rest releases the handling slot, if the worker has one: before it sleeps, or waits for something else.
func (m *Member) Rest() {
	if m.place != nil {
		m.page.handling().leave(m.place, uint32(m.index)+1)
		m.place = nil
	}
}

// Awaited reports whether the worker has a handling slot that another worker of the domain waits for.
func (m *Member) Awaited() bool { return m.place != nil && m.Others() }

// Others reports whether workers of the domain wait for a handling slot.
func (m *Member) Others() bool { return m.page.at.handlersWaiting.any() }

// places are slots that limit how many of a domain's workers do something at once.
type places struct {
	holders []atomic.Uint32 // 1 + the page slot of the worker that has it; empty: an older daemon set no limit
	changed *atomic.Uint32  // futex word: incremented when a slot becomes free
	waiting *waiters
}

// waiters has a bit for each page slot with a worker that waits.
type waiters [Slots / 64]atomic.Uint64

func (w *waiters) any() bool {
	var all uint64
	for i := range w {
		all |= w[i].Load()
	}
	return all != 0
}

func (p *Page) preparation() places {
	l := &p.at.preparation
	return places{l.preparing[:min(l.preparers.Load(), maxPreparers)], &l.prepared, &l.preparersWaiting}
}

func (p *Page) handling() places {
	l := &p.at.handling
	return places{l.handling[:min(l.handlers.Load(), maxHandlers)], &l.handled, &l.handlersWaiting}
}

// has reports whether a worker has a slot within the limit.
func (all places) has(place *atomic.Uint32, me uint32) bool {
	for i := range all.holders {
		if &all.holders[i] == place {
			return place.Load() == me
		}
	}
	return false
}

// free takes a free slot, or returns nil if there is none.
func (all places) free(me uint32) *atomic.Uint32 {
	for i := range all.holders {
		if place := &all.holders[i]; place.Load() == 0 && place.CompareAndSwap(0, me) {
			return place
		}
	}
	return nil
}

// takePlace waits for a slot. It returns nil if there is no limit or the worker ends.
func (m *Member) takePlace(all places, patience, slice time.Duration) *atomic.Uint32 {
	if len(all.holders) == 0 {
		return nil
	}
	me := uint32(m.index) + 1
	seen, began := all.changed.Load(), Now()
	since, checked := began, began // when there was a change last, and when the holders were checked
	for !m.stop.Load() {
		change := all.changed.Load()
		if place := all.free(me); place != nil {
			return place
		}
		now := Now()
		if change != seen {
			seen, since = change, now
		}
		late, check := now-since >= patience.Nanoseconds(), now-checked >= slice.Nanoseconds()
		if check {
			checked = now
		}
		for i := range all.holders {
			place := &all.holders[i]
			holder := place.Load()
			if check && m.page.gone(holder) && place.CompareAndSwap(holder, me) {
				return place
			}
			// The other waiting workers see the change, and begin to wait anew.
			if late && all.changed.CompareAndSwap(change, change+1) && place.CompareAndSwap(holder, me) {
				return place
			}
		}
		all.wait(m.index, change, slice)
	}
	callbuf.FutexWake(all.changed, 1) // in case this worker was woken in place of another
	return nil
}

// wait blocks until a slot becomes free or slice has passed, if none has become free since seen.
func (all places) wait(index int, seen uint32, slice time.Duration) {
	word, bit := &all.waiting[index/64], uint64(1)<<(index%64)
	word.Or(bit)
	callbuf.FutexWait(all.changed, seen, slice)
	word.And(^bit)
}

// gone reports whether the holder of a slot is no live worker. The slot may also have become free meanwhile.
func (p *Page) gone(holder uint32) bool { return holder == 0 || holder > Slots || p.dead(holder) }

// leave releases a slot if holder has it, and wakes one waiting worker. It returns the value of changed, and whether a
// worker was asleep.
func (all places) leave(place *atomic.Uint32, holder uint32) (change uint32, woken bool) {
	if !place.CompareAndSwap(holder, 0) {
		return all.changed.Load(), false
	}
	change = all.changed.Add(1)
	if all.waiting.any() {
		woken = callbuf.FutexWakeOf(all.changed, 1, ^uint32(0)) != 0
	}
	return change, woken
}

// dropPlaces releases the slots of a dead worker, also those beyond the limits in force, and forgets that it waits,
// before another worker gets its page slot.
func (p *Page) dropPlaces(i int) {
	prepare, handle := p.preparation(), p.handling()
	prepare.holders, handle.holders = p.at.preparing[:], p.at.handling.handling[:]
	for _, all := range []places{prepare, handle} {
		all.waiting[i/64].And(^(uint64(1) << (i % 64)))
		for k := range all.holders {
			all.leave(&all.holders[k], uint32(i)+1)
		}
	}
}
