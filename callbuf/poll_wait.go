package callbuf

import (
	"sync/atomic"
	"time"
)

// FeatureApart means that guest and host run under different kernels, like a VM's processes and the host: a
// futex wakes no thread under the other kernel. A thread that waits for the other side polls, with sleeps in
// between.
const FeatureApart = 1

// The sleeps of a poll: an eighth of the time waited so far, within bounds. After a second of waiting they
// are so long that waiting costs next to nothing.
const (
	firstNap   = 50 * time.Microsecond
	longestNap = time.Millisecond
	lazyAfter  = time.Second
	lazyNap    = 10 * time.Millisecond
)

func napAfter(waited time.Duration) time.Duration {
	if waited >= lazyAfter {
		return lazyNap
	}
	return min(max(waited/8, firstNap), longestNap)
}

// pollWait polls ready, with sleeps, for at most timeout; since is the start of the whole wait. own is a word
// that only this side changes: a change from old ends the wait.
func pollWait(own *atomic.Uint32, old uint32, since time.Time, timeout time.Duration, ready func() bool) {
	start := time.Now()
	for now := start; !ready() && own.Load() == old && now.Sub(start) < timeout; now = time.Now() {
		FutexWait(own, old, napAfter(now.Sub(since)))
	}
}
