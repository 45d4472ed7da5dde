package vcpu

import "time"

// Sample is the hypervisor's schedule at one instant. It is immutable once made.
type Sample struct {
	At      Time
	Period  time.Duration // the scheduling period of VCPU.Next
	Quality Quality
	Domains []Schedule // those on this accelerator, by ID
}

// Quality is the origin of a Sample.
type Quality uint8

const (
	Unknown Quality = iota // there is no hypervisor, or it reports nothing
	Shadow                 // computed from the vCPUs' observed running and waiting
	Exact                  // reported by the hypervisor
)

// Schedule is a domain's CPU side.
type Schedule struct {
	ID     ID
	Weight Credits // CPU credits; 0: unknown
	Cap    int     // of CPU time, in % of one CPU; 0: none
	// Remaining is the CPU credit left, in tenths of a millisecond of CPU time, which is the unit of Xen's credit;
	// the largest of any of its vCPUs.
	Remaining int64
	VCPUs     []VCPU
}

// VCPU is a virtual CPU.
type VCPU struct {
	ID    int
	PCPU  int // where it runs or ran last; -1: nowhere yet
	State VCPUState
	Next  int // the predicted part of the coming period that it runs, in ‰
}

// VCPUState is a vCPU's state.
type VCPUState uint8

const (
	Blocked VCPUState = iota
	BlockedOnAccelerator
	Runnable
	Running
)

// Parts of the coming period, in ‰: with at least soon of it a vCPU counts as running in it, with less than hardly as
// not.
const (
	soon   = 500
	hardly = 250
)

// Scheduled reports whether a vCPU of the sample's i-th domain runs in the coming period: it has most of that, or
// runs now. A vCPU near the end of its slice doesn't count as running if another domain has most of the period on
// its CPU.
func (s *Sample) Scheduled(i int) bool {
	for _, v := range s.Domains[i].VCPUs {
		if v.Next >= soon || v.State == Running && (v.Next >= hardly || !s.follows(i, v.PCPU)) {
			return true
		}
	}
	return false
}

// follows reports whether a CPU goes to another domain than the i-th for most of the coming period.
func (s *Sample) follows(i, pcpu int) bool {
	for n := range s.Domains {
		for _, v := range s.Domains[n].VCPUs {
			if n != i && v.PCPU == pcpu && v.Next >= soon && v.State != Blocked && v.State != BlockedOnAccelerator {
				return true
			}
		}
	}
	return false
}
