package policies

var _ = register(Spec{
	Name: "rr", Rank: 2, New: newRR, Lends: Window, Share: equalShares, Params: []*Param{debtAF.Param},
	Serves: "one domain after the other",
	Part:   "equal parts, whatever the credits",
})

// newRR returns round robin: equal windows, regardless of the credits.
func newRR(o Options) Policy { return newWindows("rr", o, equalShares) }
