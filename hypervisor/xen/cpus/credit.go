package cpus

import (
	"time"

	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

// left returns the vCPU's remaining credit as the hypervisor would account it, as far as that can be estimated.
//
// Credit hands out credits once a slice, for the slice that is over, at an unreported time. The account is always up
// to date; so of the recent earnings the hypervisor still keeps back half a slice's worth, on average.
func (u *unit) left() time.Duration {
	if u.exact {
		return u.has
	}
	if u.domain.pool.info.Scheduler == control.Credit2 {
		return u.credit
	}
	return u.account.Credit - u.account.Earned/2
}

// correctCredits corrects the computed credits by the scheduler's decisions. When a slice is over, Credit selects
// another vCPU that has credit left, if there is one. So where a vCPU has run for longer than a slice, the vCPUs that
// wait for its CPU have no credit left, and their computed credit is moved to it.
func (p *pool) correctCredits(passed time.Duration) {
	for _, d := range p.domains {
		for _, u := range d.vcpus {
			if u.account.Ran < passed*9/10 {
				u.goes = 0
				continue
			}
			if u.goes += u.account.Ran; u.goes <= p.period() {
				continue
			}
			for _, w := range p.waiting(u.cpu) {
				if left := w.left(); left > 0 && w.account.Ran == 0 {
					w.account.Credit -= left
					u.account.Credit = min(u.account.Credit+left, p.period())
				}
			}
		}
	}
}

// Credit2's parameters: when the next vCPU has no credit left, all get credit2Init, and keep at most credit2Keep of
// their previous credit.
const (
	credit2Init = 10 * time.Millisecond
	credit2Keep = 500 * time.Microsecond
)

// burn subtracts the vCPUs' running time from their Credit2 credit: less for a larger weight, relative to the pool's
// largest. The runnable vCPU with most credit is next. If it has none, all are reset. No credit is far below zero for
// long: a vCPU with less than the others isn't selected.
func (p *pool) burn() {
	largest := uint16(1)
	for _, d := range p.domains {
		largest = max(largest, d.has.Weight)
	}
	most, any := time.Duration(0), false
	for _, d := range p.domains {
		for _, u := range d.vcpus {
			u.credit = max(u.credit-u.account.Ran*time.Duration(largest)/time.Duration(max(d.has.Weight, 1)), -credit2Init)
			if u.state != vcpu.Blocked && (!any || u.credit > most) {
				most, any = u.credit, true
			}
		}
	}
	if !any || most > 0 {
		return
	}
	times := -most/credit2Init + 1
	for _, d := range p.domains {
		for _, u := range d.vcpus {
			u.credit = min(u.credit+times*credit2Init, credit2Init+credit2Keep)
		}
	}
}
