package policies

import "time"

// mostSkips is the greatest max_skip that a site may set.
const mostSkips = 64

var _ = register(Spec{
	Name: "cosched", Rank: 7, New: newCoSched, Lends: Window, CPUs: Schedules, Share: byBothSides,
	Params: []*Param{debtAF.Param, preferCredits.Param, maxSkip.Param},
	Serves: "tick by tick, domains whose vCPUs run",
	Part:   "about in proportion to its CPU weight",
})

var maxSkip = newCount(Param{Key: "max_skip", Doc: "ticks for which a domain with work is passed over"}, 4, 1, mostSkips)

// newCoSched returns the policy that follows the CPUs: of the domains with running vCPUs, the one with the greatest
// balance is next; of all domains if no vCPU runs. (Gupta et al., "Pegasus: Coordinated Scheduling for Virtualized
// Accelerator-based Systems", USENIX ATC 2011.)
//
// A domain with a vCPU that sleeps until its own call returns never runs, and would never be served. So no domain with
// work is passed over for more than max_skip ticks. However, no domain is urgent before as many ticks as the others
// need to get their parts: with more domains than max_skip all would be urgent always.
func newCoSched(o Options) Policy {
	if o.Mode == Paper {
		return newPublishedCoSched(o)
	}
	p := newCoordinated("cosched", o)
	p.slack = o.RotationCap
	least := -int64(p.slack) << scaleBits
	p.choose = func(now Time) choice { return p.follow(now, least) }
	most := int64(maxSkip.of(&o))
	p.patience = func(e *domainState) time.Duration {
		skips := min(max(most, (p.pot.total+e.credits-1)/e.credits), max(most, mostSkips))
		return time.Duration(skips) * o.Tick
	}
	return p
}

// follow returns the domain with the greatest balance among those with running vCPUs. A balance below least, in 1/scale
// ns, outweighs that a vCPU runs.
func (p *ticks) follow(now Time, least int64) choice {
	var best choice
	var most int64
	for _, e := range p.scheduled(now) {
		if !p.pot.line.has(e) {
			continue
		}
		x := p.pot.balance(e)
		if x < least {
			continue
		}
		if best.e == nil || x > most || x == most && e.place < best.e.place {
			best, most = choice{e: e, why: "the greatest of those whose vCPUs run"}, x
		}
	}
	if best.e == nil {
		best = choice{e: p.pot.top(), why: "the greatest, and no domain's vCPU runs"}
	}
	return best
}
