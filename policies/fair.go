package policies

import (
	"fmt"
	"time"
)

// Limits of an account.
const (
	// maxCarry is the most that a domain keeps, beyond one quantum, of windows that were shortened by work
	// that its predecessors had still in flight.
	maxCarry = mostOwed
	// minWindow is the shortest window worth a switch. A domain that is owed less waits until it is owed as
	// much.
	minWindow = time.Millisecond
	// tolerance: 1/tolerance of a window may go unused without being charged, because handing over and
	// submitting take time.
	tolerance = 4
	// maxUnseen is how much of its windows, beyond the tolerance, may go without reported use, because the
	// report may still be pending.
	maxUnseen = 100 * time.Millisecond
)

// fair gives windows that make the measured accelerator time proportional to the credits: deficit round robin
// over domains in credit order.
//
// With every rotation a common pot grows by unit, in time per credit; a domain's balance is its credits' part
// of the pot less the time it used. In each rotation every domain with work gets one window as long as its
// balance. Work still in flight at the end of a window is charged when it is reported, so the domain's next
// window is shorter, and the next window of the neighbour that it delayed longer. A domain that owes time is
// passed over until the pot has made up for it.
//
// A domain without work is in no rotation. It keeps the rest of its balance if it comes back before the
// rotation ends, and at most one quantum later.
type fair struct {
	name  string
	opt   Options
	least time.Duration // shortest window
	share func(*Options, Domain) Credits
	extra func(ID) int // ticks in addition to a domain's next window; nil: none

	members map[ID]*entry
	turns   heap[entry] // active domains except the holder, the next one in front
	poorest heap[entry] // active domains, the one with the least credits in front
	total   int64       // credits of the active domains

	round int64  // the current rotation
	unit  uint64 // growth of the pot in it
	pot   uint64

	holder  *entry
	waiting *entry // chosen, but its predecessor's gate must be closed first
	planned Time   // end of the holder's window by its balance at the start
	until   Time   // its end, as granted
	idle    bool   // the holder has no work
	idleEnd Time   // end of its window for that reason
	alone   bool   // at the last Pick only the holder was active

	// State since the window began, or since the holder was last alone.
	start  Time
	others time.Duration // used by others for work that was still in flight

	why reason
}

// reason is the data of the last choice, for Explain.
type reason struct {
	id      ID
	round   int64
	window  time.Duration
	credits int64
	total   int64
	rivals  int
}

func newFair(name string, o Options, share func(*Options, Domain) Credits) *fair {
	return &fair{
		name:    name,
		opt:     o,
		least:   min(minWindow, o.Tick),
		share:   share,
		members: make(map[ID]*entry),
		turns:   heap[entry]{at: func(e *entry) *int { return &e.inTurns }, less: sooner},
		poorest: heap[entry]{at: func(e *entry) *int { return &e.inPoorest }, less: poorer},
		idleEnd: Forever,
	}
}

func (p *fair) Attach(_ Time, d Domain) {
	credits := max(int64(p.share(&p.opt, d)), 1)
	e := p.members[d.ID]
	if e == nil {
		p.members[d.ID] = &entry{id: d.ID, credits: credits, round: p.round, pot: p.pot - p.unit}
		return
	}
	if e.credits == credits {
		return
	}
	p.settle(e)
	queued := p.turns.has(e)
	p.leave(e)
	e.credits = credits
	if queued || e == p.holder {
		p.count(e)
	}
	if queued {
		p.turns.push(e)
	}
}

func (p *fair) Detach(now Time, id ID) {
	p.Leave(now, id)
	delete(p.members, id)
}

func (p *fair) Keeps() bool { return true }

func (p *fair) Leave(_ Time, id ID) {
	e := p.members[id]
	if p.holder == e {
		if p.alone {
			p.forgive(e)
		}
		p.holder = nil
	}
	p.leave(e)
}

// Balance returns the balance relative to a domain that has just come and has this rotation before it.
func (p *fair) Balance(_ Time, id ID) time.Duration {
	e := *p.members[id]
	p.settle(&e)
	return min(e.balance-p.begins(&e), 0) // the rest of a rotation is lost with it
}

func (p *fair) Restore(_ Time, id ID, balance time.Duration) {
	e := p.members[id]
	p.settle(e)
	e.balance, e.rest = max(min(balance, 0)+p.begins(e), -maxDebt), 0
}

