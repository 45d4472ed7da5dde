package policies

// newAccC gives windows in proportion to accelerator credits.
func newAccC(o Options) Policy {
	return newWindows("accc", o, func(d Domain) Credits { return d.Credits.OrDefault() })
}

// newWindows makes a policy that gives one domain after the other a window, in
// proportion to what share says.
func newWindows(name string, o Options, share func(Domain) Credits) Policy {
	if o.Mode == Paper {
		return newRing(name, o, share)
	}
	return newFair(name, o, share)
}
