package backend

import (
	"context"
	"runtime"
	"time"
)

// startPatience is for how long a worker that doesn't come to serve keeps others of its domain from starting.
const startPatience = time.Second

// starts bounds how many workers of a domain start at once. A worker that starts takes processor time of the host as long as ten
// short kernels do, and a domain of many processes that start together would take the processors that kernels run on for a second.
type starts struct{ places chan struct{} }

func newStarts(n int) starts { return starts{make(chan struct{}, max(n, 1))} }

// mostStarting is a quarter of the processors, as many as may compile at once.
func mostStarting() int { return runtime.NumCPU() / 4 }

// enter waits for a place.
func (s starts) enter(ctx context.Context) error {
	select {
	case s.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
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
