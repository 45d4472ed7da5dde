package policies

import (
	"fmt"
	"math/bits"
	"time"
)

// LAG's constants. The parameters for sites are in Options.
const (
	// lagIdle is how long a domain without work keeps its lag behind the others. A domain that rests for
	// longer starts level with them.
	lagIdle = 20 * time.Millisecond
	// lagSaved plus two of the others' requests is the most that a domain may lag behind when it has work
	// again: it may have used less than its share for long.
	lagSaved = 250 * time.Millisecond
	// lagFactor times the cost of a context switch, within lagLeast and lagMost, is how far a domain may run
	// ahead before another gets the accelerator.
	lagFactor = 8
	lagLeast  = 2 * time.Millisecond
	lagMost   = 30 * time.Millisecond
	// A domain with work is passed over for lagRotation at most; then it has a short turn although it is
	// ahead. The time is longer where short turns would otherwise be too large a part of its share:
	// lagPassed times the time that the others get, by credits, for its shortest turn and a short turn (see
	// patience).
	lagRotation = 25 * time.Millisecond
	lagPassed   = 3
	// lagCosts is the number of switches over which their cost is averaged. One switch may take ten times as
	// long as another, so a mean over fewer is mostly noise.
	lagCosts = 32
	// lagTurns is the number of longer turns after which the length of the shortest turn is forgotten.
	lagTurns = 16
	// lagSamples is the number of pauses that must have been measured before the next one is predicted.
	lagSamples = 4
	// The scheduler always waits for 1/lagPart of a rival's request.
	lagPart = 12
	// lagRests is the greatest part of a domain's pauses, in ‰, that may have been too long to wait for if
	// the accelerator is still to be kept for the domain.
	lagRests = 250
)

// lag is the project's own fair policy: weighted virtual time of measured use, a bounded lead, and short waits for
// domains that are expected to have a request soon.
//
// Each domain has a virtual time, which grows by the time that it used over its credits. The holder keeps the
// accelerator until it is ahead, by Ahead, of the domain with work that has the least virtual time; then that
// domain gets it. Ahead is a few context switches' worth, so that switching costs little. Until then the
// holder keeps the accelerator across its pauses, too, if they are shorter than a switch. A domain that
// submits one short request after another has no work at the moment when its last one ends. If most of its
// pauses are short, and it is behind, the accelerator is kept for it until its next request is due: at most
// Wait, which loses less than serving a long request of another domain first.
//
// A backlogged domain is never ahead of another by more than Ahead and its own longest request, divided by
// its credits. A domain that is behind by more, since it came back with saved time or the other's work ran
// on, catches up over several rotations: a domain that has been passed over for lagRotation has a short turn,
// of Ahead, and is charged for it like for any other. Short turns are so rare that they come to half of a
// share at most. A domain that is ahead by more than another can save up is in debt, and has none.
type lag struct {
	longest time.Duration // pause for which the accelerator is reserved
	lead    time.Duration // of one domain over another; 0: from the cost of a switch
	members map[ID]*runner
	queued  heap[runner] // domains with work, except the holder
	passed  heap[runner] // the same, by when each has been passed over for long enough
	credits int64        // of the queued domains
	due     heap[runner] // domains without work that are expected back soon
	floor   uint64       // least virtual time that a domain begins with

	holder  *runner
	granted Lease
	began   Time          // start of the holder's turn
	short   bool          // the holder was passed over, and is ahead: this turn ends after Ahead
	closing *runner       // its gate has to be closed before another's opens
	cost    time.Duration // of a context switch; running mean

	why reason
}

// runner is a domain's account under LAG.
type runner struct {
	id      ID
	credits int64
	time    uint64 // virtual time: used time per credit, in 1/scale ns; wraps
	rest    uint64 // remainder of the division, in 1/scale ns
	work    bool
	since   Time // since when it has no work

	// Its pauses: mean length, mean deviation and number seen; and the length of its requests.
	pause, varies time.Duration
	pauses        int
	rests         int // ‰ of its pauses that were longer than the longest wait; running mean
	request       time.Duration
	part          time.Duration // used since a request ended

	turn  time.Duration // used since its last turn began
	least time.Duration // the shortest of its recent turns; 0: it had none yet
	late  Time          // while it is queued: when it has been passed over for long enough

	inQueued, inDue, inPassed int
}

