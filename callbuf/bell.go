package callbuf

import "time"

// FeatureBell, of a segment that has FeatureApart, says that the guest can wake its
// worker after all: it sends any message over the worker's socket, which others pass on.
// That costs it more than a nap costs the worker, so a worker wants it only when it has
// been idle for a while, and says so in the same word as one that sleeps on a futex. In a
// Hello it says that the guest knows how.
const FeatureBell = 2

// FeatureRouse, beside FeatureBell, says that the worker's poller sleeps on that very word. So
// who has the segment on the host can wake it without a word to the worker; see Rouse. It takes
// memory in which a futex is one for all processes, as files' is.
const FeatureRouse = 4

const (
	// bellAfter is how long a poller naps before it wants to be rung.
	bellAfter = 20 * time.Millisecond
	// bellSlice bounds its sleeps then, against rings that get lost.
	bellSlice = 100 * time.Millisecond
	// RingPause is how long a worker doesn't listen after it was rung: no honest guest
	// rings more often.
	RingPause = bellAfter / 2
)

// Rung tells the poller that its guest has rung: there may be a packet.
func (h *Host) Rung() {
	if h.rouse {
		FutexWake(word32(h.mem, offPollerParked), 1)
		return
	}
	h.rung.Add(1)
	FutexWake(&h.rung, 1)
}

// Rouse wakes the poller of a segment with FeatureRouse, if it sleeps and the guest has taken
// that back, which it does when there is a packet. It takes the segment's first page.
func Rouse(header []byte) {
	if parked := word32(header, offPollerParked); parked.Load() == 0 {
		FutexWake(parked, 1)
	}
}

// Parked says whether the poller of a segment with FeatureBell sleeps, and its guest hasn't taken
// that back. It takes the segment's first page.
func Parked(header []byte) bool { return word32(header, offPollerParked).Load() != 0 }

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
		if parked.Load() == 0 { // the guest that cleared the word has sent a packet: look first
			if h.Ready() {
				return
			}
			parked.Store(1)
		}
		rung := h.rung.Load()
		if h.Ready() || h.roused.Load() != 0 {
			return
		}
		if h.rouse {
			FutexWait(parked, 1, min(left, bellSlice))
		} else {
			FutexWait(&h.rung, rung, min(left, bellSlice))
		}
	}
}
