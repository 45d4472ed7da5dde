package policies

import "pegasus/vcpu"

// Functions for Spec.Share.

// equalShares returns the same credits for all domains.
func equalShares(*Options, Domain) Credits { return vcpu.DefaultCredits }

// byCredits returns the accelerator credits.
func byCredits(_ *Options, d Domain) Credits { return d.Credits.OrDefault() }

// byWeight returns the CPU credits, the hypervisor's weight for the domain.
func byWeight(_ *Options, d Domain) Credits { return d.CPU.OrDefault() }

// byBothSides returns CPU credits, so that the accelerator is shared like the CPUs, or accelerator credits where the
// CPU credits are unknown or preferCredits is set.
func byBothSides(o *Options, d Domain) Credits {
	if d.CPU == 0 || preferCredits.of(o) {
		return d.Credits.OrDefault()
	}
	return d.CPU
}

var preferCredits = newFlag(Param{Key: "by_credits", Doc: "accelerator credits count although CPU weights are available"})
