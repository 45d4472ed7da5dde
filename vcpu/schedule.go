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

// Parts of the coming period, in ‰: with soon of it, at least, a vCPU is one that runs in it, and with less than
// hardly it is none.
const (
	soon   = 500
	hardly = 250
)

// Scheduled says whether a vCPU of the sample's i-th domain runs in the coming period: it has most of that, or
// runs now. Whose slice is about to end does run now, but not when it matters: it isn't, if another domain has
// most of the period on its CPU.
func (s *Sample) Scheduled(i int) bool {
	for _, v := range s.Domains[i].VCPUs {
		if v.Next >= soon || v.State == Running && (v.Next >= hardly || !s.follows(i, v.PCPU)) {
			return true
		}
	}
	return false
}

// follows says whether a CPU goes to somebody else than the i-th domain for most of the coming period.
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
