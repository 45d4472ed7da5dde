package policies

// newAccC returns the policy that gives windows in proportion to accelerator credits.
func newAccC(o Options) Policy {
	return newWindows("accc", o, func(d Domain) Credits { return d.Credits.OrDefault() })
}
