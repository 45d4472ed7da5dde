package gate

import (
	"sync/atomic"
	"time"

	"pegasus/callbuf"
)

// maxPreparers is how many workers of a domain may prepare work at once at most.
const maxPreparers = 16

const (
	// prepareSlice is after how long a worker that waits for a place looks whether the worker in it still lives.
	prepareSlice = 100 * time.Millisecond
	// preparePatience is after how long it goes on without: hostile code may have taken over a worker, which keeps all places.
	preparePatience = 10 * time.Second
)

// SetPreparers limits how many workers of the domain prepare work at once.
func (p *Page) SetPreparers(n int) { p.at.preparers.Store(uint32(min(max(n, 1), maxPreparers))) }

// Prepare calls f, which takes processor time and no engine, such as parsing and compiling. It waits while as many workers
// of the domain prepare as may: a domain of many processes would take the processors from those of others, which kernels run on.
func (m *Member) Prepare(f func()) {
	at := m.page.at
	n := min(at.preparers.Load(), maxPreparers)
	if n == 0 { // the daemon is older, and doesn't limit it
		f()
		return
	}
	if place := m.takePlace(at.preparing[:n], preparePatience); place != nil {
		defer func() {
			place.Store(0)
			if at.preparersWaiting.Load() != 0 {
				callbuf.FutexWake(place, 1)
			}
		}()
	}
	f()
}

// takePlace returns the place that the worker has, or nil if it waited in vain.
func (m *Member) takePlace(places []atomic.Uint32, patience time.Duration) *atomic.Uint32 {
	me := uint32(m.index) + 1
	for until := Now() + patience.Nanoseconds(); Now() < until; {
		for i := range places {
			if places[i].CompareAndSwap(0, me) {
				return &places[i]
			}
		}
		mine := &places[m.index%len(places)]
		holder := mine.Load()
		if holder == 0 {
			continue
		}
		m.page.at.preparersWaiting.Add(1)
		callbuf.FutexWait(mine, holder, prepareSlice)
		m.page.at.preparersWaiting.Add(^uint32(0))
		if mine.Load() == holder && (holder > Slots || m.page.dead(holder)) && mine.CompareAndSwap(holder, me) {
			return mine
		}
	}
	return nil
}
