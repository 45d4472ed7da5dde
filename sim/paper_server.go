package sim

import (
	"math/bits"
	"time"
)

// server is a thread that Linux schedules by deadline (SCHED_DEADLINE): runtime of CPU time in every period.
// It models the thread's wake-ups. No policy uses it: the kernel's accounting cannot be corrected from user
// space.
type server struct {
	runtime, period time.Duration // as granted; both positive, runtime ≤ period
	remaining       time.Duration // of the runtime
	deadline        Time
}

// correctedLeast is the runtime that the correction leaves, so that the thread can make progress.
const correctedLeast = time.Millisecond

// wake models a wake-up of the thread. The kernel keeps runtime and deadline if the remaining runtime can be
// used until then without exceeding the granted part of the CPU; otherwise it refills the runtime and
// postpones the deadline. A thread that slept while its work ran on an accelerator still has all of its
// runtime, and so gains bandwidth whenever it waits. With the correction of Linux-RTXG (a paper, see
// docs/policies.md) the time for which it slept on the accelerator is first subtracted from the remaining
// runtime; asleep is 0 when it wakes up for a new job.
func (s *server) wake(now Time, asleep time.Duration) {
	if asleep > 0 {
		s.remaining = max(s.remaining-asleep, min(s.remaining, correctedLeast))
	}
	if s.exceeds(now) {
		s.remaining, s.deadline = s.runtime, now.Add(s.period)
	}
}

// exceeds reports whether the remaining runtime is more than the granted part of the time left.
func (s *server) exceeds(now Time) bool {
	left := s.deadline.Sub(now)
	if left <= 0 {
		return true
	}
	hi, lo := bits.Mul64(uint64(s.remaining), uint64(s.period))
	hi2, lo2 := bits.Mul64(uint64(left), uint64(s.runtime))
	return hi > hi2 || hi == hi2 && lo > lo2
}