var _ = register(Spec{
	Name: "lag", Rank: 14, New: newLAG, Lends: Budget, Share: byCredits,
	Params: []*Param{longestPause.Param, greatestLead.Param, switchCost.Param},
	Serves: "the domain that is furthest behind",
	Part:   "in proportion to its credits",
})

var (
	longestPause = newDuration(Param{Key: "wait", Doc: "longest pause for which the accelerator is reserved"}, 2*ms, time.Microsecond, 100*ms)
	greatestLead = newDuration(Param{Key: "ahead", Zero: "by what a switch costs", Doc: "how far a domain may get ahead of another"}, 0, 100*time.Microsecond, time.Second)
	switchCost   = newDuration(Param{Key: "switch_cost", Doc: "cost of a change of contexts, until it has been measured"}, 250*time.Microsecond, time.Microsecond, 100*ms)
)

// MeasuredSwitch sets the cost of a change of contexts to a measured one, unless the site has set another than the
// default.
func (o *Options) MeasuredSwitch(cost time.Duration) {
	if o.Get(switchCost.Param) == switchCost.Default {
		o.Set(switchCost.Param, int64(cost))
	}
}

func newLAG(o Options) Policy {
	earlier := func(a, b *runner) bool {
		if a.time != b.time {
			return ahead(b.time, a.time)
		}
		return a.id < b.id
	}
	return &lag{
		longest: longestPause.of(&o),
		lead:    greatestLead.of(&o),
		members: make(map[ID]*runner),
		queued:  heap[runner]{at: func(r *runner) *int { return &r.inQueued }, less: earlier},
		due:     heap[runner]{at: func(r *runner) *int { return &r.inDue }, less: earlier},
		passed: heap[runner]{at: func(r *runner) *int { return &r.inPassed }, less: func(a, b *runner) bool {
			if a.late != b.late {
				return a.late < b.late
			}
			return a.id < b.id
		}},
		cost: switchCost.of(&o),
	}
}

// ahead reports whether virtual time a is ahead of b; virtual times wrap.
func ahead(a, b uint64) bool { return int64(a-b) > 0 }

// lead returns how much accelerator time r is ahead of o, in terms of r's own share.
func (r *runner) lead(o *runner) time.Duration {
	d := int64(r.time - o.time)
	if d < 0 {
		return -time.Duration(product(uint64(-d), r.credits))
	}
	return time.Duration(product(uint64(d), r.credits))
}

// behind reports whether r is so far behind o that the accelerator is kept for it.
func (r *runner) behind(o *runner) bool { return -r.lead(o) > r.request/2 }

// product returns d·credits in whole nanoseconds, at most maxDebt.
func product(d uint64, credits int64) uint64 {
	hi, lo := bits.Mul64(d, uint64(credits))
	if hi != 0 || lo>>scaleBits > uint64(maxDebt) {
		return uint64(maxDebt)
	}
	return lo >> scaleBits
}

// dueAt returns until when a domain without work is waited for in place of rival, and whether it is at all.
// The wait lasts as long as most of its pauses, or for a part of rival's request: one pause in a dozen, at
// the end of a run of requests, may be longer than the rest.
func (p *lag) dueAt(r, rival *runner) (Time, bool) {
	span := max(r.pause+4*r.varies, rival.request/lagPart)
	return r.since.Add(min(span, p.longest)), p.waitsFor(r)
}

// waitsFor reports whether r's pauses are regular enough for the accelerator to be kept for it.
func (p *lag) waitsFor(r *runner) bool { return r.pauses >= lagSamples && r.rests <= lagRests }

func (p *lag) Attach(_ Time, d Domain) {
	r := p.members[d.ID]
	if r == nil {
		r = &runner{id: d.ID, time: p.floor}
		p.members[d.ID] = r
	}
	was := r.credits
	r.credits = int64(d.Credits.OrDefault())
	if p.queued.has(r) {
		p.credits += r.credits - was
	}
}

