package policies

import (
	"strings"
	"testing"
	"time"
)

// TestServerWakes: 10 ms in 30 ms; 8 ms remain with 12 ms to go.
func TestServerWakes(t *testing.T) {
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
		s := Server{Runtime: 10 * ms, Period: 30 * ms, Remaining: c.remaining, Deadline: Time(30 * ms)}
		s.Wake(c.now, c.asleep)
		deadline := Time(30 * ms)
		if c.refilled {
			deadline = c.now.Add(30 * ms)
		}
		if s.Remaining != c.want || s.Deadline != deadline {
			t.Errorf("%s: %v remain until %v, not %v until %v", c.what, s.Remaining, s.Deadline, c.want, deadline)
		}
	}
}

// TestServerLeaks: a thread computes for 2 ms, sleeps for 16 ms on the accelerator
// and computes again. In the 30 ms for which it was granted 10 ms it gets 12 ms
// without the correction.
func TestServerLeaks(t *testing.T) {
	for _, c := range []struct{ asleep, want time.Duration }{{0, 12 * ms}, {16 * ms, 3 * ms}} {
		s := Server{Runtime: 10 * ms, Period: 30 * ms}
		s.Wake(0, 0)
		s.Remaining -= 2 * ms
		s.Wake(Time(18*ms), c.asleep)
		if got := 2*ms + min(s.Remaining, 12*ms); got != c.want {
			t.Errorf("with %v taken off it gets %v, not %v", c.asleep, got, c.want)
		}
	}
}

func TestFeasible(t *testing.T) {
	for _, c := range []struct {
		jobs []Job
		want string
	}{
		{nil, ""},
		{[]Job{{5 * ms, 5 * ms, 10 * ms}, {10 * ms, 5 * ms, 20 * ms}}, ""},
		{[]Job{{5 * ms, 5 * ms, 10 * ms}, {10 * ms, 6 * ms, 20 * ms}}, "job 0 may miss its deadline of 10ms: those due by then and the longest request of the others need 110.0 %"},
		{[]Job{{9 * ms, ms, 20 * ms}, {6 * ms, ms, 10 * ms}}, "job 0 may miss its deadline of 20ms"},
		{[]Job{{ms, ms, 0}}, "job 0 has a cost of 1ms, a longest request of 1ms and a deadline of 0s"},
	} {
		err := Feasible(c.jobs)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v, not %q", c.jobs, err, c.want)
		}
	}
}
