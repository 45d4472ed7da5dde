package cpus

import (
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

// domain is the state of a Xen domain.
type domain struct {
	id    uint16
	info  control.Domain
	pool  *pool
	has   control.Params // the effective parameters,
	set   control.Params // and the configured ones: a weight may be raised temporarily
	read  int            // looks since has was read
	vcpus []*unit        // the online ones, by number
	off   []*unit        // those that were online, and may be again
}

// unit is a vCPU.
type unit struct {
	domain *domain
	number int
	state  vcpu.VCPUState
	rested vcpu.VCPUState // its state when it was last seen not to run
	cpu    int
	next   int // the predicted part of the coming period that it runs, in ‰

	ran     time.Duration // in total
	waited  time.Duration // since it was first seen, estimated
	before  runTimes      // at the last Look
	account hypervisor.Account
	goes    time.Duration // for how long it has run without a break
	credit  time.Duration // computed Credit2 credit
	noted   *noted        // its waiting time by the trace; nil: unknown
	exact   bool          // has is valid, by the trace:
	has     time.Duration
}

// runTimes are a vCPU's totals.
type runTimes struct{ ran, waited time.Duration }

func (d *domain) weight() hypervisor.Weight {
	return hypervisor.Weight{Credits: vcpu.Credits(d.set.Weight), Cap: int(d.set.Cap)}
}

// schedule returns the domain's schedule in the contract's form.
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

// creditTime is the CPU time of one Xen credit.
const creditTime = 100 * time.Microsecond

func find(units []*unit, number int) *unit {
	for _, u := range units {
		if u.number == number {
			return u
		}
	}
	return nil
}

// see applies the hypervisor's report of the vCPU, passed after the last one. A time in which it didn't run counts
// half for the state at its beginning and half for that at its end.
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
