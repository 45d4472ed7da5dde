package soft

import (
	"testing"
	"time"
)

// A wait is polled soon at first, then at intervals of a small part of the time that it has lasted, and all polling of
// a domain takes a bounded part of a processor.
func TestPollPause(t *testing.T) {
	for _, c := range []struct {
		idle           time.Duration
		words, workers int
		want           time.Duration
	}{
		{0, 1, 1, 20 * time.Microsecond},
		{time.Millisecond, 1, 1, time.Millisecond / 32},
		{32 * time.Millisecond, 1, 1, time.Millisecond},
		{time.Hour, 1, 1, 10 * time.Millisecond},
		{0, 1000, 1, 2 * time.Millisecond},
		{0, 1, 2, 102 * time.Microsecond},
		{0, 64, 64, 6428 * time.Microsecond},
		{time.Hour, 64 * 60000, 64, 7686300 * time.Microsecond},
		{0, 0, 0, 20 * time.Microsecond},
	} {
		if got := pollPause(c.idle, c.words, c.workers); got != c.want {
			t.Errorf("pollPause(%v, %d words, %d workers) = %v, want %v", c.idle, c.words, c.workers, got, c.want)
		}
	}
}