// begins returns the balance that e would have if it had just come.
func (p *fair) begins(e *entry) time.Duration {
	return min(time.Duration(p.unit*uint64(e.credits)>>scaleBits), max(p.quantum(e), p.least))
}

func (p *fair) Wake(since Time, id ID, s Signal) {
	e := p.members[id]
	switch {
	case e == p.holder:
		p.notice(since, s)
	case s == Arrived && !e.active:
		p.come(e)
	case s == Drained, s == ContextClosed:
		p.leave(e)
	}
}

// notice processes a signal of the holder.
func (p *fair) notice(since Time, s Signal) {
	switch {
	case s == Arrived:
		p.idle, p.idleEnd = false, Forever
	case s == ContextClosed:
		p.idle, p.idleEnd = true, since
	case s == Drained:
		p.idle = true
		if p.opt.IdleYield > 0 {
			p.idleEnd = since.Add(p.opt.IdleYield)
		}
	}
}

func (p *fair) Charge(_ Time, id ID, u Usage) {
	e := p.members[id]
	e.spend(u.Busy() + u.Idle)
	e.idling.seen += u.Busy() + u.Idle + u.Stalled
	if e != p.holder {
		p.others += u.Busy()
	}
}

func (p *fair) Pick(now Time) (Decision, bool, Time) {
	d, ok := p.decide(now)
	p.alone = p.holder != nil && p.turns.len() == 0
	switch {
	case ok, p.holder == nil, p.alone:
		return d, ok, Forever
	default:
		return d, ok, min(p.until, p.idleEnd)
	}
}

func (p *fair) decide(now Time) (Decision, bool) {
	if p.waiting != nil {
		return p.open(now, p.take()), true
	}
	h := p.holder
	if h == nil {
		if next := p.next(); next != nil {
			return p.open(now, next), true
		}
		return Decision{}, false
	}
	if p.alone {
		p.forgive(h)
		p.start, p.others, h.idling.seen = now, 0, 0
	}
	if p.turns.len() > 0 && now >= min(p.end(), p.idleEnd) {
		return p.turn(now), true
	}
	if end := p.end(); end != p.until {
		p.until = end
		return Decision{Grant, Lease{Domain: h.id, Until: end}}, true
	}
	return Decision{}, false
}

// turn ends the holder's window. If its next window follows at once, its gate stays open.
func (p *fair) turn(now Time) Decision {
	h := p.holder
	p.finish(h, now)
	next := p.next()
	if next == h {
		return p.open(now, h)
	}
	p.holder, p.waiting = nil, next
	return Decision{Revoke, Lease{Domain: h.id}}
}

// take returns the domain that was waiting for its predecessor's gate to close.
func (p *fair) take() *entry {
	e := p.waiting
	p.waiting = nil
	return e
}

// open gives e its window.
func (p *fair) open(now Time, e *entry) Decision {
	p.holder = e
	p.start, p.others = now, 0
	window := p.window(e)
	if p.extra != nil && p.turns.len() > 0 {
		more := time.Duration(p.extra(e.id)) * p.opt.Tick
		e.balance += more
		window += more
	}
	p.planned = now.Add(window)
	p.idle, p.idleEnd = false, Forever
	p.until = p.end()
	p.why = reason{e.id, p.round, window, e.credits, p.total, p.turns.len()}
	return Decision{Grant, Lease{Domain: e.id, Until: p.until}}
}

// end returns when the holder's window ends: never while it is alone; later than planned if no other domain
// is owed time in the rotations that follow.
func (p *fair) end() Time {
	next := p.turns.top()
	if next == nil {
		return Forever
	}
	free := next.round - p.round - 1
	if free <= 0 {
		return p.planned
	}
	room := p.opt.RotationCap
	if quantum := p.quantum(p.holder); quantum <= 0 || free < int64(room/quantum) {
		room = time.Duration(free) * quantum
	}
	return p.planned.Add(room)
}

// finish puts the holder back in line, or out of it if it has no work. The rest of a window that ran to its
// end belongs to the next rotation.
func (p *fair) finish(h *entry, now Time) {
	p.settle(h)
	window := max(min(now, p.until).Sub(p.start), 0)
	h.spend(h.idling.ended(window - window/tolerance - p.others))
	if yields := p.idle && now < p.planned; !yields || h.balance < p.least {
		h.round = p.due(h)
	}
	if p.idle {
		p.leave(h)
		return
	}
	p.turns.push(h)
}

