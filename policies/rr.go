package policies

import "pegasus/vcpu"

// newRR returns round robin: equal windows, regardless of the credits.
func newRR(o Options) Policy {
	return newWindows("rr", o, func(Domain) Credits { return vcpu.DefaultCredits })
}
