package policies

import "time"

// mostSkips is what a site may set as MaxSkip.
const mostSkips = 64

// newCoSched lets the accelerator follow the CPUs: of those whose vCPUs run, who
// has the greatest balance is next; of all, when none of them runs. (Gupta et al.,
// "Pegasus: Coordinated Scheduling for Virtualized Accelerator-based Systems",
// USENIX ATC 2011.)
//
// A domain whose vCPU sleeps until its own call returns never runs, and would never
// be served. So nobody with work is passed over for more than MaxSkip ticks. In
// production mode nobody is urgent, though, before as many ticks as it takes the
// others to get their parts: with more domains than MaxSkip all would be urgent
// always.
func newCoSched(o Options) Policy {
	p := newCoordinated("cosched", o)
	p.choose, p.slack = p.follow, o.RotationCap
	p.patience = func(e *partner) time.Duration {
		skips := int64(o.MaxSkip)
		if o.Mode == Production {
			skips = min(max(skips, (p.total+e.credits-1)/e.credits), max(skips, mostSkips))
		}
		return time.Duration(skips) * o.Tick
	}
	return p
}

// follow chooses the greatest balance among those who run.
func (p *coordinated) follow(now Time) choice {
	var best choice
	var most int64
	for _, e := range p.scheduled(now) {
		if !p.line.has(e) {
			continue
		}
		x := e.at(p.pot, p.line.most)
		if p.opt.Mode == Production && x < -int64(p.slack)<<scaleBits { // its debt outweighs that its vCPU runs
			continue
		}
		if best.e == nil || x > most || x == most && e.place < best.e.place {
			best, most = choice{e: e, why: "the greatest of those whose vCPUs run"}, x
		}
	}
	if best.e == nil {
		best = choice{e: p.line.top(p.pot), why: "the greatest, and nobody's vCPU runs"}
	}
	return best
}
