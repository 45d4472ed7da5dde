package hypervisor

import (
	"time"

	"pegasus/vcpu"
)

// CPUs is the CPU side of domains: each domain's part of the host's CPUs, and the state of its vCPUs. Policies that
// coordinate the accelerator with the CPUs use it. Its methods are called by one goroutine at a time. The scheduler
// loop calls Look just before a decision, so Look is fast; no caller of the other methods is time-critical.
type CPUs interface {
	// Weights returns the configured weight of each domain, in their order.
	Weights(of []Guests) []Weight
	// Look returns the state of each domain's vCPUs at now and the prediction for the coming period, in the domains'
	// order, with the IDs left empty. A domain without an observable CPU side has no vCPUs there. It is to be called
	// at least once a period; the first call, and one after a long pause, returns states but no credits. Weights may
	// be those of the last call of Weights.
	Look(now vcpu.Time, period time.Duration, of []Guests) ([]vcpu.Schedule, vcpu.Quality)
	// Spent returns the totals of each domain's vCPUs since they began, in the domains' order.
	Spent(of []Guests) []Spent
	// Close releases the resources of sampling until the next Look, which acquires them again.
	Close()
}

// Spent is the sum over a domain's vCPUs.
type Spent struct {
	VCPUs  int           // current number of vCPUs
	Ran    time.Duration // on a CPU
	Waited time.Duration // runnable without a CPU: the guest's steal time
}

// Guests are a domain's processes on this host, by PID; none for a domain that does not run as processes of this
// host.
type Guests struct {
	Domain    string
	Processes []int
	// VM: the processes are emulators of a virtual machine, and only some of their threads are vCPUs: VCPUs, by vCPU
	// number, where the emulator reported them, such as by QMP's query-cpus-fast; else the threads that have QEMU's
	// names for vCPUs.
	VM    bool
	VCPUs []int
	// Xen is the domain number of a machine that Xen runs without a process of this host; else 0.
	Xen uint16
}

// Weight is a domain's entitlement to the CPUs.
type Weight struct {
	Credits vcpu.Credits // in proportion to the others; 256 is the default; 0: unknown
	Cap     int          // in % of one CPU; 0: none
}

// Runs samples at short intervals when the vCPUs of domains run, for a timeline. Its methods are called by one
// goroutine.
type Runs interface {
	// Look calls emit with the runs since the last Look, each by itself where the source separates them. A run in
	// progress is reported in pieces.
	Look(of []Guests, emit func(Run))
	Close()
}

// Run is an interval during which a vCPU ran.
type Run struct {
	Domain   string
	VCPU     int   // its number; of a process guest, the thread's
	CPU      int   // of the host; -1: unknown
	From, To int64 // CLOCK_MONOTONIC ns
}
