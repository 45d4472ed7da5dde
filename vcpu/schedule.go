package vcpu

import "time"

// Sample is what is known of a hypervisor's schedule at one instant. Whoever made
// it does not change it any more.
type Sample struct {
	At      Time
	Period  time.Duration // the scheduling period that Next in VCPU speaks of
	Quality Quality
	Domains []Schedule // those on this accelerator, by ID
}

// Quality is how a Sample came about.
type Quality uint8

const (
	Unknown Quality = iota // there is no hypervisor, or it says nothing
	Shadow                 // computed again from what the vCPUs did
	Exact                  // told by the hypervisor
)

// Schedule is a domain's CPU side.
type Schedule struct {
	ID     ID
	Weight Credits // CPU credits; 0: unknown
	Cap    int     // of CPU time, in % of one CPU; 0: none
	// Remaining is the CPU credit that is left, in tenths of a millisecond of CPU
	// time, which is Xen's credit; the most that any of its vCPUs has.
	Remaining int64
	VCPUs     []VCPU
}

// VCPU is a virtual CPU.
type VCPU struct {
	ID    int
	PCPU  int // where it runs or ran last; -1: nowhere yet
	State VCPUState
	Next  int // how much of the coming period it will run, in ‰
}

// VCPUState is what a vCPU is doing.
type VCPUState uint8

const (
	Blocked VCPUState = iota
	BlockedOnAccelerator
	Runnable
	Running
)

// soon is the least part of the coming period, in ‰, that makes a vCPU one that
// runs in it.
const soon = 500

// Scheduled says whether one of the domain's vCPUs runs now or in most of the
// coming period.
func (s *Schedule) Scheduled() bool {
	for _, v := range s.VCPUs {
		if v.State == Running || v.Next >= soon {
			return true
		}
	}
	return false
}
