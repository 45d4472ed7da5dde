package policies

import (
	"math"
	"time"
)

// publishedTicks are augc and cosched as published (Gupta et al., "Pegasus: Coordinated Scheduling for Virtualized
// Accelerator-based Systems", USENIX ATC 2011). A domain pays for the window that it gets, not for its use: debts end
// with its work, balances are limited by how far the schedule of the CPUs may move the choice, and a domain with a
// context has windows with or without work.
type publishedTicks struct {
	ticks
	parts   int  // windows over which an overrun is repaid; 0: it is not
	settled Time // until when the holder was charged for its window
}

func newPublishedTicks(name string, o Options) *publishedTicks {
	return &publishedTicks{ticks: newTicks(name+" (paper)", o, newCommonPot(int64(o.reach())<<scaleBits, false)), parts: o.repaidParts()}
}

func newPublishedAugC(o Options) Policy {
	p := newPublishedTicks("augc", o)
	p.augment()
	return p
}

func newPublishedCoSched(o Options) Policy {
	p := newPublishedTicks("cosched", o)
	p.choose = func(now Time) choice { return p.follow(now, math.MinInt64) }
	patience := time.Duration(maxSkip.of(&o)) * o.Tick
	p.patience = func(*domainState) time.Duration { return patience }
	return p
}

func (p *publishedTicks) Wake(since Time, id ID, s Signal) {
	e := p.members[id]
	e.notice(s)
	switch {
	case e == p.window.holder:
		p.window.notice(since, s, p.opt.IdleYield)
	case e.busy && s == Arrived && p.waits.urgent.has(e):
	case p.competes(e):
		p.come(since, e)
	default:
		p.leave(e)
	}
}

// competes reports whether e is given windows.
func (p *publishedTicks) competes(e *domainState) bool {
	return e.busy || e.context && p.opt.IdleYield <= 0
}

// come makes e compete and, if it has work, starts its waiting time.
func (p *publishedTicks) come(since Time, e *domainState) {
	if !e.active {
		if p.window.holder != nil && p.pot.line.len() == 0 {
			p.lapse(since)
		}
		p.pot.join(e)
		p.queue(e)
	}
	switch waits := p.waits.urgent.has(e); {
	case e.busy && !waits:
		p.wait(since, e)
	case !e.busy && waits:
		p.waits.remove(e)
	}
}

// wait starts the waiting time of e, which has work.
func (p *publishedTicks) wait(now Time, e *domainState) {
	e.due = now.Add(p.patience(e))
	p.waits.urgent.push(e)
}

// lapse charges a holder that is alone for its window so far. That time cost no other domain any, so it is
// credited back to the holder alone.
func (p *publishedTicks) lapse(now Time) {
	if used := min(now, p.window.until).Sub(p.settled); used > 0 {
		p.pot.spend(p.window.holder, used)
		p.settled = now
	}
}

func (p *publishedTicks) Charge(_ Time, id ID, u Usage) { p.members[id].overrun.used += u.Busy() }

func (p *publishedTicks) Pick(now Time) (Decision, bool, Time) {
	d, ok := p.decide(now)
	return d, ok, p.window.wakeAt()
}

func (p *publishedTicks) decide(now Time) (Decision, bool) {
	w := &p.window
	switch {
	case w.next != nil:
		return p.open(now, w.take()), true
	case w.holder == nil:
		if p.nominate(now) {
			return p.open(now, p.chosen()), true
		}
		return Decision{}, false
	}
	if d, ok, over := p.continues(now); !over {
		return d, ok
	}
	h := w.holder
	p.finish(now)
	p.nominate(now)
	next := p.chosen()
	if next == h {
		return p.open(now, h), true
	}
	w.next = next
	return Decision{Revoke, Lease{Domain: h.id}}, true
}

// open gives e a window, which ends after a tick unless no other domain competes.
func (p *publishedTicks) open(now Time, e *domainState) Decision {
	w := &p.window
	w.holder, w.over, w.until, w.idleEnd = e, false, Forever, Forever
	p.settled = now
	if p.pot.line.len() > 0 {
		w.until = now.Add(e.overrun.begin(p.opt.Tick, p.parts))
	} else {
		e.overrun.unbound()
	}
	if !e.busy && p.opt.IdleYield > 0 {
		w.idleEnd = now.Add(p.opt.IdleYield)
	}
	return Decision{Grant, Lease{Domain: e.id, Until: w.until}}
}

// finish charges the holder for its window and puts it back in line.
func (p *publishedTicks) finish(now Time) {
	h := p.window.holder
	p.window.holder = nil
	p.pot.spend(h, max(min(now, p.window.until).Sub(p.settled), 0))
	if !p.competes(h) {
		p.leave(h)
		return
	}
	p.queue(h)
	if h.busy {
		p.wait(now, h)
	}
}
