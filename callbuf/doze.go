package callbuf

import (
	"sync/atomic"
	"time"
)

// FeatureApart says that guest and host run under different kernels, as a VM's
// processes do: a futex doesn't wake anybody over there. Who waits for the other side
// sleeps in naps, and looks between them.
const FeatureApart = 1

// How long naps are: an eighth of the time waited so far, within bounds. Who has waited
// for a second doesn't hurry any more, so that to wait costs nearly nothing.
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

// doze waits until ready, at most for timeout, in naps; it has waited since then already.
// own is a word that only this side has: who changes it from old ends the wait.
func doze(own *atomic.Uint32, old uint32, since time.Time, timeout time.Duration, ready func() bool) {
	start := time.Now()
	for now := start; !ready() && own.Load() == old && now.Sub(start) < timeout; now = time.Now() {
		FutexWait(own, old, napAfter(now.Sub(since)))
	}
}
