package hypervisor

import (
	"time"

	"pegasus/vcpu"
)

// Account is a vCPU's shadow credit: the CPU time it would have left if the host accounted as Xen does, computed from
// its observed running and waiting. A positive credit is owed to the vCPU.
type Account struct {
	Weight      int64         // relative to the other accounts; at least 1
	CPUs        CPUSet        // the CPUs on which it may run
	Most        int           // limit on its part of a CPU's time, in ‰; at least 1; its quota, if less than 1000
	Ran, Waited time.Duration // in the period that ends
	Bound       time.Duration // Credit stays within ± that; 0: within ± the period
	Credit      time.Duration
	Earned      time.Duration // in the period that ended last

	State vcpu.VCPUState // its state as the period ends
	CPU   int            // where it runs, waits or ran last; -1: nowhere yet
	Next  int            // prediction: the part of the coming period that it runs, in ‰

	rests     bool          // reached the bound of its credit, and has not run since
	wants     time.Duration // average demand of CPU time in a period that it begins asleep
	leaves    time.Duration // average of the time it leaves unused in a period that it begins awake
	began     bool          // awake at the beginning of this period
	foretold  time.Duration // time predicted for this period by weight; valid if predicted is set
	off       time.Duration // average excess of its running time over the prediction
	predicted bool
	past      [10]doing // ended periods, latest first
}

// Settle updates accounts at the end of a period. Accounts that ran or waited earn their parts of the time of their
// CPUs by weight, each at most a whole CPU's; the remainder goes to the others. An account at the bound of its credit
// counts as idle: its credit is halved, and it earns nothing more until it runs.
func Settle(all []*Account, period time.Duration) {
	var claims []*claim
	for _, a := range all {
		a.Earned = 0
		if a.earns() {
			claims = append(claims, &claim{account: a, weight: a.Weight, cpus: a.CPUs, most: a.most(period)})
		}
	}
	divide(claims, period)
	for _, c := range claims {
		c.account.Earned = c.gets
	}
	for _, a := range all {
		if a.Ran > 0 {
			a.rests = false
		}
		bound := a.Bound
		if bound == 0 {
			bound = period
		}
		a.Credit = min(max(a.Credit+a.Earned-a.Ran, -bound), bound)
		if a.Credit == bound {
			a.Credit, a.rests = bound/2, true
		}
		a.learn(period)
	}
}

// most returns the longest time that the vCPU may run in a period.
func (a *Account) most(period time.Duration) time.Duration {
	return scale(period, int64(min(a.Most, 1000)), 1000)
}

func (a *Account) earns() bool { return a.Ran > 0 || a.Waited > 0 && !a.rests }
