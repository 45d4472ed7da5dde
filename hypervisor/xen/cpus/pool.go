package cpus

import (
	"slices"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/schedule"
	"pegasus/vcpu"
)

// pool is a CPU pool of Xen: a part of the host's CPUs exclusive to its domains.
type pool struct {
	info    control.Pool
	slice   time.Duration // of Credit
	cpus    hypervisor.CPUSet
	domains []*domain // in the order of their first sight

	accounts []*hypervisor.Account

	shadow      *schedule.CreditModel // Credit's credits, by the hypervisor's trace; nil: unknown
	shadowed    int                   // number of CPUs that shadow was made for,
	shadowSlice time.Duration         // and the period
}

func (p *pool) remove(d *domain) {
	p.domains = slices.DeleteFunc(p.domains, func(o *domain) bool { return o == d })
}

// defaultSlice is Credit's default.
const defaultSlice = 30 * time.Millisecond

// settle updates the vCPUs' credits after a time; `known` reports whether their activity in that time was read. A
// weight is each vCPU's, a cap that of all of a domain's vCPUs together.
func (p *pool) settle(passed time.Duration, known bool) {
	p.accounts = p.accounts[:0]
	for _, d := range p.domains {
		active := 0
		for _, u := range d.vcpus {
			u.spend(known)
			if u.account.Ran > 0 || u.account.Waited > 0 {
				active++
			}
		}
		for _, u := range d.vcpus {
			a := &u.account
			a.Weight, a.Most, a.CPUs, a.Bound = max(int64(d.has.Weight), 1), 1000, p.cpus, p.period()
			if limit := int(d.has.Cap); limit > 0 {
				a.Most = min(max(10*limit/max(active, 1), 1), 1000)
			}
			a.State, a.CPU = u.state, u.cpu
			p.accounts = append(p.accounts, a)
		}
	}
	if known {
		hypervisor.Settle(p.accounts, passed)
		for _, a := range p.accounts {
			a.Earned = a.Earned * p.period() / passed
		}
		if p.info.Scheduler == control.Credit2 {
			p.burn()
		} else {
			p.correctCredits(passed)
		}
	}
}

// period returns the period of Credit's hand-outs.
func (p *pool) period() time.Duration {
	if p.slice > 0 {
		return p.slice
	}
	return defaultSlice
}

// spend sets the account's times since the last look, if `known` is set. A runnable vCPU that didn't run has waited.
func (u *unit) spend(known bool) {
	a := &u.account
	a.Ran, a.Waited = 0, 0
	if known {
		a.Ran, a.Waited = max(u.ran-u.before.ran, 0), max(u.waited-u.before.waited, 0)
		if u.state == vcpu.Runnable {
			a.Waited = max(a.Waited, 1)
		}
	}
	u.before = runTimes{u.ran, u.waited}
}

// foretell sets each vCPU's predicted part of the coming period.
func (p *pool) foretell(period time.Duration) {
	hypervisor.Foretell(p.accounts, period)
	for _, d := range p.domains {
		for _, u := range d.vcpus {
			u.next = u.account.Next
		}
	}
}

// waiting returns the vCPUs that wait for a CPU.
func (p *pool) waiting(cpu int) (all []*unit) {
	for _, d := range p.domains {
		for _, u := range d.vcpus {
			if u.state == vcpu.Runnable && u.cpu == cpu {
				all = append(all, u)
			}
		}
	}
	return all
}

// next returns the vCPU with most credit among those that wait for a CPU.
func (p *pool) next(cpu int) (first *unit) {
	for _, u := range p.waiting(cpu) {
		if first == nil || u.left() > first.left() {
			first = u
		}
	}
	return first
}
