package policies

import (
	"fmt"
	"math/bits"
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
	name     string
	opt      Options
	choose   func(now Time) choice
	patience func(e *domainState) time.Duration // the time for which e may be passed over
	boost    time.Duration                      // factor of CPU credit
	parts    int                                // windows over which an overrun is repaid; 0: it is not
	slack    time.Duration                      // debt beyond it prolongs the patience, in production mode

	members map[ID]*domainState
	line    tournament        // the competing domains except the holder
	debtors heap[domainState] // domains out of the line that owe time, by when their debt is repaid
	urgent  heap[domainState] // domains in line that have work, by when their patience ends
	passed  heap[domainState] // the same, by when each has waited for the others' part of a rotation
	total   int64             // credits of the competing domains and of the debtors
	places  uint64            // numbers the places in line
	pot     uint64            // grows by the time used per credit
	rest    uint64            // remainder of the division that made it
	begun   bool

	running []*domainState // domains whose vCPUs run, according to the newest sample
	seen    Time           // time of that sample

	holder   *domainState
	waiting  *domainState // chosen, but its predecessor's gate must be closed first
	start    Time         // of the holder's window
	settled  Time         // paper mode: until when the holder was charged for it
	until    Time
	idleEnd  Time
	brief    bool          // the window of the holder, or of waiting, is a brief one
	over     bool          // the holder closed its last context
	overlaps time.Duration // used by others since start, whose work was still in flight

	last    choice
	balance time.Duration // of the chosen one, at that time
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

func newCoordinated(name string, o Options) *coordinated {
	return &coordinated{
		name:    name,
		opt:     o,
		parts:   o.repaidParts(),
		members: make(map[ID]*domainState),
		line:    tournament{most: o.clamp()},
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
		debtors: heap[domainState]{at: func(e *domainState) *int { return &e.indebt }, less: func(a, b *domainState) bool {
			if a.even != b.even {
				return int64(a.even-b.even) < 0
			}
			return a.id < b.id
		}},
		idleEnd: Forever,
	}
}

// span returns the unit of time for clamp and boost: a tick, which should be the hypervisor's period.
func (o *Options) span() time.Duration { return max(o.Tick, creditPeriod) }

// clamp returns the greatest balance and the greatest debt of a domain, in 1/scale ns. As published it is
// reach; in production mode all use is made up for.
func (o *Options) clamp() int64 {
	if o.Mode == Production {
		return int64(maxDebt) << scaleBits
	}
	return int64(o.reach()) << scaleBits
}

// reach returns how far the schedule of the CPUs may move the choice: more than half of the greatest boost.
func (o *Options) reach() time.Duration {
	return o.span() + time.Duration(o.boost())*o.span()/2
}

// at returns the balance at this value of the pot, limited to most.
func (e *domainState) at(pot uint64, most int64) int64 {
	hi, lo := bits.Mul64(pot-e.pot, uint64(e.credits))
	if hi != 0 || lo >= uint64(most-e.balance) {
		return most
	}
	return e.balance + int64(lo)
}

// settle updates the balance to the current pot.
func (p *coordinated) settle(e *domainState) {
	if e.active || p.debtors.has(e) {
		e.balance = e.at(p.pot, p.line.most)
	}
	e.pot = p.pot
}

// spend takes d off e's balance and divides it among the competing domains.
func (p *coordinated) spend(e *domainState, d time.Duration) {
	p.settle(e)
	e.balance -= int64(d) << scaleBits
	p.reckon(e)
	p.share(d)
	p.settle(e)
	e.balance = max(e.balance, -p.line.most)
	if p.line.has(e) {
		p.line.fix(e, p.pot)
	}
	p.reckon(e)
	debt := e.debt()
	e.ranOn = min(e.ranOn, debt)
	if p.urgent.has(e) { // it ran on after its window, and waits for longer
		longer := scaleTime(d, p.total, e.credits)
		e.due = e.due.Add(longer)
		p.urgent.fix(e)
		e.want = p.wantFrom(e)
		p.passed.fix(e)
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
	at := e.since.Add(e.tail + max(scaleTime(span, max(p.total-e.credits, 0), e.credits), p.opt.Tick))
	if debt := min(e.ranOn, e.debt()) - p.slack; debt > 0 {
		at = at.Add(scaleTime(debt, p.total, e.credits))
	}
	return at
}

// debt returns the debt of e, whose balance must be up to date.
func (e *domainState) debt() time.Duration { return time.Duration(max(-e.balance, 0) >> scaleBits) }

// reckon adds e, whose balance must be up to date, to the debtors, or removes it from them.
func (p *coordinated) reckon(e *domainState) {
	owes := !e.active && e.balance < 0 && p.opt.Mode == Production
	switch has := p.debtors.has(e); {
	case owes:
		e.even = p.pot + uint64((-e.balance+e.credits-1)/e.credits)
		if has {
			p.debtors.fix(e)
			return
		}
		p.total += e.credits
		p.debtors.push(e)
	case has:
		p.total -= e.credits
		p.debtors.remove(e)
	}
}

// share divides d among the competing domains and the debtors. A debtor takes part until its balance is 0.
func (p *coordinated) share(d time.Duration) {
	if p.total == 0 {
		return
	}
	p.rest += uint64(d) << scaleBits
	for p.total > 0 {
		grows := p.rest / uint64(p.total)
		e := p.debtors.top()
		if e == nil || e.even-p.pot > grows {
			p.pot += grows
			p.rest %= uint64(p.total)
			return
		}
		grows = e.even - p.pot
		p.pot += grows
		p.rest -= grows * uint64(p.total)
		p.settle(e)
		p.reckon(e)
	}
	p.rest = 0
}

func (p *coordinated) Attach(_ Time, d Domain) {
	credits := int64(byBothSides(&p.opt, d))
	e := p.members[d.ID]
	if e == nil {
		e = &domainState{id: d.ID, credits: credits}
		p.members[d.ID] = e
		p.line.enroll(e, p.pot)
		return
	}
	p.settle(e)
	if e.active || p.debtors.has(e) {
		p.total += credits - e.credits
	}
	e.credits = credits
	if p.line.has(e) {
		p.line.fix(e, p.pot)
	}
	p.reckon(e)
}

func (p *coordinated) Detach(now Time, id ID) {
	p.Leave(now, id)
	e := p.members[id]
	if p.debtors.has(e) {
		p.total -= e.credits
		p.debtors.remove(e)
	}
	p.line.retire(e)
	delete(p.members, id)
}

func (p *coordinated) Leave(_ Time, id ID) {
	e := p.members[id]
	p.leave(e)
	e.context, e.busy = false, false
	if p.holder == e {
		p.holder = nil
	}
	if e.runs {
		e.runs = false
		p.running = slices.DeleteFunc(p.running, func(o *domainState) bool { return o == e })
	}
}

// Keeps returns true in production mode.
func (p *coordinated) Keeps() bool { return p.opt.Mode == Production }

func (p *coordinated) Balance(_ Time, id ID) time.Duration {
	e := p.members[id]
	balance := e.balance
	if e.active || p.debtors.has(e) {
		balance = e.at(p.pot, p.line.most)
	}
	return time.Duration(balance / scale)
}

func (p *coordinated) Restore(_ Time, id ID, balance time.Duration) {
	e := p.members[id]
	p.settle(e)
	e.balance = int64(min(balance, mostOwed)) << scaleBits
	p.reckon(e)
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
	case e == p.holder:
		p.notice(since, s)
	case e.busy && s == Arrived && p.urgent.has(e):
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

// notice processes a signal of the holder.
func (p *coordinated) notice(since Time, s Signal) {
	switch s {
	case Arrived:
		p.idleEnd = Forever
	case Drained:
		if p.opt.IdleYield > 0 {
			p.idleEnd = since.Add(p.opt.IdleYield)
		}
	case ContextClosed:
		p.over = true
	}
}

// come makes e compete and, if it has work, starts its waiting time.
func (p *coordinated) come(since Time, e *domainState) {
	if !e.active {
		if p.holder != nil && p.line.len() == 0 {
			p.lapse(since)
		}
		p.settle(e)
		e.active = true
		p.reckon(e)
		p.total += e.credits
		p.queue(e)
	}
	switch {
	case e.busy && !p.urgent.has(e):
		p.wait(since, e)
	case !e.busy && p.urgent.has(e):
		p.unwait(e)
	}
}

// wait starts the waiting time of e, which has work.
func (p *coordinated) wait(now Time, e *domainState) {
	e.due = p.dueFrom(now, e)
	p.urgent.push(e)
	e.since = now
	e.want = p.wantFrom(e)
	p.passed.push(e)
}

// unwait ends the waiting time of e.
func (p *coordinated) unwait(e *domainState) {
	p.urgent.remove(e)
	p.passed.remove(e)
}

// dueFrom returns when the patience of e, which waits from now on, ends. It is later by the time that repays
// the part of its debt beyond the slack.
func (p *coordinated) dueFrom(now Time, e *domainState) Time {
	due := now.Add(p.patience(e))
	if debt := time.Duration(-e.at(p.pot, p.line.most)>>scaleBits) - p.slack; debt > 0 && p.opt.Mode == Production {
		due = due.Add(scaleTime(debt, p.total, e.credits))
	}
	return due
}

func (p *coordinated) queue(e *domainState) {
	p.places++
	e.place = p.places
	p.line.enter(e, p.pot)
}

// dequeue removes e from the line.
func (p *coordinated) dequeue(e *domainState) {
	p.line.remove(e, p.pot)
	if p.urgent.has(e) {
		p.unwait(e)
	}
}

// leave makes e stop competing.
func (p *coordinated) leave(e *domainState) {
	if !e.active {
		return
	}
	p.settle(e)
	e.active = false
	p.total -= e.credits
	if p.line.has(e) {
		p.dequeue(e)
	}
	p.reckon(e)
	if most := int64(mostOwed) << scaleBits; e.balance > most && p.opt.Mode == Production {
		p.share(time.Duration((e.balance - most) >> scaleBits)) // waived
		e.balance = most
	}
}

// lapse charges a holder that is alone for its window so far. That time cost no other domain any, so it is
// credited back to the holder alone.
func (p *coordinated) lapse(now Time) {
	if used := min(now, p.until).Sub(p.settled); p.opt.Mode == Paper && used > 0 {
		p.spend(p.holder, used)
		p.settled = now
	}
	p.start, p.overlaps, p.holder.idling.seen = max(now, p.start), 0, 0
}

func (p *coordinated) Charge(_ Time, id ID, u Usage) {
	e := p.members[id]
	e.overrun.used += u.Busy()
	if p.opt.Mode == Paper {
		return
	}
	if e != p.holder {
		p.runsOn(e, u.Busy())
	}
	p.spend(e, min(u.Busy()+u.Idle, 2*maxDebt))
	e.idling.seen += u.Busy() + u.Idle + u.Stalled
	if e != p.holder {
		p.overlaps += u.Busy()
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
	if e := p.passed.top(); e != nil && e.want <= now {
		return e
	}
	return nil
}

// brief returns the length of a brief window, for a domain that has been passed over although another is owed
// more.
func (o *Options) brief() time.Duration { return max(o.Tick/4, min(minWindow, o.Tick)) }

// Observe stores the domains whose vCPUs run. A domain that is missing from the sample does not run.
func (p *coordinated) Observe(now Time, s *vcpu.Sample) {
	for _, e := range p.running {
		e.runs = false
	}
	p.running = p.running[:0]
	if s.Quality == vcpu.Unknown {
		return
	}
	p.seen = min(s.At, now)
	for i := range s.Domains {
		d := &s.Domains[i]
		e := p.members[d.ID]
		if e == nil || e.runs || !s.Scheduled(i) {
			continue
		}
		e.runs = true
		e.remaining = time.Duration(min(max(d.Remaining, 0), int64(p.opt.span()/creditTime))) * creditTime
		p.running = append(p.running, e)
	}
}

// scheduled returns the domains whose vCPUs run, or nil if the sample is too old.
func (p *coordinated) scheduled(now Time) []*domainState {
	if now.Sub(p.seen) > 2*p.opt.Tick {
		return nil
	}
	return p.running
}

func (p *coordinated) Pick(now Time) (Decision, bool, Time) {
	d, ok := p.decide(now)
	if p.holder == nil || p.until == Forever {
		return d, ok, Forever
	}
	return d, ok, min(p.until, p.idleEnd)
}

func (p *coordinated) decide(now Time) (Decision, bool) {
	h := p.holder
	switch {
	case p.waiting != nil:
		e := p.waiting
		p.waiting = nil
		return p.open(now, e), true
	case h == nil:
		if e := p.next(now); e != nil {
			return p.open(now, e), true
		}
		return Decision{}, false
	case p.line.len() == 0:
		changed := p.until != Forever
		p.until, p.over = Forever, false
		return Decision{Grant, Lease{Domain: h.id, Until: Forever}}, changed
	case p.until == Forever && !p.over && now < p.idleEnd:
		p.until = now.Add(p.opt.Tick)
		return Decision{Grant, Lease{Domain: h.id, Until: p.until}}, true
	case now < min(p.until, p.idleEnd) && !p.over:
		return Decision{}, false
	}
	p.finish(now)
	next := p.next(now)
	if next == h {
		return p.open(now, h), true
	}
	p.waiting = next
	return Decision{Revoke, Lease{Domain: h.id}}, true
}

// open gives e a window, which ends after a tick unless no other domain competes.
func (p *coordinated) open(now Time, e *domainState) Decision {
	p.holder, p.over, p.overlaps, e.tail = e, false, 0, 0
	p.start, p.settled, p.until, p.idleEnd = now, now, Forever, Forever
	if p.line.len() > 0 {
		window := p.opt.Tick
		if p.brief {
			window = p.opt.brief()
		}
		if o := p.passed.top(); o != nil && p.blind(now) {
			window = min(window, max(o.want.Sub(now), p.opt.brief()))
		}
		p.until = now.Add(e.overrun.begin(window, p.parts))
	} else {
		e.overrun.unbound()
	}
	if !e.busy && p.opt.IdleYield > 0 {
		p.idleEnd = now.Add(p.opt.IdleYield)
	}
	return Decision{Grant, Lease{Domain: e.id, Until: p.until}}
}

// finish charges the holder for its window and puts it back in line.
func (p *coordinated) finish(now Time) {
	h := p.holder
	p.holder = nil
	end := min(now, p.until)
	if p.opt.Mode == Paper {
		p.spend(h, max(end.Sub(p.settled), 0))
	} else {
		window := max(end.Sub(p.start), 0)
		p.spend(h, h.idling.ended(window-window/tolerance-p.overlaps))
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
	if p.line.len() == 0 {
		return nil
	}
	if !p.begun { // of the cost of the first tick
		p.begun = true
		p.share(p.opt.Tick)
	}
	p.last = choice{e: p.urgent.top(), why: "and has been passed over for too long"}
	if p.last.e == nil || p.last.e.due > now {
		p.last = p.choose(now)
	}
	p.brief = false
	if e := p.passedOver(now); e != nil && e != p.last.e {
		p.last = choice{e: e, why: "and has been passed over for a rotation, so its window is brief"}
		p.brief = true
	}
	e := p.last.e
	p.balance = time.Duration(e.at(p.pot, p.line.most) >> scaleBits)
	p.dequeue(e)
	return e
}

func (p *coordinated) Explain() string {
	name := p.name
	if p.opt.Mode == Paper {
		name += " (paper)"
	}
	e := p.holder
	switch {
	case e == nil:
		return name + ": no domain has work"
	case p.line.len() == 0:
		return fmt.Sprintf("%s: domain %d competes with no other domain, its window stays open", name, e.id)
	}
	boost := ""
	if p.last.boost > 0 {
		boost = fmt.Sprintf(" and boost %d", p.last.boost/creditTime)
	}
	return fmt.Sprintf("%s: domain %d has balance %d%s, %s; credits %d of %d, %d in line",
		name, e.id, p.balance.Round(creditTime)/creditTime, boost, p.last.why, e.credits, p.total, p.line.len())
}
