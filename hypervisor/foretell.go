package hypervisor

import (
	"time"

	"pegasus/vcpu"
)

// Foretell sets Next of each account: the predicted part of the coming period that its vCPU runs. The predicted
// demand of an awake vCPU is its average demand in recent periods that it began awake: the whole period, unless it
// sometimes sleeps. The predicted demand of a sleeping vCPU is its average in recent periods that it began asleep. The
// vCPUs on one CPU share it by weight. The recent average error is added, which accounts for other load on the CPUs and
// for migrations.
//
// It is called every period after Settle, which measures the error.
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
		a.predicted = true
		a.Next = int(1000 * min(max(a.foretold+a.off, 0), a.budget(period)) / period)
	}
}

func (a *Account) awake() bool {
	return a.State != vcpu.Blocked && a.State != vcpu.BlockedOnAccelerator
}

// expected returns the predicted demand of the vCPU in a period. A vCPU held back by a quota doesn't wait, so the
// time that it didn't run is no rest.
func (a *Account) expected(period time.Duration) time.Duration {
	switch {
	case !a.awake():
		return min(a.wants, period)
	case a.Most < 1000:
		return period
	}
	return max(period-a.leaves, 0)
}

// where returns the CPU of which the vCPU shares the time.
func (a *Account) where() CPUSet {
	if a.CPU < 0 {
		return a.CPUs
	}
	var on CPUSet
	on.Add(a.CPU)
	return on
}

// doing is a vCPU's running time in a period.
type doing struct{ ran, period time.Duration }

// quotaPeriod is the default period of a quota. A vCPU may run until its quota is used up, and then not until the
// quota's period is over.
const quotaPeriod = 100 * time.Millisecond

// budget returns the quota's remainder for the coming period. The phase of the kernel's own periods is unknown; so
// budget assumes one that ends with ours.
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

// memory is the approximate number of periods in an account's averages.
const memory = 4

// learn updates the account's averages by the period that ended: the demand, and the prediction's error.
func (a *Account) learn(period time.Duration) {
	copy(a.past[1:], a.past[:])
	a.past[0] = doing{a.Ran, period}
	if wanted := min(a.Ran+a.Waited, period); a.began {
		a.leaves += (period - wanted - a.leaves) / memory
	} else {
		a.wants += (wanted - a.wants) / memory
	}
	a.began = a.awake()
	if a.predicted {
		a.off += (min(a.Ran, period) - a.foretold - a.off) / memory
	}
}
