package backend

import (
	"testing"
	"time"

	"pegasus/configs"
	"pegasus/policies"
)

// The cost of a context switch is the measured one, unless it is configured.
func TestMeasuredChange(t *testing.T) {
	cost := policies.Parameter("switch_cost")
	standard := time.Duration(cost.Default)
	for _, c := range []struct{ said, measured, want time.Duration }{
		{standard, 0, standard},
		{standard, 90 * time.Microsecond, 90 * time.Microsecond},
		{time.Millisecond, 90 * time.Microsecond, time.Millisecond},
	} {
		a := configs.Accelerator{Change: c.measured}
		a.Params.Set(cost, int64(c.said))
		o := policyOptions(a)
		if got := time.Duration(o.Get(cost)); got != c.want {
			t.Errorf("%v, measured %v: %v, want %v", c.said, c.measured, got, c.want)
		}
	}
}
