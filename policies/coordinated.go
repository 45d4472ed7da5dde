package policies

import (
	"fmt"
	"slices"
	"time"

	"pegasus/vcpu"
)

// creditTime is the CPU time that one of Xen's credits stands for.
const creditTime = 100 * time.Microsecond

// briefApart is the least distance between two brief windows, in lengths of a brief window: the others have
// the accelerator in between.
const briefApart = 2

// patienceMost is the longest time that a domain is ever passed over.
const patienceMost = 1 << 60 // 36 years: chosen so that sums do not overflow

// creditPeriod is the period for which a hypervisor hands out credits at once, and so the most credit that a
// vCPU should have.
const creditPeriod = 30 * time.Millisecond

// coordinated is the frame of policies that use the hypervisor's schedule: tick by tick it chooses the next
// domain by the domains' balances and by whose vCPUs run. The function choose makes a policy of it.
//
// The time that a domain uses (in paper mode: the window that it gets) is taken off its balance and divided
// among the competing domains, itself included, in proportion to their credits: CPU credits where there
// are any. So balances are consumed, and only the differences between them matter. In production mode a debtor
// without work counts as competing until its balance is 0.
//
// A schedule that prefers some domains could keep others waiting: a domain that has waited for longer than
// its patience is next, regardless of the schedule. Without a schedule, in production mode, a domain
// that has waited for the others' part of a rotation has a brief window although another is owed more: the
// other one catches up over several rotations. A domain whose own work ran on after its windows, by more than
// the slack, waits until the excess is repaid.
type coordinated struct {
	name    string
	opt     Options
	rules   rules
	members map[ID]*domainState
	pot     commonPot
	waits   waits
	cpus    cpuSchedule
	window  tickWindow

	last    choice
	balance time.Duration // of the chosen one, at that time
}

// rules are the points in which the coordinated policies differ.
type rules struct {
	choose   func(now Time) choice
	patience func(e *domainState) time.Duration // the time for which e may be passed over
	boost    time.Duration                      // factor of CPU credit
	parts    int                                // windows over which an overrun is repaid; 0: it is not
	slack    time.Duration                      // debt beyond it prolongs the patience, in production mode
}

// waits are the domains in line that have work, in two orders.
type waits struct {
	urgent heap[domainState] // by when their patience ends
	passed heap[domainState] // by when each has waited for the others' part of a rotation
	places uint64            // numbers the places in line
}

// cpuSchedule is the hypervisor's schedule, according to the newest sample.
type cpuSchedule struct {
	running []*domainState // domains whose vCPUs run
	seen    Time           // time of the sample
}

// tickWindow is the window in force, and the domain that gets the next one.
type tickWindow struct {
	holder   *domainState
	next     *domainState // chosen, but its predecessor's gate must be closed first
	start    Time
	settled  Time // paper mode: until when the holder was charged for it
	until    Time
	idleEnd  Time          // its end if the holder stays idle
	brief    bool          // the window of the holder, or of next, is a brief one
	over     bool          // the holder closed its last context
	overlaps time.Duration // used by others since start, whose work was still in flight
}

// choice is the next domain, and the reason.
type choice struct {
	e     *domainState
	boost time.Duration
	why   string // why its balance decided
}

// domainState is a domain's account under a coordinated policy.
type domainState struct {
	id      ID
	credits int64
	context bool
	busy    bool // it has work, as last reported
	active  bool // it competes, or holds the window

	// balance is the time that it is owed as of pot, in 1/scale ns.
	balance int64
	pot     uint64
	even    uint64 // value of the pot at which a debtor's balance is 0
	indebt  int    // position among the debtors

	place  uint64 // in line: a lower number has stood there longer
	seat   int    // position in the tournament
	urgent int    // position among the urgent
	due    Time   // when its patience ends
	passed int    // position in passed
	since  Time   // since when it waits
	want   Time   // when it has waited for the others' part of a rotation

	tail  time.Duration // used since its last window ended
	ranOn time.Duration // the part of its debt from such use, beyond a tick each time

	runs      bool          // it is among the domains whose vCPUs run
	remaining time.Duration // CPU credit left
	idling    idling
	overrun   overrun
}