func (p *lag) Detach(now Time, id ID) {
	p.Leave(now, id)
	delete(p.members, id)
}

func (p *lag) Keeps() bool { return true }

func (p *lag) Leave(now Time, id ID) {
	r := p.members[id]
	p.raise(now) // while it still takes part: a domain that is alone has no debt
	p.out(r)
	if p.holder == r {
		p.holder = nil
	}
	if p.closing == r {
		p.closing = nil
	}
	if r.work {
		r.work, r.since = false, now
	}
}

func (p *lag) Balance(_ Time, id ID) time.Duration {
	r := p.members[id]
	return min(-r.lead(&runner{time: p.raised()}), 0) // the lag behind the others is soon lost
}

func (p *lag) Restore(_ Time, id ID, balance time.Duration) {
	r := p.members[id]
	r.time = p.floor
	r.spend(max(-balance, 0))
}

// line adds r, which has work, to the queued domains.
func (p *lag) line(now Time, r *runner) {
	p.queued.push(r)
	p.credits += r.credits
	r.late = now.Add(p.patience(r))
	p.passed.push(r)
}

// patience returns the longest time for which r is passed over, chosen so that its short turns come to no
// more than a part of its share.
func (p *lag) patience(r *runner) time.Duration {
	total := p.credits
	if p.holder != nil {
		total += p.holder.credits
	}
	turn := r.least
	if turn == 0 {
		turn = r.request
	}
	return max(lagRotation, min(scaleTime(lagPassed*(turn+p.most()), max(total-r.credits, 0), r.credits), maxDebt))
}

// overdue returns the domain that has been passed over for the longest, if its patience has ended. A domain
// in debt waits on.
func (p *lag) overdue(now Time) *runner {
	for {
		r := p.passed.top()
		if r == nil || r.late > now {
			return nil
		}
		q := p.queued.top()
		if h := p.holder; h != nil && ahead(q.time, h.time) {
			q = h
		}
		if -q.lead(r) <= p.saves(r)+p.most() {
			return r
		}
		r.late = now.Add(p.patience(r))
		p.passed.fix(r)
	}
}

// saves returns how far a domain may lag behind o when it has work again.
func (p *lag) saves(o *runner) time.Duration { return max(lagSaved, p.most()) + 2*o.request }

// out removes r from the heaps.
func (p *lag) out(r *runner) {
	if p.queued.has(r) {
		p.queued.remove(r)
		p.passed.remove(r)
		p.credits -= r.credits
	}
	if p.due.has(r) {
		p.due.remove(r)
	}
}

func (p *lag) Wake(since Time, id ID, s Signal) {
	r := p.members[id]
	switch {
	case s == Arrived && !r.work:
		p.come(since, r)
	case (s == Drained || s == ContextClosed) && r.work:
		p.rest(since, r)
	case s == Drained && since > r.since: // it had work in between
		r.since = since
	}
}

// come records that r has work again.
func (p *lag) come(now Time, r *runner) {
	p.raise(now)
	if away := now.Sub(r.since); (away > lagIdle || r.since == 0) && ahead(p.floor, r.time) {
		r.time = p.floor
	}
	r.work = true
	p.out(r)
	p.bound(r)
	if r != p.holder {
		p.line(now, r)
	}
}

// bound limits the lag of r behind the domains that take part: using less than a share saves up nothing
// beyond that.
func (p *lag) bound(r *runner) {
	var least *runner
	for _, o := range [...]*runner{p.queued.top(), p.holder} {
		if o != nil && o != r && (least == nil || ahead(least.time, o.time)) {
			least = o
		}
	}
	if least == nil {
		return
	}
	most := uint64(p.saves(least)) << scaleBits / uint64(r.credits)
	if ahead(least.time-most, r.time) {
		r.time = least.time - most
	}
}

// rest records that r has no work.
func (p *lag) rest(now Time, r *runner) {
	r.work, r.since = false, now
	p.out(r)
	if r != p.holder {
		p.expect(now, r)
	}
}

// expect adds r, which has no work, to the domains expected back soon, if its pauses qualify.
func (p *lag) expect(now Time, r *runner) {
	if p.waitsFor(r) && r.since.Add(p.longest) > now {
		p.due.push(r)
	}
}

