package sim

import (
	"testing"
	"time"
)

// TestServerWakes: 10 ms in 30 ms; 8 ms remain with 12 ms to go.
func TestServerWakes(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		what              string
		remaining, asleep time.Duration
		now               Time
		want              time.Duration
		refilled          bool
	}{
		{"8/12 > 10/30: the kernel refills", 8 * ms, 0, Time(18 * ms), 10 * ms, true},
		{"6 ms on the accelerator: 2/12 < 10/30", 8 * ms, 6 * ms, Time(18 * ms), 2 * ms, false},
		{"exactly its part", 4 * ms, 0, Time(18 * ms), 4 * ms, false},
		{"a little more", 4*ms + 1, 0, Time(18 * ms), 10 * ms, true},
		{"it slept for longer than it had left", 3 * ms, 6 * ms, Time(18 * ms), ms, false},
		{"less than a millisecond was left", ms / 2, 6 * ms, Time(18 * ms), ms / 2, false},
		{"after its deadline", 0, 6 * ms, Time(30 * ms), 10 * ms, true},
	} {
		s := server{runtime: 10 * ms, period: 30 * ms, remaining: c.remaining, deadline: Time(30 * ms)}
		s.wake(c.now, c.asleep)
		deadline := Time(30 * ms)
		if c.refilled {
			deadline = c.now.Add(30 * ms)
		}
		if s.remaining != c.want || s.deadline != deadline {
			t.Errorf("%s: %v remain until %v, not %v until %v", c.what, s.remaining, s.deadline, c.want, deadline)
		}
	}
}

// TestServerLeaks: a thread computes for 2 ms, sleeps for 16 ms on the accelerator
// and computes again. In the 30 ms for which it was granted 10 ms it gets 12 ms
// without the correction.
func TestServerLeaks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct{ asleep, want time.Duration }{{0, 12 * ms}, {16 * ms, 3 * ms}} {
		s := server{runtime: 10 * ms, period: 30 * ms}
		s.wake(0, 0)
		s.remaining -= 2 * ms
		s.wake(Time(18*ms), c.asleep)
		if got := 2*ms + min(s.remaining, 12*ms); got != c.want {
			t.Errorf("with %v taken off it gets %v, not %v", c.asleep, got, c.want)
		}
	}
}
