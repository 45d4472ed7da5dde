package workers

import (
	"context"
	"runtime"
	"time"
)

const (
	// startPatience is how long a worker that does not reach serving occupies a start slot of its domain.
	startPatience = time.Second
	// placePatience is after how long a worker starts without a slot: processes that stop before their workers serve
	// may occupy all slots, and a process gives up when it has waited for an answer for 10 s.
	placePatience = 5 * time.Second
)

// Starts bounds how many workers of a domain start at once. A starting worker takes as much processor time of the host
// as ten short kernels, and a domain of many processes that start together would occupy for a second the processors on
// which kernels run.
type Starts struct{ places chan struct{} }

// NewStarts returns a bound of a quarter of the processors, as many as may compile at once.
func NewStarts() Starts { return newStarts(runtime.NumCPU() / 4) }

func newStarts(n int) Starts { return Starts{make(chan struct{}, max(n, 1))} }

// Enter waits for a start slot, for at most placePatience, and reports whether it took one.
func (s Starts) Enter(ctx context.Context) (took bool, err error) {
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

// LeaveAfter returns the slot when one of the channels is closed, or after startPatience.
func (s Starts) LeaveAfter(serving, gone <-chan struct{}) {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-serving:
	case <-gone:
	case <-patience.C:
	}
	<-s.places
}
