package policies

// newXC gives windows in proportion to CPU credits, the weight that the hypervisor
// has for the domain. Where there is no hypervisor all are equal, as under rr.
func newXC(o Options) Policy {
	return newWindows("xc", o, func(d Domain) Credits { return d.CPU.OrDefault() })
}
