package hypervisor

import "time"

// Tuner is a hypervisor that schedules machines' vCPUs itself, and has settings for their part of the CPUs. Its
// methods are safe for concurrent use.
type Tuner interface {
	// Tuned returns a machine's settings.
	Tuned(domain string) (Weight, error)
	// Tune changes the fields of t that are not nil. If one is invalid for the machine, Tune returns an error and
	// changes nothing.
	Tune(domain string, t Tuning) error
}

// Tuning are changes of a machine's part of the CPUs.
type Tuning struct {
	Weight *int
	Cap    *int           // in % of one CPU; 0 for none
	Slice  *time.Duration // longest time that a vCPU runs before others of its pool: of all machines in the pool
}
