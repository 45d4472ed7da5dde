package callbuf

import "time"

// FeatureBell, of a segment that has FeatureApart, means that the guest can wake its worker: it sends any
// message over the worker's socket, which agent and hub pass on. That costs the guest more than a poll costs
// the worker, so a worker requests it only after it has been idle for a while, by the same word as a worker
// that sleeps on a futex. In a Hello it means that the guest supports it.
const FeatureBell = 2

// FeatureRouse, beside FeatureBell, means that the worker's poller sleeps on that very word. So any process
// on the host that maps the segment can wake it without a message to the worker; see Rouse. It requires
// memory in which a futex is shared by all processes, such as files'.
const FeatureRouse = 4

const (
	// bellAfter is the polling time before a poller requests rings.
	bellAfter = 20 * time.Millisecond
	// bellSlice bounds its sleeps after that, in case a ring is lost.
	bellSlice = 100 * time.Millisecond
	// RingPause is the time for which a worker ignores its socket after a ring: no correct guest rings more often.
	RingPause = bellAfter / 2
)

// Rung reports to the poller that its guest has rung: there may be a packet.
func (h *Host) Rung() {
	if h.rouse {
		FutexWake(word32(h.mem, offPollerParked), 1)
		return
	}
	h.rung.Add(1)
	FutexWake(&h.rung, 1)
}

// Rouse wakes the poller of a segment with FeatureRouse, if it sleeps and the guest has cleared the sleep
// mark, as it does when it sends a packet. It takes the segment's first page.
func Rouse(header []byte) {
	if parked := word32(header, offPollerParked); parked.Load() == 0 {
		FutexWake(parked, 1)
	}
}

// Parked reports whether the poller of a segment with FeatureBell sleeps and its guest has not cleared the
// sleep mark. It takes the segment's first page.
func Parked(header []byte) bool { return word32(header, offPollerParked).Load() != 0 }

// sleepUntilRung blocks until there is a packet, Unpark is called, or timeout has passed.
func (h *Host) sleepUntilRung(timeout time.Duration) {
	start := time.Now()
	if idle := start.Sub(h.idleSince); idle < bellAfter {
		pollWait(&h.roused, 0, h.idleSince, min(timeout, bellAfter-idle), h.Ready)
		return
	}
	parked := word32(h.mem, offPollerParked)
	defer parked.Store(0)
	for left := timeout; left > 0; left = timeout - time.Since(start) {
		if parked.Load() == 0 { // the guest that cleared the word has sent a packet: check first
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
