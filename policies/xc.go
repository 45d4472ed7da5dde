package policies

var _ = register(Spec{
	Name: "xc", Rank: 4, New: newXC, Lends: Window, CPUs: Weights, Share: byWeight, Params: []*Param{debtAF.Param},
	Serves: "one domain after the other, in descending order of CPU weights",
	Part:   "in proportion to its CPU weight",
})

// newXC returns the policy that gives windows in proportion to CPU credits, the hypervisor's weight for the domain. Without a
// hypervisor all domains are equal, as under rr.
func newXC(o Options) Policy { return newWindows("xc", o, byWeight) }
