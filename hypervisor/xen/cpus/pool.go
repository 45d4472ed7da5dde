package cpus

import (
	"slices"
	"time"

	"pegasus/hypervisor"
	"pegasus/hypervisor/xen/control"
	"pegasus/hypervisor/xen/schedule"
	"pegasus/vcpu"
)

// pool is a part of the host's CPUs, whose domains have them to themselves.
type pool struct {
	info    control.Pool
	slice   time.Duration // of Credit
	cpus    hypervisor.CPUSet
	domains []*domain // that there are, in the order in which they came

	accounts []*hypervisor.Account

	shadow      *schedule.Shadow // of Credit, by the hypervisor's trace; nil: there is none
	shadowed    int              // CPUs that it is of
	shadowSlice time.Duration    // and the period
}

func (p *pool) remove(d *domain) {
	p.domains = slices.DeleteFunc(p.domains, func(o *domain) bool { return o == d })
}

// defaultSlice is Credit's, where it isn't told.
const defaultSlice = 30 * time.Millisecond

// settle brings the vCPUs' credits up to date after a time in which they did what was read,
// if that is known. A weight is each vCPU's, a cap all of a domain's together.
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
			p.believe(passed)
		}
	}
}

// period is that for which Credit hands out credits at once.
func (p *pool) period() time.Duration {
	if p.slice > 0 {
		return p.slice
	}
	return defaultSlice
}

// spend tells the account what the vCPU did since the last look, if it is known when. Who is
// awake and did not run has waited.
func (u *unit) spend(known bool) {
	a := &u.account
	a.Ran, a.Waited = 0, 0
	if known {
		a.Ran, a.Waited = max(u.ran-u.before.ran, 0), max(u.waited-u.before.waited, 0)
		if u.state == vcpu.Runnable {
			a.Waited = max(a.Waited, 1)
		}
	}
	u.before = doings{u.ran, u.waited}
}

// foretell says of each vCPU what part of the coming period it will run.
func (p *pool) foretell(period time.Duration) {
	hypervisor.Foretell(p.accounts, period)
	for _, d := range p.domains {
		for _, u := range d.vcpus {
			u.next = u.account.Next
		}
	}
}

// waiting are those who wait for a CPU.
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

// next is, of those who wait for a CPU, the one that is owed most.
func (p *pool) next(cpu int) (first *unit) {
	for _, u := range p.waiting(cpu) {
		if first == nil || u.left() > first.left() {
			first = u
		}
	}
	return first
}