// observe stores the domains whose vCPUs run, and their CPU credit, at most so much. A domain that is missing from
// the sample does not run.
func (c *cpuSchedule) observe(now Time, s *vcpu.Sample, members map[ID]*domainState, most time.Duration) {
	for _, e := range c.running {
		e.runs = false
	}
	c.running = c.running[:0]
	if s.Quality == vcpu.Unknown {
		return
	}
	c.seen = min(s.At, now)
	for i := range s.Domains {
		d := &s.Domains[i]
		e := members[d.ID]
		if e == nil || e.runs || !s.Scheduled(i) {
			continue
		}
		e.runs = true
		e.remaining = time.Duration(min(max(d.Remaining, 0), int64(most/creditTime))) * creditTime
		c.running = append(c.running, e)
	}
}

// at returns the domains whose vCPUs run, or nil if the sample is older than that.
func (c *cpuSchedule) at(now Time, oldest time.Duration) []*domainState {
	if now.Sub(c.seen) > oldest {
		return nil
	}
	return c.running
}

// forget removes a domain that leaves.
func (c *cpuSchedule) forget(e *domainState) {
	if e.runs {
		e.runs = false
		c.running = slices.DeleteFunc(c.running, func(o *domainState) bool { return o == e })
	}
}

// notice processes a signal of the holder, which gives up its window when it was idle for that long; 0: never.
func (w *tickWindow) notice(since Time, s Signal, yield time.Duration) {
	switch s {
	case Arrived:
		w.idleEnd = Forever
	case Drained:
		if yield > 0 {
			w.idleEnd = since.Add(yield)
		}
	case ContextClosed:
		w.over = true
	}
}

func newCoordinated(name string, o Options) *coordinated {
	return &coordinated{
		name:    name,
		opt:     o,
		rules:   rules{parts: o.repaidParts()},
		members: make(map[ID]*domainState),
		pot:     newCommonPot(o),
		waits:   newWaits(),
		window:  tickWindow{idleEnd: Forever},
	}
}

func newWaits() waits {
	return waits{
		urgent: heap[domainState]{at: func(e *domainState) *int { return &e.urgent }, less: func(a, b *domainState) bool {
			if a.due != b.due {
				return a.due < b.due
			}
			return a.place < b.place
		}},
		passed: heap[domainState]{at: func(e *domainState) *int { return &e.passed }, less: func(a, b *domainState) bool {
			if a.want != b.want {
				return a.want < b.want
			}
			return a.place < b.place
		}},
	}
}

// span returns the unit of time for clamp and boost: a tick, which should be the hypervisor's period.
func (o *Options) span() time.Duration { return max(o.Tick, creditPeriod) }