// learn adds a pause to the statistics. A pause that is too long to wait for is no sample of the pauses
// within a run of requests; it only counts as a rest, and a domain that rests often is not waited for.
func (r *runner) learn(pause, wait time.Duration) {
	if pause > wait {
		r.rests += (1000 - r.rests) / 8
		return
	}
	r.rests -= (r.rests + 7) / 8
	pause = max(pause, 0)
	r.pauses = min(r.pauses+1, lagSamples)
	if r.pauses == 1 {
		r.pause, r.varies = pause, pause/8
		return
	}
	off := pause - r.pause
	r.pause += off / 8
	r.varies += (max(off, -off) - r.varies) / 8
}

// raise lifts the floor to the least virtual time of the domains that take part. A domain that was expected
// back and is overdue takes no part: the driver need not have read its gate page since.
func (p *lag) raise(now Time) {
	for b := p.due.top(); b != nil && b.since.Add(p.longest) <= now; b = p.due.top() {
		p.due.remove(b)
	}
	p.floor = p.raised()
}

// raised returns the floor, or the least virtual time of the domains that take part if that is greater.
func (p *lag) raised() uint64 {
	least, any := p.floor, false
	for _, r := range [...]*runner{p.queued.top(), p.due.top(), p.holder} {
		if r != nil && (!any || ahead(least, r.time)) {
			least, any = r.time, true
		}
	}
	if any && ahead(least, p.floor) {
		return least
	}
	return p.floor
}

func (p *lag) Charge(_ Time, id ID, u Usage) {
	r := p.members[id]
	if u.Switch > 0 {
		p.cost += (u.Switch - p.cost) / lagCosts
	}
	used := min(u.Busy(), maxDebt)
	r.part = min(r.part+used, maxDebt)
	r.turn = min(r.turn+used, maxDebt)
	if u.Pauses > 0 && u.Paused/time.Duration(u.Pauses) <= lagIdle {
		r.learn(u.Paused/time.Duration(u.Pauses), p.longest)
	}
	if u.Requests > 0 {
		r.request += (r.part/time.Duration(u.Requests) - r.request) / 8
		r.part = 0
	}
	r.spend(used)
	switch {
	case p.queued.has(r):
		p.queued.fix(r)
	case p.due.has(r):
		p.due.fix(r)
	}
}

// spend advances r's virtual time by the time that it used.
func (r *runner) spend(used time.Duration) {
	spent := uint64(used)<<scaleBits + r.rest
	r.time += spent / uint64(r.credits)
	r.rest = spent % uint64(r.credits)
}

// most returns how far the holder may be ahead of the next domain.
func (p *lag) most() time.Duration {
	if p.lead > 0 {
		return p.lead
	}
	return min(max(lagFactor*p.cost, lagLeast), lagMost)
}

func (p *lag) Pick(now Time) (Decision, bool, Time) {
	if p.holder != nil {
		lease, keep := p.keep(now)
		if keep {
			if lease == p.granted {
				return Decision{}, false, p.wake(now, lease)
			}
			p.granted = lease
			return Decision{Grant, lease}, true, p.wake(now, lease)
		}
		p.release(now)
	}
	next, lease, short := p.choose(now)
	switch {
	case p.closing != nil && p.closing != next:
		d := Decision{Revoke, Lease{Domain: p.closing.id}}
		p.closing = nil
		return d, true, now
	case next == nil:
		return Decision{}, false, Forever
	}
	p.out(next)
	p.begin(next)
	p.holder, p.closing, p.granted, p.began, p.short = next, nil, lease, now, short
	p.why = reason{id: next.id, window: time.Duration(lease.Amount), credits: next.credits, rivals: p.queued.len()}
	return Decision{Grant, lease}, true, p.wake(now, lease)
}

// begin records that a turn of r begins.
func (p *lag) begin(r *runner) {
	if r.turn > 0 {
		if r.least == 0 || r.turn < r.least {
			r.least = r.turn
		}
		r.least += min(r.turn-r.least, r.least) / lagTurns
	}
	r.turn = 0
}

