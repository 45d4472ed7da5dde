package policies

import (
	"math/bits"
	"time"
)

var _ = register(Spec{
	Name: "augc", Rank: 6, New: newAugC, Lends: Window, CPUs: Schedules, Share: byBothSides,
	Params: []*Param{debtAF.Param, preferCredits.Param, boost.Param},
	Serves: "tick by tick, with preference for domains whose vCPUs run with much CPU credit left",
	Part:   "in proportion to its CPU weight",
})

var boost = newCount(Param{Key: "boost", Zero: "CPU credit doesn't count", Doc: "factor of CPU credit"}, 4, 0, 16)

// newAugC returns the policy that chooses by the sum of balance and boost: a domain with a running vCPU is
// boosted by boost times the CPU credit that this vCPU has left. Boosts are not taken off the balance,
// which falls with every window, so no domain is denied its turn for long. (Gupta et al., "Pegasus:
// Coordinated Scheduling for Virtualized Accelerator-based Systems", USENIX ATC 2011.)
//
// In a rotation's time a domain's balance rises by a tick. Between the least and the greatest there are 2
// clamps, so it takes 2 + Boost rotations until it cannot rise any more, and the domain's patience is Boost
// rotations longer.
func newAugC(o Options) Policy {
	if o.Mode == Paper {
		return newPublishedAugC(o)
	}
	p := newCoordinated("augc", o)
	p.slack = o.reach()
	p.augment()
	return p
}

// augment makes the domain with the greatest sum of balance and boost the next one.
func (p *ticks) augment() {
	factor := time.Duration(p.opt.boost())
	p.choose = func(now Time) choice { return p.augmented(now, factor) }
	rotations := time.Duration(2+2*p.opt.boost()) * p.opt.span()
	p.patience = func(e *domainState) time.Duration {
		return scaleTime(rotations, p.pot.total, e.credits)
	}
}

// augmented returns the domain with the greatest sum of balance and boost.
func (p *ticks) augmented(now Time, factor time.Duration) choice {
	best := choice{e: p.pot.top(), why: "the greatest"}
	most := p.pot.balance(best.e)
	for _, e := range p.scheduled(now) {
		if !p.pot.line.has(e) {
			continue
		}
		boost := factor * e.remaining
		sum := p.pot.balance(e) + int64(boost)<<scaleBits
		if sum > most || sum == most && e.place < best.e.place {
			best, most = choice{e, boost, "the greatest sum"}, sum
		}
	}
	return best
}

// boost returns the factor of CPU credit.
func (o *Options) boost() int { return min(boost.of(o), 16) }

// scaleTime returns d·by/of, rounded up, at most patienceMost.
func scaleTime(d time.Duration, by, of int64) time.Duration {
	hi, lo := bits.Mul64(uint64(d), uint64(by))
	if hi >= uint64(of) {
		return patienceMost
	}
	q, rest := bits.Div64(hi, lo, uint64(of))
	if rest > 0 {
		q++
	}
	return time.Duration(min(q, uint64(patienceMost)))
}
