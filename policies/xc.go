package policies

// newXC gives windows in proportion to CPU credits, the weight that the hypervisor
// has for the domain. Where there is no hypervisor all are equal, as under rr.
func newXC(o Options) Policy {
	return newWindows("xc", o, func(d Domain) Credits { return d.CPU.OrDefault() })
}

// credits are what a domain's part is in proportion to under the policies that look
// at both sides: CPU credits, so that the accelerator is shared as the CPUs are, or
// those of the accelerator where no hypervisor says anything.
func (o Options) credits(d Domain) Credits {
	if d.CPU == 0 || o.ByCredits {
		return d.Credits.OrDefault()
	}
	return d.CPU
}
