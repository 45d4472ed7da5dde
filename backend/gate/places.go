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
// run, and from the daemon. The kernel divides processors by weights too, but keeps them less well the more threads
// there are.
const (
	// prepareSlice and handleSlice are the periods at which a worker that waits for a slot checks that the slots' holders
	// are alive.
	prepareSlice = 100 * time.Millisecond
	handleSlice  = 10 * time.Millisecond
	// preparePatience and handlePatience are after how long without a change a waiting worker takes over a slot from its
	// holder: hostile code may have taken over workers and keep all slots, and a call may wait for another worker. How
	// long a worker has waited does not matter: many that wait would all begin at that time.
	preparePatience = 10 * time.Second
	handlePatience  = 100 * time.Millisecond
	// handleTime is how long a worker handles calls while others wait.
	handleTime = time.Millisecond
)

// SetPreparers limits how many of the domain's workers prepare work at once.
func (p *Page) SetPreparers(n int) { p.at.preparers.Store(uint32(min(max(n, 1), maxPreparers))) }

// SetHandlers limits how many of the domain's workers handle calls at once.
func (p *Page) SetHandlers(n int) { p.at.handlers.Store(uint32(min(max(n, 1), maxHandlers))) }

// Prepare calls f, which parses or compiles. It blocks first while the permitted number of the domain's workers prepare
// work. One more begins if none of these ends for preparePatience. After Stop it does not block. The poller, which
// calls it, has no handling slot after it.
func (m *Member) Prepare(f func()) {
	m.Rest()
	all := m.page.preparation()
	if place := m.takePlace(all, preparePatience, prepareSlice); place != nil {
		defer all.leave(place, uint32(m.index)+1)
	}
	f()
}

// Handle blocks while the permitted number of the domain's workers handle calls, and takes a handling slot. The poller
// calls it before each call; it returns at once if the worker has a slot already and no other worker has waited for
// handleTime. After Stop it does not block.
func (m *Member) Handle() {
	if m.place != nil {
		if m.page.at.handlersWaiting.Load() == 0 {
			return
		}
		if now := Now(); now-m.handles < handleTime.Nanoseconds() {
			return
		}
		m.Rest()
		all := m.page.handling()
		all.wait(all.changed.Load(), handleTime) // so that a worker that waits is first
	}
	if all := m.page.handling(); len(all.holders) > 0 {
		m.place = m.takePlace(all, handlePatience, handleSlice)
		m.handles = Now()
	}
}

// Rest releases the handling slot, if the worker has one. The poller calls it before it sleeps.
func (m *Member) Rest() {
	if m.place == nil {
		return
	}
	m.page.handling().leave(m.place, uint32(m.index)+1)
	m.place = nil
}

// Others reports whether other workers of the domain wait for a handling slot.
func (m *Member) Others() bool { return m.page.at.handlersWaiting.Load() != 0 }

// places are slots that limit how many of a domain's workers do something at once.
type places struct {
	holders []atomic.Uint32 // 1 + the page slot of the worker that has it; empty: an older daemon set no limit
	waiting *atomic.Uint32
	changed *atomic.Uint32 // futex word: incremented when a slot becomes free
}

func (p *Page) preparation() places {
	l := &p.at.preparation
	return places{l.preparing[:min(l.preparers.Load(), maxPreparers)], &l.preparersWaiting, &l.prepared}
}

func (p *Page) handling() places {
	l := &p.at.handling
	return places{l.handling[:min(l.handlers.Load(), maxHandlers)], &l.handlersWaiting, &l.handled}
}

// takePlace returns the slot that the worker took, or nil if there is no limit or the worker ends.
func (m *Member) takePlace(all places, patience, slice time.Duration) *atomic.Uint32 {
	me := uint32(m.index) + 1
	if len(all.holders) == 0 {
		return nil
	}
	seen, since := all.changed.Load(), int64(0)
	for !m.stop.Load() {
		var unchanged int64 // for how long
		if change := all.changed.Load(); since != 0 {
			now := Now()
			if change != seen {
				seen, since = change, now
			}
			unchanged = now - since
		}
		alive, late := unchanged < slice.Nanoseconds(), unchanged >= patience.Nanoseconds()
		for i := range all.holders {
			place := &all.holders[i]
			holder := place.Load()
			if free := holder == 0 || !alive && m.page.gone(holder); (free || late) && place.CompareAndSwap(holder, me) {
				if !free {
					all.changed.Add(1) // the other waiting workers begin to wait anew
				}
				return place
			}
		}
		if since == 0 {
			since = Now()
		}
		all.wait(seen, slice)
	}
	return nil
}

// wait blocks until a slot becomes free or slice has passed, if none has since seen.
func (all places) wait(seen uint32, slice time.Duration) {
	all.waiting.Add(1)
	callbuf.FutexWait(all.changed, seen, slice)
	all.waiting.Add(^uint32(0))
}

// gone reports whether the holder of a slot is no live worker.
func (p *Page) gone(holder uint32) bool { return holder > Slots || p.dead(holder) }

// leave releases a slot if holder has it, and wakes one waiting worker.
func (all places) leave(place *atomic.Uint32, holder uint32) {
	if !place.CompareAndSwap(holder, 0) {
		return
	}
	all.changed.Add(1)
	if all.waiting.Load() != 0 {
		callbuf.FutexWake(all.changed, 1)
	}
}

// dropPlaces releases the slots of a dead worker, before another worker gets its page slot.
func (p *Page) dropPlaces(i int) {
	for _, all := range []places{p.preparation(), p.handling()} {
		for k := range all.holders {
			all.leave(&all.holders[k], uint32(i)+1)
		}
	}
}
