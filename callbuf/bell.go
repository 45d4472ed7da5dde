package callbuf

import (
	"sync/atomic"
	"time"
)

// FeatureBell, of a segment that has FeatureApart, says that the guest can wake its
// worker after all: it sends any message over the worker's socket, which others pass on.
// That costs it more than a nap costs the worker, so a worker wants it only when it has
// been idle for a while, and says so in the same word as one that sleeps on a futex. In a
// Hello it says that the guest knows how.
const FeatureBell = 2

const (
	// bellAfter is how long a poller naps before it wants to be rung.
	bellAfter = 20 * time.Millisecond
	// bellSlice bounds its sleeps then, against rings that get lost.
	bellSlice = 100 * time.Millisecond
	// RingPause is how long a worker doesn't listen after it was rung: no honest guest
	// rings more often.
	RingPause = bellAfter / 2
)

// bell is what a poller sleeps on that has FeatureBell.
type bell struct {
	there bool          // FeatureBell
	rings atomic.Uint32 // counts those, and Unpark
}

func (b *bell) ring() {
	b.rings.Add(1)
	FutexWake(&b.rings, 1)
}

// Rung tells the poller that its guest has rung: there may be a packet.
func (h *Host) Rung() { h.bell.ring() }

// sleepUntilRung sleeps until there is a packet, Unpark, or timeout has passed.
func (h *Host) sleepUntilRung(timeout time.Duration) {
	start := time.Now()
	if idle := start.Sub(h.idleSince); idle < bellAfter {
		doze(&h.roused, 0, h.idleSince, min(timeout, bellAfter-idle), h.Ready)
		return
	}
	parked := word32(h.mem, offPollerParked)
	defer parked.Store(0)
	for left := timeout; left > 0; left = timeout - time.Since(start) {
		seen := h.bell.rings.Load()
		parked.Store(1)
		if h.Ready() || h.roused.Load() != 0 {
			return
		}
		FutexWait(&h.bell.rings, seen, min(left, bellSlice))
	}
}
