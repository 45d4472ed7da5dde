package policies

import (
	"fmt"
	"slices"
	"time"
)

// slaf adds feedback to windows by credits: a domain may have an objective, the least part of the
// accelerator's time that it expects. Every scan interval the policy finds the domains that got less although there
// was demand; each of these gets a tick more in its next windows, one a rotation, until the missing time is
// made up for. (Gupta et al., "Pegasus: Coordinated Scheduling for Virtualized Accelerator-based Systems",
// USENIX ATC 2011.)
//
// Windows are in proportion to CPU credits; for domains without CPU credits, and with by_credits, to
// accelerator credits. An objective is compared to the use, and extra ticks make up for time missed before, not for
// time missed since. The published algorithm is publishedSLAF.
type slaf struct {
	windows  Policy
	opt      Options
	interval time.Duration // of scans

	members  map[ID]*objective
	promised []*objective // the domains with an objective
	sum      int64        // of the objectives, in ‰
	next     Time         // scan
	opened   *objective   // the window's owner
	// passes is called with the time for which a domain had the window and a context; nil: the use counts.
	passes func(o *objective, d time.Duration)

	missed     int // objectives missed at the last scan
	overloaded bool
	clean      int // consecutive scans without a missed objective
}

// objective is a domain's objective, and its record since the last scan.
type objective struct {
	id      ID
	slo     int64 // ‰ of the accelerator; 0: none
	context bool
	from    Time // of what follows
	served  time.Duration
	repaid  time.Duration // the part of it that was extra
	demand  time.Duration // it had work
	working bool
	since   Time // up to when demand and served are counted
	extra   int  // ticks to come
}

const (
	// sloMost is the limit of an accelerator's promised part, in ‰.
	sloMost = 950
	// calm is the number of scans without a miss that ends an overload.
	calm = 5
)

var _ = register(Spec{
	Name: "slaf", Rank: 5, New: newSLAF, Lends: Window, CPUs: Weights, Share: byBothSides,
	Params: []*Param{debtAF.Param, preferCredits.Param, scan.Param},
	Serves: "one domain after the other, with an extra tick for a domain that missed its objective",
	Part:   "in proportion to its CPU weight, but at least its objective",
})

var scan = newDuration(Param{Key: "scan", Doc: "interval at which objectives are checked"}, time.Second, 100*ms, 10*time.Second)

func newSLAF(o Options) Policy {
	if o.Mode == Paper {
		return newPublishedSLAF(o)
	}
	p := newObjectives(o)
	w := newFair("slaf", o, byBothSides)
	w.extra = p.repay
	p.windows = w
	return p
}

func newObjectives(o Options) *slaf {
	return &slaf{opt: o, interval: scan.of(&o), members: make(map[ID]*objective)}
}

// repay consumes one of a domain's additional ticks and returns it. The tick makes up for time missed before.
func (p *slaf) repay(id ID) int {
	n := p.extra(id)
	p.members[id].repaid += time.Duration(n) * p.opt.Tick
	return n
}

// extra consumes one of a domain's additional ticks and returns it.
func (p *slaf) extra(id ID) int {
	o := p.members[id]
	if o.extra == 0 {
		return 0
	}
	o.extra--
	return 1
}

func (p *slaf) Attach(now Time, d Domain) {
	p.windows.Attach(now, d)
	o := p.members[d.ID]
	if o == nil {
		o = &objective{id: d.ID, from: now, since: now}
		p.members[d.ID] = o
	}
	p.promise(now, o, min(max(int64(d.Promise.SLO), 0), 1000))
}

// promise sets a domain's objective.
func (p *slaf) promise(now Time, o *objective, slo int64) {
	if len(p.promised) == 0 && !p.overloaded {
		p.next = now.Add(p.interval)
	}
	p.sum += slo - o.slo
	switch {
	case o.slo == 0 && slo > 0:
		p.promised = append(p.promised, o)
		p.begin(now, o)
	case o.slo > 0 && slo == 0:
		p.promised = slices.DeleteFunc(p.promised, func(other *objective) bool { return other == o })
		o.extra = 0
	}
	o.slo = slo
	p.watch()
}

// watch sets overloaded at once if too much has been promised.
func (p *slaf) watch() {
	if p.sum > sloMost {
		p.overloaded, p.clean = true, 0
	}
}

