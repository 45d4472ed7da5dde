package cpus

import (
	"time"

	"pegasus/hypervisor/xen/control"
	"pegasus/vcpu"
)

// left is the credit that the hypervisor would say the vCPU has left, as far as that can be
// known.
//
// Credit hands out credits once a slice, for the slice that is over. When, isn't told. What an
// account has is up to date at all times; so of what it earned lately the hypervisor still
// keeps half a slice's worth, on average.
func (u *unit) left() time.Duration {
	if u.exact {
		return u.has
	}
	if u.domain.pool.info.Scheduler == control.Credit2 {
		return u.credit
	}
	return u.account.Credit - u.account.Earned/2
}

// believe corrects what was computed by what was chosen. When a slice is over, Credit lets
// another run that has credit left, if there is one. So where a vCPU has run for longer than a slice, those
// that wait for its CPU have nothing left, and what they were thought to have is its.
func (p *pool) believe(passed time.Duration) {
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

// What Credit2 goes by: all get so much when the one that would be next has none left, and
// keep no more than that of what they had.
const (
	credit2Init = 10 * time.Millisecond
	credit2Keep = 500 * time.Microsecond
)

// burn takes what vCPUs ran off what Credit2 gave them: the less the more their weight is,
// compared with the largest of the pool. Whoever wants to run and has most left is next. If
// that is nothing, all get something. Nobody's credit is far below nothing for long: who has
// less than the others isn't chosen.
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
