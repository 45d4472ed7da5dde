package gate

import (
	"sync/atomic"
	"time"

	"pegasus/callbuf"
)

// maxPreparers bounds the number of a domain's workers that prepare work at once.
const maxPreparers = 16

const (
	// prepareSlice is the period at which a worker that waits for a preparation slot checks that the slots' holders are
	// alive.
	prepareSlice = 100 * time.Millisecond
	// preparePatience is after how long without a change a waiting worker takes over a slot from its holder: hostile code
	// may have taken over workers and keep all slots. How long a worker has waited does not matter: many that wait would
	// all begin at that time.
	preparePatience = 10 * time.Second
)

// SetPreparers limits how many of the domain's workers prepare work at once.
func (p *Page) SetPreparers(n int) { p.at.preparers.Store(uint32(min(max(n, 1), maxPreparers))) }

// Prepare calls f, which uses processor time and no engine, such as parsing and compiling. It blocks first while the
// permitted number of the domain's workers prepare work: otherwise a domain with many processes would take the
// processors from those of other domains, on which kernels run. One more begins if none of these ends for
// preparePatience. After Stop it does not block.
func (m *Member) Prepare(f func()) {
	n := min(m.page.at.preparers.Load(), maxPreparers) // 0: set by an older daemon, which has no limit
	if place := m.takePlace(n, preparePatience, prepareSlice); place != nil {
		defer m.page.leavePlace(place, uint32(m.index)+1)
	}
	f()
}

// takePlace returns the preparation slot that the worker took, among the first n, or nil if n is 0 or the worker ends.
func (m *Member) takePlace(n uint32, patience, slice time.Duration) *atomic.Uint32 {
	at, me := m.page.at, uint32(m.index)+1
	if n == 0 {
		return nil
	}
	seen, since := at.prepared.Load(), Now()
	for !m.stop.Load() {
		now := Now()
		if change := at.prepared.Load(); change != seen {
			seen, since = change, now
		}
		late := now-since >= patience.Nanoseconds()
		for i := range at.preparing[:n] {
			place := &at.preparing[i]
			holder := place.Load()
			if free := holder == 0 || m.page.gone(holder); (free || late) && place.CompareAndSwap(holder, me) {
				if !free {
					at.prepared.Add(1) // the other waiting workers begin to wait anew
				}
				return place
			}
		}
		at.preparersWaiting.Add(1)
		callbuf.FutexWait(&at.prepared, seen, slice)
		at.preparersWaiting.Add(^uint32(0))
	}
	return nil
}

// gone reports whether the holder of a preparation slot is no live worker.
func (p *Page) gone(holder uint32) bool { return holder > Slots || p.dead(holder) }

// leavePlace releases a preparation slot if holder has it, and wakes one waiting worker.
func (p *Page) leavePlace(place *atomic.Uint32, holder uint32) {
	if !place.CompareAndSwap(holder, 0) {
		return
	}
	p.at.prepared.Add(1)
	if p.at.preparersWaiting.Load() != 0 {
		callbuf.FutexWake(&p.at.prepared, 1)
	}
}

// dropPlaces releases the preparation slots of a dead worker, before another worker gets its page slot.
func (p *Page) dropPlaces(i int) {
	for k := range p.at.preparing {
		p.leavePlace(&p.at.preparing[k], uint32(i)+1)
	}
}
