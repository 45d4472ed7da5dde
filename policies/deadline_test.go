package policies

import (
	"strings"
	"testing"
)

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
