package boost

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// Window returns until when a policy's action gives its domain the accelerator, as far as the CPUs should
// follow; 0: they shouldn't. Short leases aren't worth it, the duration of leases of requests is unknown, and
// a lease without end means that no other domain waits.
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
