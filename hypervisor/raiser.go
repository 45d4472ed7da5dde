package hypervisor

// Raiser changes what parts of the CPUs virtual machines have, for moments, by the
// weights of the cgroups that they have to themselves. What others set stays what is
// set: a Raiser knows what it wrote. Its methods are called by one goroutine, but CPUs
// of the same host may ask beside it.
type Raiser interface {
	// Groups returns the groups of those of the machines that have one whose weight can
	// be changed, in their order.
	Groups(of []Guests) []Group
	// Raise gives a machine another weight. An error says that its group is out of reach;
	// changed, that it had another weight than we gave it, which stays: see Groups.
	Raise(domain string, weight int64) (changed bool, err error)
	// Restore gives all machines the weights that are set for them.
	Restore()
}

// Group is a machine's cgroup.
type Group struct {
	Domain      string
	Parent      string // where it shares the CPUs with others, by weight
	Weight      int64  // that is set for it,
	Has         int64  // and that it has for the moment
	Least, Most int64  // that there can be
	Others      int64  // weights of those in Parent that aren't such groups, and used CPUs lately
}
