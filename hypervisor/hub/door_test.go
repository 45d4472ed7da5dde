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
