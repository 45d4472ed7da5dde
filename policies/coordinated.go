package policies

import "time"

// briefApart is the least distance between two brief windows, in lengths of a brief window: the others have
// the accelerator in between.
const briefApart = 2

// coordinated is the frame of policies that use the hypervisor's schedule: tick by tick it chooses the next domain by
// the domains' balances and their running vCPUs. The function choose makes a policy of it.
//
// The time that a domain uses is taken off its balance and divided among the competing domains, itself included, in
// proportion to their credits: CPU credits where there are any. So balances are consumed, and only the differences
// between them matter. A debtor without work counts as competing until its balance is 0.
//
// A schedule that prefers some domains could keep others waiting: a domain that has waited for longer than its patience
// is next, regardless of the schedule. Without a schedule a domain that has waited for the others' part of a rotation
// has a brief window although another is owed more: the other one catches up over several rotations. If a domain's own
// work ran on after its windows by more than the slack, the domain waits until the excess is repaid.
//
// The published algorithm is publishedTicks.
type coordinated struct {
	ticks
	slack time.Duration // debt beyond it prolongs the patience
}

// newCoordinated returns the frame. All use is made up for, so balances are limited by maxDebt only.
func newCoordinated(name string, o Options) *coordinated {
	return &coordinated{ticks: newTicks(name, o, newCommonPot(int64(maxDebt)<<scaleBits, true))}
}

// spend takes d off e's balance and divides it among the competing domains. If e waits (its work ran on after its
// window), it waits for longer.
func (p *coordinated) spend(e *domainState, d time.Duration) {
	p.pot.spend(e, d)
	e.ranOn = min(e.ranOn, e.debt())
	if p.waits.urgent.has(e) {
		longer := scaleTime(d, p.pot.total, e.credits)
		e.due = e.due.Add(longer)
		p.waits.urgent.fix(e)
		e.want = p.wantFrom(e)
		p.waits.passed.fix(e)
	}
}

// runsOn adds e's use after its window. Use beyond a tick makes e wait.
func (p *coordinated) runsOn(e *domainState, d time.Duration) {
	before := max(e.tail-p.opt.Tick, 0)
	e.tail = min(e.tail+d, maxDebt)
	e.ranOn = min(e.ranOn+max(e.tail-p.opt.Tick, 0)-before, maxDebt)
}

// wantFrom returns when e, which waits, has waited for the others' part of a rotation. The time is later for a domain
// with work that runs on for long after its windows, so that brief windows come to at most half of a share, and for one
// that owes time for that reason.
func (p *coordinated) wantFrom(e *domainState) Time {
	span := max(p.opt.Tick, briefApart*(p.opt.brief()+e.tail))
	at := e.since.Add(e.tail + max(scaleTime(span, max(p.pot.total-e.credits, 0), e.credits), p.opt.Tick))
	if debt := min(e.ranOn, e.debt()) - p.slack; debt > 0 {
		at = at.Add(scaleTime(debt, p.pot.total, e.credits))
	}
	return at
}

func (p *coordinated) Keeps() bool { return true }

func (p *coordinated) Balance(_ Time, id ID) time.Duration {
	e := p.members[id]
	balance := e.balance
	if p.pot.counts(e) {
		balance = p.pot.balance(e)
	}
	return time.Duration(balance / scale)
}

func (p *coordinated) Restore(_ Time, id ID, balance time.Duration) {
	e := p.members[id]
	p.pot.settle(e)
	e.balance = int64(min(balance, mostOwed)) << scaleBits
	p.pot.reckon(e)
}

func (p *coordinated) Wake(since Time, id ID, s Signal) {
	e := p.members[id]
	e.notice(s)
	switch {
	case e == p.window.holder:
		p.window.notice(since, s, p.opt.IdleYield)
	case e.busy && s == Arrived && p.waits.urgent.has(e):
	case e.busy:
		p.come(since, e)
	default:
		p.leave(e)
	}
}

// come makes e, which has work, compete, and starts its waiting time.
func (p *coordinated) come(since Time, e *domainState) {
	if !e.active {
		if p.window.holder != nil && p.pot.line.len() == 0 {
			p.lapse(since)
		}
		p.pot.join(e)
		p.queue(e)
	}
	if !p.waits.urgent.has(e) {
		p.wait(since, e)
	}
}

