package hypervisor

import "time"

// Tuner is a hypervisor that schedules machines' vCPUs itself, and lets their part of the
// CPUs be set. Its methods are called by many goroutines.
type Tuner interface {
	// Tuned is what is set for a machine.
	Tuned(domain string) (Weight, error)
	// Tune sets what isn't nil. What the machine can't have is refused, and then nothing is set.
	Tune(domain string, t Tuning) error
}

// Tuning is what of a machine's part of the CPUs is to be set.
type Tuning struct {
	Weight *int
	Cap    *int           // in % of one CPU; 0 for none
	Slice  *time.Duration // for how long a vCPU may run before others of its pool have their turn: of all machines there
}
