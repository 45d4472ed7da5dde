package policies

import (
	"fmt"
	"slices"
	"time"

	"pegasus/vcpu"
)

// creditTime is the CPU time that one of Xen's credits stands for.
const creditTime = 100 * time.Microsecond

// patienceMost is the longest time that a domain is ever passed over.
const patienceMost = 1 << 60 // 36 years: chosen so that sums do not overflow

// creditPeriod is the period for which a hypervisor hands out credits at once, and so the most credit that a
// vCPU should have.
const creditPeriod = 30 * time.Millisecond

// ticks is the state of a policy that chooses the next domain tick by tick, by the domains' balances and their running
// vCPUs, and the steps that do not depend on how a domain pays for its windows.
type ticks struct {
	name     string
	opt      Options
	choose   func(now Time) choice
	patience func(e *domainState) time.Duration // the time for which e may be passed over
	members  map[ID]*domainState
	pot      commonPot
	waits    waits
	cpus     cpuSchedule
	window   tickWindow

	last    choice
	balance time.Duration // of the chosen one, at that time
}

func newTicks(name string, o Options, pot commonPot) ticks {
	return ticks{
		name:    name,
		opt:     o,
		members: make(map[ID]*domainState),
		pot:     pot,
		waits:   newWaits(),
		window:  tickWindow{idleEnd: Forever},
	}
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
	until    Time
	idleEnd  Time          // its end if the holder stays idle
	brief    bool          // the window of the holder, or of next, is a brief one
	over     bool          // the holder closed its last context
	overlaps time.Duration // used since start by others, for work that was still in flight
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

	runs      bool          // it is among the domains with running vCPUs
	remaining time.Duration // CPU credit left
	idling    idling
	overrun   overrun // as published
}

// observe stores the domains with running vCPUs, and their CPU credit, at most so much. A domain that is missing from
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

// at returns the domains with running vCPUs, or nil if the sample is older than that.
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

// remove ends the waiting time of e.
func (w *waits) remove(e *domainState) {
	w.urgent.remove(e)
	if w.passed.has(e) {
		w.passed.remove(e)
	}
}

// notice updates the state by a signal.
func (e *domainState) notice(s Signal) {
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
}

// take returns the domain that was waiting for its predecessor's gate to close.
func (w *tickWindow) take() *domainState {
	e := w.next
	w.next = nil
	return e
}

// wakeAt returns when the window ends.
func (w *tickWindow) wakeAt() Time {
	if w.holder == nil || w.until == Forever {
		return Forever
	}
	return min(w.until, w.idleEnd)
}

// span returns the unit of time for clamp and boost: a tick, which should be the hypervisor's period.
func (o *Options) span() time.Duration { return max(o.Tick, creditPeriod) }

// reach returns how far the schedule of the CPUs may move the choice: more than half of the greatest boost.
func (o *Options) reach() time.Duration {
	return o.span() + time.Duration(o.boost())*o.span()/2
}

func (p *ticks) Attach(_ Time, d Domain) {
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

func (p *ticks) Detach(now Time, id ID) {
	p.Leave(now, id)
	p.pot.drop(p.members[id])
	delete(p.members, id)
}

func (p *ticks) Leave(_ Time, id ID) {
	e := p.members[id]
	p.leave(e)
	e.context, e.busy = false, false
	if p.window.holder == e {
		p.window.holder = nil
	}
	p.cpus.forget(e)
}

func (p *ticks) queue(e *domainState) {
	p.waits.places++
	e.place = p.waits.places
	p.pot.line.enter(e, p.pot.value)
}

// dequeue removes e from the line.
func (p *ticks) dequeue(e *domainState) {
	p.pot.line.remove(e, p.pot.value)
	if p.waits.urgent.has(e) {
		p.waits.remove(e)
	}
}

// leave makes e stop competing.
func (p *ticks) leave(e *domainState) {
	if !e.active {
		return
	}
	if p.pot.line.has(e) {
		p.dequeue(e)
	}
	p.pot.leave(e)
}

// Observe stores the domains with running vCPUs.
func (p *ticks) Observe(now Time, s *vcpu.Sample) {
	p.cpus.observe(now, s, p.members, p.opt.span())
}

// scheduled returns the domains with running vCPUs, or nil if the sample is too old.
func (p *ticks) scheduled(now Time) []*domainState { return p.cpus.at(now, 2*p.opt.Tick) }

// continues returns the decision about the window of the holder, unless the window is over: it stays open while no other
// domain competes, and then ends after a tick.
func (p *ticks) continues(now Time) (d Decision, ok, over bool) {
	w := &p.window
	switch {
	case p.pot.line.len() == 0:
		changed := w.until != Forever
		w.until, w.over = Forever, false
		return Decision{Grant, Lease{Domain: w.holder.id, Until: Forever}}, changed, false
	case w.until == Forever && !w.over && now < w.idleEnd:
		w.until = now.Add(p.opt.Tick)
		return Decision{Grant, Lease{Domain: w.holder.id, Until: w.until}}, true, false
	case now < min(w.until, w.idleEnd) && !w.over:
		return Decision{}, false, false
	}
	return Decision{}, false, true
}

// nominate sets last: the domain whose patience has ended, or the chosen one; false: none competes.
func (p *ticks) nominate(now Time) bool {
	if p.pot.line.len() == 0 {
		return false
	}
	p.pot.begin(p.opt.Tick)
	p.last = choice{e: p.waits.urgent.top(), why: "and has been passed over for too long"}
	if p.last.e == nil || p.last.e.due > now {
		p.last = p.choose(now)
	}
	return true
}

// chosen takes the nominated domain out of the line and returns it.
func (p *ticks) chosen() *domainState {
	e := p.last.e
	p.balance = time.Duration(p.pot.balance(e) >> scaleBits)
	p.dequeue(e)
	return e
}

func (p *ticks) Explain() string {
	e := p.window.holder
	switch {
	case e == nil:
		return p.name + ": no domain has work"
	case p.pot.line.len() == 0:
		return fmt.Sprintf("%s: domain %d competes with no other domain, its window stays open", p.name, e.id)
	}
	boost := ""
	if p.last.boost > 0 {
		boost = fmt.Sprintf(" and boost %d", p.last.boost/creditTime)
	}
	return fmt.Sprintf("%s: domain %d has balance %d%s, %s; credits %d of %d, %d in line",
		p.name, e.id, p.balance.Round(creditTime)/creditTime, boost, p.last.why, e.credits, p.pot.total, p.pot.line.len())
}
