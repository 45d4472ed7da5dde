package boost

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// Window is until when a decision of a policy gives its domain the accelerator, as far as
// the CPUs should follow; 0: they shouldn't. Short leases aren't worth it, of requests
// nobody knows how long they take, and where a lease has no end nobody else waits.
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
