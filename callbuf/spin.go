package callbuf

import "time"

// greedy is the time for which Spin does not yield the processor.
const greedy = 3 * time.Microsecond

// Spin calls ready until it returns true or d has passed, and returns the last result. It is for waits that
// are expected to be shorter than a wake-up by the kernel; d bounds the waste when they are not. After the
// first microseconds it yields the processor between calls: the other side may need this one.
func Spin(d time.Duration, ready func() bool) bool {
	if ready() {
		return true
	}
	if d <= 0 {
		return false
	}
	for start := time.Now(); ; {
		for range 32 {
			if ready() {
				return true
			}
			pause()
		}
		spent := time.Since(start)
		if spent >= d {
			return false
		}
		if spent > greedy {
			Yield()
		}
	}
}
