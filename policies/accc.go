package policies

var _ = register(Spec{
	Name: "accc", Rank: 3, New: newAccC, Lends: Window, Share: byCredits, Params: []*Param{debtAF.Param},
	Serves: "one domain after the other, in descending order of credits",
	Part:   "in proportion to its credits (1 to 65535; 256 if not set)",
})

// newAccC returns the policy that gives windows in proportion to accelerator credits.
func newAccC(o Options) Policy { return newWindows("accc", o, byCredits) }
