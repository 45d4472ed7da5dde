package policies

import "pegasus/vcpu"

// newRR is round robin: equal windows, whatever the credits.
func newRR(o Options) Policy {
	return newWindows("rr", o, func(Domain) Credits { return vcpu.DefaultCredits })
}
