package workers

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The number of a domain's workers that start at once is bounded, and each makes room when it serves, ends, or takes
// too long.
func TestStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStarts(2)
		began := time.Now()
		var started [5]time.Duration
		var serving, gone [5]chan struct{}
		for i := range started {
			serving[i], gone[i] = make(chan struct{}), make(chan struct{})
		}
		for i := range started {
			go func() {
				if took, err := s.Enter(t.Context()); !took || err != nil {
					t.Errorf("worker %d: place %v, %v", i, took, err)
				}
				started[i] = time.Since(began)
				s.LeaveAfter(serving[i], gone[i])
			}()
			synctest.Wait()
		}
		time.Sleep(time.Millisecond)
		close(serving[1])
		synctest.Wait()
		time.Sleep(time.Millisecond)
		close(gone[0])
		synctest.Wait()
		time.Sleep(2 * startPatience)
		close(serving[4])
		synctest.Wait()
		for i, want := range []time.Duration{0, 0, time.Millisecond, 2 * time.Millisecond, time.Millisecond + startPatience} {
			if started[i] != want {
				t.Errorf("worker %d started after %v, want %v", i, started[i], want)
			}
		}
		if len(s.places) != 0 {
			t.Errorf("%d places are taken at the end", len(s.places))
		}
	})
}

// A process whose domain closes while it waits takes no slot.
func TestStartsGivenUp(t *testing.T) {
	s, why := newStarts(0), errors.New("closed")
	if took, err := s.Enter(t.Context()); !took || err != nil {
		t.Fatal(took, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if took, err := s.Enter(ctx); took || !errors.Is(err, why) {
		t.Errorf("place %v, %v; want %v", took, err, why)
	}
}

// However many processes stop before their workers serve, each other process gets its worker before its own timeout.
func TestStartsBehindStopped(t *testing.T) {
	const stopped, answer = 40, 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newStarts(1)
		never := make(chan struct{})
		var all sync.WaitGroup
		start := func() {
			if took, err := s.Enter(t.Context()); err != nil {
				t.Error(err)
			} else if took {
				s.LeaveAfter(never, never)
			}
		}
		for range stopped {
			all.Go(start)
		}
		synctest.Wait()
		began := time.Now()
		took, err := s.Enter(t.Context())
		if waited := time.Since(began); err != nil || waited > answer/2 {
			t.Errorf("%v after %v", err, waited)
		}
		if took {
			s.LeaveAfter(never, never)
		}
		all.Wait()
		if len(s.places) != 0 {
			t.Errorf("%d places are taken at the end", len(s.places))
		}
	})
}
