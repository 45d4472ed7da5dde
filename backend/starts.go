package backend

import (
	"context"
	"runtime"
	"time"
)

const (
	// startPatience is for how long a worker that doesn't come to serve keeps others of its domain from starting.
	startPatience = time.Second
	// placePatience is after how long a worker starts without a place: processes that stop before their workers serve may keep all
	// places, and a process gives up when it has waited for an answer for 10 s.
	placePatience = 5 * time.Second
)

// starts bounds how many workers of a domain start at once. A worker that starts takes processor time of the host as long as ten
// short kernels do, and a domain of many processes that start together would take the processors that kernels run on for a second.
type starts struct{ places chan struct{} }

func newStarts(n int) starts { return starts{make(chan struct{}, max(n, 1))} }

// mostStarting is a quarter of the processors, as many as may compile at once.
func mostStarting() int { return runtime.NumCPU() / 4 }

// enter waits for a place, but not for longer than placePatience, and reports whether it took one.
func (s starts) enter(ctx context.Context) (took bool, err error) {
	patience := time.NewTimer(placePatience)
	defer patience.Stop()
	select {
	case s.places <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-patience.C:
		return false, nil
	}
}

// leaveAfter gives the place back as soon as one of the channels is closed, or after startPatience.
func (s starts) leaveAfter(serving, gone <-chan struct{}) {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-serving:
	case <-gone:
	case <-patience.C:
	}
	<-s.places
}
