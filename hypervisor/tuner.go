package hypervisor

// Tuner is a hypervisor that schedules machines' vCPUs itself, and lets their part of the
// CPUs be set. Its methods are called by many goroutines.
type Tuner interface {
	// Tuned is what is set for a machine.
	Tuned(domain string) (Weight, error)
	// Tune sets what isn't nil: the weight, and the cap in % of one CPU, 0 for none. What the machine
	// can't have is refused.
	Tune(domain string, weight, cap *int) error
}
