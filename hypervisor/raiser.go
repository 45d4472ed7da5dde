package hypervisor

// Raiser changes virtual machines' parts of the CPUs temporarily, by the weights of the cgroups that they have to
// themselves. A weight that another program sets stays the configured one: a Raiser records its own writes. Its
// methods are called by one goroutine, but CPUs of the same host may call it concurrently.
type Raiser interface {
	// Groups returns the groups of those machines that have a group with a changeable weight, in the machines' order.
	Groups(of []Guests) []Group
	// Raise sets another weight for a machine. An error reports that its group is out of reach; changed, that it had
	// a weight that we didn't write, which stays: see Groups.
	Raise(domain string, weight int64) (changed bool, err error)
	// Restore restores the configured weights of all machines.
	Restore()
}

// Group is a machine's cgroup.
type Group struct {
	Domain      string
	Parent      string // the group in which it shares the CPUs with others, by weight
	Weight      int64  // the configured weight,
	Has         int64  // and the current one
	Least, Most int64  // the valid range
	Others      int64  // sum of the weights of Parent's other members that used CPUs lately
}
