package gate

import (
	"sync/atomic"
	"time"

	"pegasus/callbuf"
)

// maxPreparers is how many workers of a domain may prepare work at once at most.
const maxPreparers = 16

const (
	// prepareSlice is after how long a worker that waits for a place looks whether the workers in all of them still live.
	prepareSlice = 100 * time.Millisecond
	// preparePatience is after how long it goes on without: hostile code may have taken over a worker, which keeps all places.
	preparePatience = 10 * time.Second
)

// SetPreparers limits how many workers of the domain prepare work at once.
func (p *Page) SetPreparers(n int) { p.at.preparers.Store(uint32(min(max(n, 1), maxPreparers))) }

// Prepare calls f, which takes processor time and no engine, such as parsing and compiling. It waits while as many workers
// of the domain prepare as may: a domain of many processes would take the processors from those of others, which kernels run on.
// After Stop it doesn't wait.
func (m *Member) Prepare(f func()) {
	n := min(m.page.at.preparers.Load(), maxPreparers) // 0: the daemon is older, and doesn't limit it
	if place := m.takePlace(n, preparePatience, prepareSlice); place != nil {
		defer m.page.leavePlace(place, uint32(m.index)+1)
	}
	f()
}

// takePlace returns the place that the worker has, of the first n, or nil if there is none or it waited in vain.
func (m *Member) takePlace(n uint32, patience, slice time.Duration) *atomic.Uint32 {
	at, me := m.page.at, uint32(m.index)+1
	if n == 0 {
		return nil
	}
	for until := Now() + patience.Nanoseconds(); Now() < until && !m.stop.Load(); {
		seen := at.prepared.Load()
		for i := range at.preparing[:n] {
			place := &at.preparing[i]
			if holder := place.Load(); (holder == 0 || m.page.gone(holder)) && place.CompareAndSwap(holder, me) {
				return place
			}
		}
		at.preparersWaiting.Add(1)
		callbuf.FutexWait(&at.prepared, seen, slice)
		at.preparersWaiting.Add(^uint32(0))
	}
	return nil
}

// gone reports whether the holder of a place is no worker that lives.
func (p *Page) gone(holder uint32) bool { return holder > Slots || p.dead(holder) }

// leavePlace makes a place free again if it is its holder's, and lets a worker that waits have it.
func (p *Page) leavePlace(place *atomic.Uint32, holder uint32) {
	if !place.CompareAndSwap(holder, 0) {
		return
	}
	p.at.prepared.Add(1)
	if p.at.preparersWaiting.Load() != 0 {
		callbuf.FutexWake(&p.at.prepared, 1)
	}
}

// dropPlaces makes the places of a dead worker free again, before another worker has its slot.
func (p *Page) dropPlaces(i int) {
	for k := range p.at.preparing {
		p.leavePlace(&p.at.preparing[k], uint32(i)+1)
	}
}