// wake returns when to re-evaluate a lease: at its end, when its budget may have been used, or when another
// domain has been passed over for long enough. The use of a long request is reported only when its gate page
// is read.
func (p *lag) wake(now Time, l Lease) Time {
	at := l.Until
	if l.Kind != Window {
		at = now.Add(max(time.Duration(l.Amount), lookEvery))
	}
	if r := p.passed.top(); r != nil {
		at = min(at, max(r.late, p.safe(), now.Add(lookEvery)))
	}
	return at
}

// release takes the accelerator from its holder.
func (p *lag) release(now Time) {
	h := p.holder
	p.holder, p.closing = nil, h
	if h.work {
		p.line(now, h)
	} else {
		p.expect(now, h)
	}
}

// keep reports whether the holder stays, and returns the terms. While the holder has no work the accelerator
// idles during its pause: that pays if a context switch takes longer, or if the holder is behind and would
// get the accelerator back at once.
func (p *lag) keep(now Time) (Lease, bool) {
	h, rival := p.holder, p.queued.top()
	if rival == nil {
		return Lease{Domain: h.id, Until: Forever}, true
	}
	left := p.left(h, rival)
	if left <= 0 || now >= p.safe() && p.overdue(now) != nil {
		return Lease{}, false
	}
	if h.work {
		return p.budget(h, left), true
	}
	at, soon := p.dueAt(h, rival)
	return Lease{Domain: h.id, Until: at}, soon && at > now && (h.pause <= p.cost || h.behind(rival))
}

// safe returns until when the holder's turn continues although another domain has been passed over for long
// enough. A short turn may begin while the other's work runs on.
func (p *lag) safe() Time {
	if p.short {
		return p.began.Add(max(lagRotation, p.most()))
	}
	return p.began.Add(p.most())
}

// left returns the time that h may still use until it is far enough ahead, or its short turn ends.
func (p *lag) left(h, rival *runner) time.Duration {
	left := p.most() - h.lead(rival)
	if p.short {
		left = max(left, p.most()-h.turn)
	}
	return left
}

// budget returns a lease for the time that h may still use.
func (p *lag) budget(h *runner, left time.Duration) Lease {
	return Lease{Domain: h.id, Kind: Budget, Amount: int64(left), Until: Forever}
}

// choose returns the next domain, the terms of its lease, and whether its turn is short.
func (p *lag) choose(now Time) (next *runner, l Lease, short bool) {
	q := p.queued.top()
	if q == nil {
		return nil, Lease{}, false
	}
	if r := p.overdue(now); r != nil && r != q {
		return r, p.budget(r, p.most()), true
	}
	for b := p.due.top(); b != nil; b = p.due.top() {
		at, _ := p.dueAt(b, q)
		if at <= now {
			p.due.remove(b) // its request did not come
			continue
		}
		if b.behind(q) {
			return b, Lease{Domain: b.id, Until: at}, false
		}
		break
	}
	p.queued.remove(q)
	rival := p.queued.top()
	p.queued.push(q)
	if rival == nil {
		return q, Lease{Domain: q.id, Until: Forever}, false
	}
	return q, p.budget(q, p.most()-q.lead(rival)), false
}

func (p *lag) Explain() string {
	h := p.holder
	switch rival := p.queued.top(); {
	case h == nil:
		return "lag: no domain has work"
	case rival == nil:
		return fmt.Sprintf("lag: domain %d has the accelerator, no other domain has work", h.id)
	case !h.work:
		return fmt.Sprintf("lag: domain %d is expected back; domain %d, which waits, is %s it", h.id, rival.id, place(-h.lead(rival)))
	default:
		return fmt.Sprintf("lag: domain %d is %s domain %d, up to %v; credits %d, %d in line",
			h.id, place(h.lead(rival)), rival.id, p.most(), h.credits, p.queued.len())
	}
}

// place describes a lead, for people.
func place(lead time.Duration) string {
	where := "ahead of"
	if lead < 0 {
		lead, where = -lead, "behind"
	}
	return fmt.Sprintf("%v %s", lead.Round(time.Microsecond), where)
}