// next takes the next domain out of the line; nil if there is none.
func (p *fair) next() *entry {
	for {
		e := p.turns.top()
		if e == nil {
			return nil
		}
		p.settle(e)
		if e.round > p.round {
			p.advance(e)
		}
		wait := e.rotations(p.least, p.unit)
		if wait == 0 {
			p.turns.remove(e)
			e.fresh = false
			return e
		}
		e.round = p.round + wait
		p.turns.fix(e)
	}
}

// advance begins e's rotation: in each, the poorest active domain gets a tick, and all together no more than
// the rotation cap. Rotations that e does not need are skipped: their number was computed when other domains
// were active.
func (p *fair) advance(e *entry) {
	p.unit = 1
	if poorest := p.poorest.top(); poorest != nil {
		tick := scaled(p.opt.Tick) / uint64(poorest.credits)
		most := scaled(p.opt.RotationCap) / uint64(p.total)
		p.unit = max(min(tick, most), 1)
	}
	rounds := min(e.round-p.round, max(e.rotations(p.least, p.unit), 1))
	p.pot += uint64(rounds) * p.unit
	p.round = e.round
	p.settle(e)
}

// forgive grows the pot by the time that the holder used while no other domain had work: the holder owes
// nothing for it.
func (p *fair) forgive(h *entry) {
	p.settle(h)
	if h.balance >= 0 {
		return
	}
	p.pot += (scaled(-h.balance) + uint64(h.credits) - 1) / uint64(h.credits)
	p.round++
	p.settle(h)
}

// come puts a domain that has work again in line. It may bring at most one quantum, regardless of the growth
// of the pot until its turn.
func (p *fair) come(e *entry) {
	p.count(e)
	e.fresh = true
	if e.round > p.round || p.unit == 0 {
		p.settle(e)
		e.round = p.due(e)
	} else {
		e.round = p.round
	}
	p.turns.push(e)
}

// due returns the rotation in which e's next window may begin.
func (p *fair) due(e *entry) int64 {
	if p.unit == 0 { // no rotation has begun yet
		return p.round + 1
	}
	return p.round + max(1, e.rotations(p.least, p.unit))
}

// count makes e active.
func (p *fair) count(e *entry) {
	e.active = true
	p.total += e.credits
	p.poorest.push(e)
}

// leave makes e inactive.
func (p *fair) leave(e *entry) {
	if !e.active {
		return
	}
	e.active = false
	p.total -= e.credits
	p.poorest.remove(e)
	if p.turns.has(e) {
		p.turns.remove(e)
	}
}

// settle updates e's balance to the current pot.
func (p *fair) settle(e *entry) {
	most := max(p.quantum(e), p.least)
	if !e.fresh {
		most += maxCarry
	}
	e.settle(p.pot, most)
}

// quantum returns e's gain in the current rotation, actual or hypothetical: unit may be from before e came,
// so the rotation cap is applied anew.
func (p *fair) quantum(e *entry) time.Duration {
	total := p.total
	if !e.active {
		total += e.credits
	}
	most := scaled(p.opt.RotationCap) / uint64(total)
	return time.Duration(min(p.unit, most) * uint64(e.credits) >> scaleBits)
}

// window returns the length of e's window: its balance. Work that was in flight in earlier windows may have
// left e, and others in line, windows that they could not use. The sum owed to them, in proportion to their
// credits, comes with the windows that follow, each at most half a window longer; otherwise one would wait
// until another had caught up.
func (p *fair) window(e *entry) time.Duration {
	usual := max(p.quantum(e), p.least) * 3 / 2
	if e.balance <= usual {
		return e.balance
	}
	most := uint64(0)
	for _, o := range p.turns.items {
		p.settle(o)
		if carry := o.balance - max(p.quantum(o), p.least); carry > 0 {
			most = max(most, muldiv(uint64(carry), uint64(e.credits), uint64(o.credits), false))
		}
	}
	return max(e.balance-time.Duration(min(most, uint64(maxDebt))), usual)
}

func scaled(d time.Duration) uint64 { return uint64(d) << scaleBits }

func (p *fair) Explain() string {
	w := p.why
	if p.holder == nil {
		return p.name + ": no domain has work"
	}
	state := fmt.Sprintf("window %v", w.window)
	if p.alone {
		state = "window open, no other domain has work"
	}
	return fmt.Sprintf("%s: rotation %d, domain %d: %s; credits %d of %d, %d in line",
		p.name, w.round, w.id, state, w.credits, w.total, w.rivals)
}
