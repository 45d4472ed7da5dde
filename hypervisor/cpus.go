package hypervisor

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"pegasus/vcpu"
)

// CPUs is the CPU side of domains: what part of the host's CPUs each was given, and
// what its vCPUs do with it. Policies that coordinate the accelerator with the CPUs
// follow it. It may be read slowly and seldom; nobody waits for it. Its methods are
// called by one goroutine.
type CPUs interface {
	// Weights returns what is set for each of the domains, in their order.
	Weights(of []Guests) []Weight
	// Look returns what the vCPUs of each of the domains do at now and will in the
	// coming period, in their order, the IDs not filled in. A domain whose CPU side
	// can't be seen has no vCPUs there. It is meant to be called once a period; the
	// first call, and one after a long pause, knows what runs but not what is owed.
	// Weights may be those that were last asked for.
	Look(now vcpu.Time, period time.Duration, of []Guests) ([]vcpu.Schedule, vcpu.Quality)
}

// Guests are a domain's processes on this host, by PID; none for a domain whose
// processes are not this host's.
type Guests struct {
	Domain    string
	Processes []int
}

// Weight is what a domain may have of the CPUs.
type Weight struct {
	Credits vcpu.Credits // in proportion to the others; 256 is what nothing set comes to; 0: unknown
	Cap     int          // in % of one CPU; 0: none
}

// Account is a vCPU's shadow credit: what CPU time it would have left if the host
// counted as Xen does, computed from what it did. A positive credit is owed to it.
type Account struct {
	Weight      int64         // relative to the other accounts; at least 1
	Ran, Waited time.Duration // in the period that ends
	Credit      time.Duration // within ± the period

	rests bool // was owed as much as can be, and has not run since
}

// Settle brings accounts up to date at the end of a period in which they shared so
// many CPUs. Those that ran or waited earn their parts of the CPUs' time by weight,
// at most a whole CPU's each; what these leave goes to the others. Who is owed as
// much as can be doesn't want it: its credit is halved, and it earns nothing more
// until it runs. all is left sorted by weight, the greatest first.
func Settle(all []*Account, period time.Duration, cpus int) {
	slices.SortStableFunc(all, func(a, b *Account) int { return cmp.Compare(b.Weight, a.Weight) })
	var weights int64
	for _, a := range all {
		if a.earns() {
			weights += a.Weight
		}
	}
	left := period * time.Duration(cpus)
	for _, a := range all {
		earned := time.Duration(0)
		if a.earns() {
			// The heaviest come first, so that what a whole CPU's time cuts off is left
			// to the others.
			earned = min(scale(left, a.Weight, weights), period)
			left -= earned
			weights -= a.Weight
		}
		if a.Ran > 0 {
			a.rests = false
		}
		a.Credit = min(max(a.Credit+earned-a.Ran, -period), period)
		if a.Credit == period {
			a.Credit, a.rests = period/2, true
		}
	}
}

func (a *Account) earns() bool { return a.Ran > 0 || a.Waited > 0 && !a.rests }

// scale is d·part/whole, for a part that is no more than the whole.
func scale(d time.Duration, part, whole int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return time.Duration(q)
}
