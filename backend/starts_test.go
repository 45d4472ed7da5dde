package backend

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// No more workers of a domain start at once than may, and each makes room when it serves, ends, or takes too long.
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
				if err := s.enter(t.Context()); err != nil {
					t.Error(err)
				}
				started[i] = time.Since(began)
				s.leaveAfter(serving[i], gone[i])
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

// A process that goes away while it waits takes no place.
func TestStartsGivenUp(t *testing.T) {
	s, why := newStarts(0), errors.New("gone")
	if err := s.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := s.enter(ctx); !errors.Is(err, why) {
		t.Errorf("%v, want %v", err, why)
	}
}
