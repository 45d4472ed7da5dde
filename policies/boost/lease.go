package boost

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// Window returns the end of the time for which an action gives its domain the accelerator, or 0 if the CPU weight
// should not follow: for a lease that is short, counts requests (its duration is unknown), or has no end (no
// other domain waits), and for an action that closes the gate.
func Window(now vcpu.Time, a *policies.Action) vcpu.Time {
	until := vcpu.Time(0)
	switch l := &a.Lease; {
	case !a.Open:
	case l.Kind == policies.Budget:
		until = now.Add(time.Duration(l.Amount))
	case l.Kind == policies.Window && l.Until != vcpu.Forever:
		until = l.Until
	}
	if until.Sub(now) < MinWindow {
		return 0
	}
	return until
}
