package hub

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// A daemon that doesn't answer is asked for one process after the other, and not for those that have gone.
func TestGoneBeforeAsked(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var d door
	var asked atomic.Int32
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := d.dial(ctx, func() (string, error) {
				asked.Add(1)
				cancel()
				return "", errors.New("no answer")
			}); !errors.Is(err, errAway) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("it is asked %d times", n)
	}
}

// A daemon that won't have the domain isn't away, nor asked again.
func TestRefusal(t *testing.T) {
	no := &Refusal{errors.New("the domain isn't declared")}
	var d door
	asked := 0
	_, err := d.dial(t.Context(), func() (string, error) { asked++; return "", no })
	if err != no || asked != 1 {
		t.Errorf("after %d times: %v", asked, err)
	}
}
