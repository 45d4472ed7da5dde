package policies

import (
	"fmt"
	"slices"
	"time"
)

// slaf is feedback on top of windows by credits: a domain may have an objective,
// the least part of the accelerator's time that it expects. Every Scan it is seen
// who got less although there was demand, and each of these gets a tick more in its
// next windows, one a rotation, until what was missing is made up for. (Gupta et
// al., "Pegasus: Coordinated Scheduling for Virtualized Accelerator-based Systems",
// USENIX ATC 2011.)
//
// Windows are in proportion to CPU credits; for whom none are known, and with
// ByCredits, to accelerator credits. As published, what counts for an objective is
// how long a domain's windows were, and an extra tick counts like any other: so who
// gets as much as it expects only by extra ticks gets none any more, and too little
// after the next scan. In production mode what counts is what it used, and extra
// ticks make up for what was missed before, not for what is missed since.
type slaf struct {
	windows Policy
	opt     Options

	members  map[ID]*objective
	promised []*objective // those who have an objective
	sum      int64        // of the objectives, in ‰
	next     Time         // scan
	opened   *objective   // paper mode: who has the window

	missed     int // objectives, at the last scan
	overloaded bool
	clean      int // scans in a row at which nothing was missed
}

// objective is what a domain expects, and what it got since the last scan.
type objective struct {
	id      ID
	slo     int64 // ‰ of the accelerator; 0: none
	context bool
	from    Time // of what follows
	served  time.Duration
	repaid  time.Duration // production mode: the part of it that was extra
	demand  time.Duration // it had work
	working bool
	since   Time // up to when demand and served are counted
	extra   int  // ticks to come
}

const (
	// sloMost is how much may be promised of an accelerator, in ‰.
	sloMost = 950
	// calm is how many scans without a miss end an overload.
	calm = 5
)

func newSLAF(o Options) Policy {
	p := &slaf{opt: o, members: make(map[ID]*objective)}
	if o.Mode == Paper {
		w := newRing("slaf", o, o.credits)
		w.extra = p.extra
		p.windows = w
	} else {
		w := newFair("slaf", o, o.credits)
		w.extra = p.extra
		p.windows = w
	}
	return p
}

// extra takes one of the ticks that a domain is to get in addition.
func (p *slaf) extra(id ID) int {
	o := p.members[id]
	if o.extra == 0 {
		return 0
	}
	o.extra--
	if p.opt.Mode == Production {
		o.repaid += p.opt.Tick
	}
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
		p.next = now.Add(p.opt.Scan)
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

// watch notices at once that too much has been promised.
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

// dismiss takes note that a domain is there no more.
func (p *slaf) dismiss(now Time, o *objective) {
	p.promise(now, o, 0)
	o.context, o.working = false, false
	if p.opened == o {
		p.opened = nil
	}
}

// Keeps is true in production mode: then the windows have accounts.
func (p *slaf) Keeps() bool { return p.opt.Mode == Production }

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

// count adds what passed since it was last called to demand and, as published, to
// the time served.
func (p *slaf) count(now Time, o *objective) {
	passed := now.Sub(o.since)
	if passed <= 0 {
		return
	}
	o.since = now
	if o.working {
		o.demand += passed
	}
	if o == p.opened && o.context && p.opt.Mode == Paper {
		o.served += passed
	}
}

func (p *slaf) Charge(now Time, id ID, u Usage) {
	p.windows.Charge(now, id, u)
	if p.opt.Mode == Production {
		p.members[id].served += u.Busy() + u.Idle
	}
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

// follow keeps who has the window.
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

// scan looks at all objectives.
func (p *slaf) scan(now Time) {
	if p.next = p.next.Add(p.opt.Scan); p.next <= now {
		p.next = now.Add(p.opt.Scan)
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

// missing is by how much a domain has missed its objective. Who had no work for
// half of the time missed nothing, nor needs it anything from now on.
func (p *slaf) missing(now Time, o *objective) time.Duration {
	passed := now.Sub(o.from)
	if !o.context || o.demand < passed/2 {
		o.repaid = 0
		return 0
	}
	return passed*time.Duration(o.slo)/1000 - o.served
}

// begin counts anew.
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
