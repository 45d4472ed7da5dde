package cpus

import (
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

// domain is one that Xen has.
type domain struct {
	id    uint16
	info  control.Domain
	pool  *pool
	has   control.Params // that it is scheduled by,
	set   control.Params // and that were set: a weight may be another for moments
	read  int            // looks since has was
	vcpus []*unit        // those online, by number
	off   []*unit        // those that were, and may be again
}

// unit is a vCPU.
type unit struct {
	domain *domain
	number int
	state  vcpu.VCPUState
	rested vcpu.VCPUState // what it was when it was last seen not to run
	cpu    int
	next   int // how much of the coming period it will run, in ‰

	ran     time.Duration // ever
	waited  time.Duration // since it was first seen, about
	before  doings        // at the last look at the schedule
	account hypervisor.Account
	goes    time.Duration // for so long it has run without a break
	credit  time.Duration // that Credit2 would say it has left
	noted   *noted        // how long it waited, by the trace; nil: nobody knows
	exact   bool          // it is known by the trace what it has:
	has     time.Duration
}

// doings is what a vCPU did, ever.
type doings struct{ ran, waited time.Duration }

func (d *domain) weight() hypervisor.Weight {
	return hypervisor.Weight{Credits: vcpu.Credits(d.set.Weight), Cap: int(d.set.Cap)}
}

// schedule is the domain's as the contract has it.
func (d *domain) schedule() vcpu.Schedule {
	w := d.weight()
	s := vcpu.Schedule{Weight: w.Credits, Cap: w.Cap, VCPUs: make([]vcpu.VCPU, len(d.vcpus))}
	for i, u := range d.vcpus {
		s.VCPUs[i] = vcpu.VCPU{ID: u.number, PCPU: u.cpu, State: u.state, Next: u.next}
		if left := int64(u.left() / creditTime); i == 0 || left > s.Remaining {
			s.Remaining = left
		}
	}
	return s
}

// creditTime is what one of Xen's credits stands for.
const creditTime = 100 * time.Microsecond

func find(units []*unit, number int) *unit {
	for _, u := range units {
		if u.number == number {
			return u
		}
	}
	return nil
}

// see takes down what the hypervisor says of the vCPU, after so long. While it didn't run,
// it did what it was seen to do at both ends, half the time each.
func (u *unit) see(v control.VCPU, of control.Domain, passed time.Duration) {
	was := u.rested
	switch {
	case v.Running:
		u.state = vcpu.Running
	case v.Blocked, of.Flags&(control.DomainPaused|control.DomainDying|control.DomainShutdown) != 0:
		u.state, u.rested = vcpu.Blocked, vcpu.Blocked
	default:
		u.state, u.rested = vcpu.Runnable, vcpu.Runnable
	}
	idle := max(passed-max(v.CPUTime-u.ran, 0), 0)
	for _, s := range [2]vcpu.VCPUState{was, u.rested} {
		if s == vcpu.Runnable {
			u.waited += idle / 2
		}
	}
	u.cpu, u.ran = v.CPU, v.CPUTime
}
