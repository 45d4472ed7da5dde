package policies

// newXC returns the policy that gives windows in proportion to CPU credits, the hypervisor's weight for the domain. Without a
// hypervisor all domains are equal, as under rr.
func newXC(o Options) Policy {
	return newWindows("xc", o, func(d Domain) Credits { return d.CPU.OrDefault() })
}

// credits returns the credits to which a domain's part is in proportion under the policies that consider both
// sides: CPU credits, so that the accelerator is shared like the CPUs, or accelerator credits where the CPU
// credits are unknown.
func (o Options) credits(d Domain) Credits {
	if d.CPU == 0 || o.ByCredits {
		return d.Credits.OrDefault()
	}
	return d.CPU
}
