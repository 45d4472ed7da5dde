package sched

import (
	"testing"
	"time"

	"pegasus/configs"
)

// The cost of a context switch is the measured one, unless it is configured.
func TestMeasuredChange(t *testing.T) {
	for _, c := range []struct{ said, measured, want time.Duration }{
		{configs.SwitchCost, 0, configs.SwitchCost},
		{configs.SwitchCost, 90 * time.Microsecond, 90 * time.Microsecond},
		{time.Millisecond, 90 * time.Microsecond, time.Millisecond},
	} {
		if got := policyOptions(configs.Accelerator{SwitchCost: c.said, Change: c.measured}).SwitchCost; got != c.want {
			t.Errorf("%v, measured %v: %v, want %v", c.said, c.measured, got, c.want)
		}
	}
}