// reach returns how far the schedule of the CPUs may move the choice: more than half of the greatest boost.
func (o *Options) reach() time.Duration {
	return o.span() + time.Duration(o.boost())*o.span()/2
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

// wantFrom returns when e, which waits, has waited for the others' part of a rotation. The time is later for
// a domain whose work runs on for long after its windows, so that brief windows come to at most half of a
// share, and for one that owes time for that reason.
func (p *coordinated) wantFrom(e *domainState) Time {
	span := max(p.opt.Tick, briefApart*(p.opt.brief()+e.tail))
	at := e.since.Add(e.tail + max(scaleTime(span, max(p.pot.total-e.credits, 0), e.credits), p.opt.Tick))
	if debt := min(e.ranOn, e.debt()) - p.rules.slack; debt > 0 {
		at = at.Add(scaleTime(debt, p.pot.total, e.credits))
	}
	return at
}

func (p *coordinated) Attach(_ Time, d Domain) {
	credits := int64(byBothSides(&p.opt, d))
	e := p.members[d.ID]
	if e == nil {
		e = &domainState{id: d.ID, credits: credits}
		p.members[d.ID] = e
		p.pot.add(e)
		return
	}
	p.pot.weigh(e, credits)
}

func (p *coordinated) Detach(now Time, id ID) {
	p.Leave(now, id)
	p.pot.drop(p.members[id])
	delete(p.members, id)
}

func (p *coordinated) Leave(_ Time, id ID) {
	e := p.members[id]
	p.leave(e)
	e.context, e.busy = false, false
	if p.window.holder == e {
		p.window.holder = nil
	}
	p.cpus.forget(e)
}

// Keeps returns true in production mode.
func (p *coordinated) Keeps() bool { return p.opt.Mode == Production }

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
	switch s {
	case Arrived:
		e.busy = true
	case Drained:
		e.busy = false
	case ContextOpened:
		e.context = true
	case ContextClosed:
		e.context, e.busy = false, false
	}
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

// competes reports whether e is given windows. As published, a domain with a context is, with or without
// work.
func (p *coordinated) competes(e *domainState) bool {
	return e.busy || e.context && p.opt.Mode == Paper && p.opt.IdleYield <= 0
}

// come makes e compete and, if it has work, starts its waiting time.
func (p *coordinated) come(since Time, e *domainState) {
	if !e.active {
		if p.window.holder != nil && p.pot.line.len() == 0 {
			p.lapse(since)
		}
		p.pot.join(e)
		p.queue(e)
	}
	switch {
	case e.busy && !p.waits.urgent.has(e):
		p.wait(since, e)
	case !e.busy && p.waits.urgent.has(e):
		p.waits.remove(e)
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

// remove ends the waiting time of e.
func (w *waits) remove(e *domainState) {
	w.urgent.remove(e)
	w.passed.remove(e)
}

// dueFrom returns when the patience of e, which waits from now on, ends. It is later by the time that repays
// the part of its debt beyond the slack.
func (p *coordinated) dueFrom(now Time, e *domainState) Time {
	due := now.Add(p.rules.patience(e))
	if debt := time.Duration(-p.pot.balance(e)>>scaleBits) - p.rules.slack; debt > 0 && p.opt.Mode == Production {
		due = due.Add(scaleTime(debt, p.pot.total, e.credits))
	}
	return due
}

func (p *coordinated) queue(e *domainState) {
	p.waits.places++
	e.place = p.waits.places
	p.pot.line.enter(e, p.pot.value)
}

// dequeue removes e from the line.
func (p *coordinated) dequeue(e *domainState) {
	p.pot.line.remove(e, p.pot.value)
	if p.waits.urgent.has(e) {
		p.waits.remove(e)
	}
}

// leave makes e stop competing.
func (p *coordinated) leave(e *domainState) {
	if !e.active {
		return
	}
	if p.pot.line.has(e) {
		p.dequeue(e)
	}
	p.pot.leave(e)
}

// lapse charges a holder that is alone for its window so far. That time cost no other domain any, so it is
// credited back to the holder alone.
func (p *coordinated) lapse(now Time) {
	w := &p.window
	if used := min(now, w.until).Sub(w.settled); p.opt.Mode == Paper && used > 0 {
		p.spend(w.holder, used)
		w.settled = now
	}
	w.start, w.overlaps, w.holder.idling.seen = max(now, w.start), 0, 0
}

func (p *coordinated) Charge(_ Time, id ID, u Usage) {
	e := p.members[id]
	e.overrun.used += u.Busy()
	if p.opt.Mode == Paper {
		return
	}
	if e != p.window.holder {
		p.runsOn(e, u.Busy())
	}
	p.spend(e, min(u.Busy()+u.Idle, 2*maxDebt))
	e.idling.seen += u.Busy() + u.Idle + u.Stalled
	if e != p.window.holder {
		p.window.overlaps += u.Busy()
	}
}

// blind reports whether, in production mode, there is no schedule that could keep a domain waiting.
func (p *coordinated) blind(now Time) bool {
	return p.opt.Mode == Production && len(p.scheduled(now)) == 0
}

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

// Observe stores the domains whose vCPUs run.
func (p *coordinated) Observe(now Time, s *vcpu.Sample) {
	p.cpus.observe(now, s, p.members, p.opt.span())
}

// scheduled returns the domains whose vCPUs run, or nil if the sample is too old.
func (p *coordinated) scheduled(now Time) []*domainState { return p.cpus.at(now, 2*p.opt.Tick) }

func (p *coordinated) Pick(now Time) (Decision, bool, Time) {
	d, ok := p.decide(now)
	if p.window.holder == nil || p.window.until == Forever {
		return d, ok, Forever
	}
	return d, ok, min(p.window.until, p.window.idleEnd)
}

func (p *coordinated) decide(now Time) (Decision, bool) {
	w := &p.window
	h := w.holder
	switch {
	case w.next != nil:
		e := w.next
		w.next = nil
		return p.open(now, e), true
	case h == nil:
		if e := p.next(now); e != nil {
			return p.open(now, e), true
		}
		return Decision{}, false
	case p.pot.line.len() == 0:
		changed := w.until != Forever
		w.until, w.over = Forever, false
		return Decision{Grant, Lease{Domain: h.id, Until: Forever}}, changed
	case w.until == Forever && !w.over && now < w.idleEnd:
		w.until = now.Add(p.opt.Tick)
		return Decision{Grant, Lease{Domain: h.id, Until: w.until}}, true
	case now < min(w.until, w.idleEnd) && !w.over:
		return Decision{}, false
	}
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
	w.start, w.settled, w.until, w.idleEnd = now, now, Forever, Forever
	if p.pot.line.len() > 0 {
		window := p.opt.Tick
		if w.brief {
			window = p.opt.brief()
		}
		if o := p.waits.passed.top(); o != nil && p.blind(now) {
			window = min(window, max(o.want.Sub(now), p.opt.brief()))
		}
		w.until = now.Add(e.overrun.begin(window, p.rules.parts))
	} else {
		e.overrun.unbound()
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
	end := min(now, w.until)
	if p.opt.Mode == Paper {
		p.spend(h, max(end.Sub(w.settled), 0))
	} else {
		window := max(end.Sub(w.start), 0)
		p.spend(h, h.idling.ended(window-window/tolerance-w.overlaps))
	}
	if !p.competes(h) {
		p.leave(h)
		return
	}
	p.queue(h)
	if h.busy {
		p.wait(now, h)
	}
}

// next takes the next domain out of the line; nil if none competes.
func (p *coordinated) next(now Time) *domainState {
	if p.pot.line.len() == 0 {
		return nil
	}
	p.pot.begin(p.opt.Tick)
	p.last = choice{e: p.waits.urgent.top(), why: "and has been passed over for too long"}
	if p.last.e == nil || p.last.e.due > now {
		p.last = p.rules.choose(now)
	}
	p.window.brief = false
	if e := p.passedOver(now); e != nil && e != p.last.e {
		p.last = choice{e: e, why: "and has been passed over for a rotation, so its window is brief"}
		p.window.brief = true
	}
	e := p.last.e
	p.balance = time.Duration(p.pot.balance(e) >> scaleBits)
	p.dequeue(e)
	return e
}

func (p *coordinated) Explain() string {
	name := p.name
	if p.opt.Mode == Paper {
		name += " (paper)"
	}
	e := p.window.holder
	switch {
	case e == nil:
		return name + ": no domain has work"
	case p.pot.line.len() == 0:
		return fmt.Sprintf("%s: domain %d competes with no other domain, its window stays open", name, e.id)
	}
	boost := ""
	if p.last.boost > 0 {
		boost = fmt.Sprintf(" and boost %d", p.last.boost/creditTime)
	}
	return fmt.Sprintf("%s: domain %d has balance %d%s, %s; credits %d of %d, %d in line",
		name, e.id, p.balance.Round(creditTime)/creditTime, boost, p.last.why, e.credits, p.pot.total, p.pot.line.len())
}
