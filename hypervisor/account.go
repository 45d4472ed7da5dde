package hypervisor

import (
	"time"

	"pegasus/vcpu"
)

// Account is a vCPU's shadow credit: what CPU time it would have left if the host
// counted as Xen does, computed from what it did. A positive credit is owed to it.
type Account struct {
	Weight      int64         // relative to the other accounts; at least 1
	CPUs        CPUSet        // where it may run
	Most        int           // of a CPU's time that it may run, in ‰; at least 1; its quota, if less than 1000
	Ran, Waited time.Duration // in the period that ends
	Bound       time.Duration // Credit stays within ± that; 0: within ± the period
	Credit      time.Duration
	Earned      time.Duration // in the period that ended last

	State vcpu.VCPUState // what it does as the period ends
	CPU   int            // where it runs, waits or ran last; -1: nowhere yet
	Next  int            // how much of the coming period it will run, in ‰

	rests    bool          // was owed as much as can be, and has not run since
	wants    time.Duration // to run in a period that it begins asleep, as it was lately
	leaves   time.Duration // of one that it begins awake
	began    bool          // awake, this period
	foretold time.Duration // to run in this period by weight, if told
	off      time.Duration // how much more it ran lately than was foretold
	told     bool
	past     [10]doing // that ended, the last one first
}

// Settle brings accounts up to date at the end of a period. Those that ran or waited
// earn their parts of the time of their CPUs by weight, each a whole CPU's at most;
// what these leave goes to the others. Who is owed as much as can be doesn't want it:
// its credit is halved, and it earns nothing more until it runs.
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

// most is the most that the vCPU may run in a period.
func (a *Account) most(period time.Duration) time.Duration {
	return scale(period, int64(min(a.Most, 1000)), 1000)
}

func (a *Account) earns() bool { return a.Ran > 0 || a.Waited > 0 && !a.rests }
