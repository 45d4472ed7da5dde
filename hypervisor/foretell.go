package hypervisor

import (
	"time"

	"pegasus/vcpu"
)

// Foretell says of each account how much of the coming period its vCPU will run, in
// Next. Who is awake is taken to want what it wanted lately when a period found it
// awake, which is all of it unless it rests now and then, and who sleeps what it wanted
// when one found it asleep; they share the CPU that each is on by weight. What that was off
// lately is added: so it is learned what else wants the CPUs, and who was moved where.
//
// Every period this comes after Settle, which sees how well it was foretold.
func Foretell(all []*Account, period time.Duration) {
	var claims []*claim
	for _, a := range all {
		a.foretold, a.Next = 0, 0
		if most := min(a.expected(period), a.budget(period)); most > 0 {
			claims = append(claims, &claim{account: a, weight: a.Weight, cpus: a.where(), most: most})
		}
	}
	divide(claims, period)
	for _, c := range claims {
		c.account.foretold = c.gets
	}
	for _, a := range all {
		a.told = true
		a.Next = int(1000 * min(max(a.foretold+a.off, 0), a.budget(period)) / period)
	}
}

func (a *Account) awake() bool {
	return a.State != vcpu.Blocked && a.State != vcpu.BlockedOnAccelerator
}

// expected is how much of a period the vCPU will want. Who is held back by a quota
// doesn't wait, so what it didn't run is no rest.
func (a *Account) expected(period time.Duration) time.Duration {
	switch {
	case !a.awake():
		return min(a.wants, period)
	case a.Most < 1000:
		return period
	}
	return max(period-a.leaves, 0)
}

// where is the CPU whose time it will share.
func (a *Account) where() CPUSet {
	if a.CPU < 0 {
		return a.CPUs
	}
	var on CPUSet
	on.Add(a.CPU)
	return on
}

// doing is how long a vCPU ran in a period.
type doing struct{ ran, period time.Duration }

// quotaPeriod is the time of which a quota is a part, where nobody set another. A
// vCPU may run as long as that is not used up, and then not until it is over.
const quotaPeriod = 100 * time.Millisecond

// budget is what the quota leaves to the vCPU in the coming period. When the kernel's
// own periods begin isn't known; so it is what is left of one that ends with ours.
func (a *Account) budget(period time.Duration) time.Duration {
	if a.Most >= 1000 || period >= quotaPeriod {
		return a.most(period)
	}
	left, back := a.most(quotaPeriod), quotaPeriod-period
	for _, p := range a.past {
		if p.period == 0 || back <= 0 {
			break
		}
		left -= scale(p.ran, int64(min(p.period, back)), int64(p.period))
		back -= p.period
	}
	return min(max(left, 0), period)
}

// memory is how many periods, about, that means look back which an account keeps.
const memory = 4

// learn has the account see a period that is over: what was wanted in it, and how
// well that was foretold.
func (a *Account) learn(period time.Duration) {
	copy(a.past[1:], a.past[:])
	a.past[0] = doing{a.Ran, period}
	if wanted := min(a.Ran+a.Waited, period); a.began {
		a.leaves += (period - wanted - a.leaves) / memory
	} else {
		a.wants += (wanted - a.wants) / memory
	}
	a.began = a.awake()
	if a.told {
		a.off += (min(a.Ran, period) - a.foretold - a.off) / memory
	}
}