// wait starts the waiting time of e, which has work.
func (p *coordinated) wait(now Time, e *domainState) {
	e.due = p.dueFrom(now, e)
	p.waits.urgent.push(e)
	e.since = now
	e.want = p.wantFrom(e)
	p.waits.passed.push(e)
}

// dueFrom returns when the patience of e, which waits from now on, ends. It is later by the time that repays
// the part of its debt beyond the slack.
func (p *coordinated) dueFrom(now Time, e *domainState) Time {
	due := now.Add(p.patience(e))
	if debt := time.Duration(-p.pot.balance(e)>>scaleBits) - p.slack; debt > 0 {
		due = due.Add(scaleTime(debt, p.pot.total, e.credits))
	}
	return due
}

// lapse ends the time for which a holder was alone: it is charged for unused time from then on.
func (p *coordinated) lapse(now Time) {
	w := &p.window
	w.start, w.overlaps, w.holder.idling.seen = max(now, w.start), 0, 0
}

func (p *coordinated) Charge(_ Time, id ID, u Usage) {
	e := p.members[id]
	if e != p.window.holder {
		p.runsOn(e, u.Busy())
	}
	p.spend(e, min(u.Busy()+u.Idle, 2*maxDebt))
	e.idling.seen += u.Busy() + u.Idle + u.Stalled
	if e != p.window.holder {
		p.window.overlaps += u.Busy()
	}
}

// blind reports whether there is no schedule that could keep a domain waiting.
func (p *coordinated) blind(now Time) bool { return len(p.scheduled(now)) == 0 }

// passedOver returns the domain that has waited for the others' part of a rotation, unless there is a
// schedule; then nil.
func (p *coordinated) passedOver(now Time) *domainState {
	if !p.blind(now) {
		return nil
	}
	if e := p.waits.passed.top(); e != nil && e.want <= now {
		return e
	}
	return nil
}

// brief returns the length of a brief window, for a domain that has been passed over although another is owed
// more.
func (o *Options) brief() time.Duration { return max(o.Tick/4, min(minWindow, o.Tick)) }

func (p *coordinated) Pick(now Time) (Decision, bool, Time) {
	d, ok := p.decide(now)
	return d, ok, p.window.wakeAt()
}

func (p *coordinated) decide(now Time) (Decision, bool) {
	w := &p.window
	switch {
	case w.next != nil:
		return p.open(now, w.take()), true
	case w.holder == nil:
		if e := p.next(now); e != nil {
			return p.open(now, e), true
		}
		return Decision{}, false
	}
	if d, ok, over := p.continues(now); !over {
		return d, ok
	}
	h := w.holder
	p.finish(now)
	next := p.next(now)
	if next == h {
		return p.open(now, h), true
	}
	w.next = next
	return Decision{Revoke, Lease{Domain: h.id}}, true
}

// open gives e a window, which ends after a tick unless no other domain competes.
func (p *coordinated) open(now Time, e *domainState) Decision {
	w := &p.window
	w.holder, w.over, w.overlaps, e.tail = e, false, 0, 0
	w.start, w.until, w.idleEnd = now, Forever, Forever
	if p.pot.line.len() > 0 {
		window := p.opt.Tick
		if w.brief {
			window = p.opt.brief()
		}
		if o := p.waits.passed.top(); o != nil && p.blind(now) {
			window = min(window, max(o.want.Sub(now), p.opt.brief()))
		}
		w.until = now.Add(window)
	}
	if !e.busy && p.opt.IdleYield > 0 {
		w.idleEnd = now.Add(p.opt.IdleYield)
	}
	return Decision{Grant, Lease{Domain: e.id, Until: w.until}}
}

// finish charges the holder for its window and puts it back in line.
func (p *coordinated) finish(now Time) {
	w := &p.window
	h := w.holder
	w.holder = nil
	window := max(min(now, w.until).Sub(w.start), 0)
	p.spend(h, h.idling.ended(window-window/tolerance-w.overlaps))
	if !h.busy {
		p.leave(h)
		return
	}
	p.queue(h)
	p.wait(now, h)
}

// next takes the next domain out of the line; nil if none competes.
func (p *coordinated) next(now Time) *domainState {
	if !p.nominate(now) {
		return nil
	}
	p.window.brief = false
	if e := p.passedOver(now); e != nil && e != p.last.e {
		p.last = choice{e: e, why: "and has been passed over for a rotation, so its window is brief"}
		p.window.brief = true
	}
	return p.chosen()
}