func (p *slaf) Detach(now Time, id ID) {
	p.windows.Detach(now, id)
	p.dismiss(now, p.members[id])
	delete(p.members, id)
}

// dismiss removes the objective and state of a domain that has left.
func (p *slaf) dismiss(now Time, o *objective) {
	p.promise(now, o, 0)
	o.context, o.working = false, false
	if p.opened == o {
		p.opened = nil
	}
}

// Keeps returns true: the windows have accounts.
func (p *slaf) Keeps() bool { return true }

func (p *slaf) Leave(now Time, id ID) {
	p.windows.(Ledger).Leave(now, id)
	p.dismiss(now, p.members[id])
}

func (p *slaf) Balance(now Time, id ID) time.Duration { return p.windows.(Ledger).Balance(now, id) }

func (p *slaf) Restore(now Time, id ID, balance time.Duration) {
	p.windows.(Ledger).Restore(now, id, balance)
}

func (p *slaf) Wake(since Time, id ID, s Signal) {
	p.windows.Wake(since, id, s)
	o := p.members[id]
	p.count(since, o)
	switch s {
	case Arrived:
		o.working = true
	case Drained:
		o.working = false
	case ContextOpened:
		o.context = true
	case ContextClosed:
		o.context, o.working = false, false
	}
}

// count adds the time since its last call to demand.
func (p *slaf) count(now Time, o *objective) {
	passed := now.Sub(o.since)
	if passed <= 0 {
		return
	}
	o.since = now
	if o.working {
		o.demand += passed
	}
	if p.passes != nil && o == p.opened && o.context {
		p.passes(o, passed)
	}
}

func (p *slaf) Charge(now Time, id ID, u Usage) {
	p.windows.Charge(now, id, u)
	p.members[id].served += u.Busy() + u.Idle
}

func (p *slaf) Pick(now Time) (Decision, bool, Time) {
	watching := len(p.promised) > 0 || p.overloaded
	if watching && now >= p.next {
		p.scan(now)
	}
	d, ok, wakeAt := p.windows.Pick(now)
	if ok {
		p.follow(now, d)
	}
	if watching {
		wakeAt = min(wakeAt, p.next)
	}
	return d, ok, wakeAt
}

// follow tracks the owner of the window.
func (p *slaf) follow(now Time, d Decision) {
	if p.opened != nil {
		p.count(now, p.opened)
	}
	p.opened = nil
	if d.Op == Grant {
		o := p.members[d.Lease.Domain]
		p.count(now, o)
		p.opened = o
	}
}

// scan evaluates all objectives.
func (p *slaf) scan(now Time) {
	if p.next = p.next.Add(p.interval); p.next <= now {
		p.next = now.Add(p.interval)
	}
	before := p.missed
	p.missed = 0
	for _, o := range p.promised {
		p.count(now, o)
		missing := p.missing(now, o)
		if missing > p.opt.Tick/2 {
			p.missed++
		}
		o.extra = 0
		if missing += o.repaid; missing > p.opt.Tick/2 {
			o.extra = int((missing + p.opt.Tick - 1) / p.opt.Tick)
		}
		p.begin(now, o)
	}
	switch {
	case p.missed > 0 && before > 0:
		p.overloaded, p.clean = true, 0
	case p.missed > 0:
		p.clean = 0
	default:
		p.clean++
	}
	if p.clean >= calm {
		p.overloaded = false
	}
	p.watch()
}

// missing returns by how much a domain has missed its objective. A domain without work for half of the time
// has missed nothing and needs no extra ticks from now on.
func (p *slaf) missing(now Time, o *objective) time.Duration {
	passed := now.Sub(o.from)
	if !o.context || o.demand < passed/2 {
		o.repaid = 0
		return 0
	}
	return passed*time.Duration(o.slo)/1000 - o.served
}

// begin resets the counts.
func (p *slaf) begin(now Time, o *objective) {
	o.from, o.since, o.served, o.repaid, o.demand = now, now, 0, 0, 0
}

func (p *slaf) Overloaded() bool { return p.overloaded }

func (p *slaf) Explain() string {
	why := fmt.Sprintf("%s; %d of %d objectives missed at the last scan", p.windows.(Explainer).Explain(), p.missed, len(p.promised))
	if p.opened != nil && p.opened.extra > 0 {
		why += fmt.Sprintf(", %d extra ticks to come", p.opened.extra)
	}
	if p.overloaded {
		why += ", overloaded"
	}
	return why
}
