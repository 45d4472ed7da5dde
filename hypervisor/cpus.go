package hypervisor

import (
	"time"

	"pegasus/vcpu"
)

// CPUs is the CPU side of domains: what part of the host's CPUs each was given, and
// what its vCPUs do with it. Policies that coordinate the accelerator with the CPUs
// follow it. Its methods are called by one goroutine at a time. Look is called by those who
// decide, too, just before they do; the others may be slow, since nobody waits for them.
type CPUs interface {
	// Weights returns what is set for each of the domains, in their order.
	Weights(of []Guests) []Weight
	// Look returns what the vCPUs of each of the domains do at now and will in the
	// coming period, in their order, the IDs not filled in. A domain whose CPU side
	// can't be seen has no vCPUs there. It is meant to be called once a period, or oftener; the
	// first call, and one after a long pause, knows what runs but not what is owed.
	// Weights may be those that were last asked for.
	Look(now vcpu.Time, period time.Duration, of []Guests) ([]vcpu.Schedule, vcpu.Quality)
	// Spent returns what the vCPUs of each of the domains did ever since they began, in
	// their order.
	Spent(of []Guests) []Spent
	// Close lets go of what looking needs, as long as nobody wants to: the next look
	// begins anew.
	Close()
}

// Spent is what a domain's vCPUs did, together.
type Spent struct {
	VCPUs  int           // that there are now
	Ran    time.Duration // on a CPU
	Waited time.Duration // for one, with something to do: what their guest calls steal
}

// Guests are a domain's processes on this host, by PID; none for a domain whose
// processes are not this host's.
type Guests struct {
	Domain    string
	Processes []int
	// VM says that the processes are emulators of a virtual machine, of whose threads
	// only some are vCPUs: VCPUs, by vCPU number, where the emulator told which, such
	// as by QMP's query-cpus-fast; else those named as QEMU names them.
	VM    bool
	VCPUs []int
	// Xen is a machine's number, if Xen runs it and not processes of this host; else 0.
	Xen uint16
}

// Weight is what a domain may have of the CPUs.
type Weight struct {
	Credits vcpu.Credits // in proportion to the others; 256 is what nothing set comes to; 0: unknown
	Cap     int          // in % of one CPU; 0: none
}

// Runs is when the vCPUs of domains run, looked at often, for a picture of it. Its
// methods are called by one goroutine.
type Runs interface {
	// Look tells of what ran since the last Look, each run by itself where that can be
	// known. One that goes on is told in pieces.
	Look(of []Guests, tell func(Run))
	Close()
}

// Run is a time during which a vCPU ran.
type Run struct {
	Domain   string
	VCPU     int   // its number; of a process guest, the thread's
	CPU      int   // of the host; -1: unknown
	From, To int64 // CLOCK_MONOTONIC ns
}
