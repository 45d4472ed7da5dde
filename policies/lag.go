package policies

import (
	"fmt"
	"math/bits"
	"time"
)

// LAG's constants. What a site may want to change is in Options.
const (
	// lagIdle is how long a domain keeps what it lags behind the others while it
	// has no work. Whoever rests for longer begins with the others.
	lagIdle = 20 * time.Millisecond
	// lagSaved is what a domain may lag behind the others, or two of their requests
	// more, when it has work again: less than its share it may have asked for long.
	lagSaved = 250 * time.Millisecond
	// lagFactor times the cost of a context switch is what a domain may run ahead
	// before another gets the accelerator, within lagLeast and lagMost.
	lagFactor = 8
	lagLeast  = 2 * time.Millisecond
	lagMost   = 30 * time.Millisecond
	// lagRotation is for how long a domain that has work is passed over at most, or for
	// lagPassed times as long as the others' part of a rotation is in which it has its
	// shortest turn, if that is longer: then it has a turn although it is ahead.
	lagRotation = 25 * time.Millisecond
	lagPassed   = 3
	// lagCosts is over how many switches their cost is averaged. One may take ten times
	// as long as another: a shorter mean is mostly chance.
	lagCosts = 32
	// lagTurns is over how many longer turns the length of the shortest is forgotten.
	lagTurns = 16
	// lagSamples is how many pauses must have been seen before one is foretold.
	lagSamples = 4
	// lagPart of a rival's request, one in so many, is always waited for.
	lagPart = 12
	// lagRests is the most of its pauses, in ‰, that may have been too long to wait for
	// in a domain that is waited for.
	lagRests = 250
)

// lag is the project's own fair policy: weighted virtual time of measured use, a
// bounded lead, and patience with domains that are about to come back.
//
// Each domain has a virtual time, which grows by what it used over its credits.
// The holder of the accelerator keeps it until it is ahead of the domain with the
// least virtual time that has work by Ahead, a few context switches' worth, so
// that switching costs little; then that domain gets it. Until then it keeps the
// accelerator across its pauses, too, if they are shorter than a switch. A domain that asks for
// one short request after another has no work at the moment when its last one
// ends. If most of its pauses are short, and it is behind, the accelerator is
// kept for it until it is due: at most Wait, of which less is lost than by
// serving a long request of another first.
//
// A backlogged domain is never ahead of another by more than Ahead and its own
// longest request, divided by its credits. Where a domain is behind by more, since it
// came back with saved time, or the other's work ran on, it catches up over
// several rotations: a domain that has been passed over for lagRotation has a short turn,
// of Ahead, which it pays for like any other. Short turns are so rare that they come to
// half of a share at most. A domain that is ahead by more than another can save up is in
// debt, and has none.
type lag struct {
	opt     Options
	members map[ID]*runner
	queued  heap[runner] // those with work, but the holder
	passed  heap[runner] // the same, by when each has been passed over for long enough
	credits int64        // of those
	due     heap[runner] // those without, who will be back soon
	floor   uint64       // no domain begins with a smaller virtual time

	holder  *runner
	granted Lease
	began   Time          // of its turn
	short   bool          // the holder was passed over, and is ahead: this turn ends after Ahead
	closing *runner       // its gate has to be closed before another's opens
	cost    time.Duration // of a context switch, running mean

	why reason
}

// runner is a domain under LAG.
type runner struct {
	id      ID
	credits int64
	time    uint64 // virtual: used time per credit, in 1/scale ns; wraps
	rest    uint64 // of the division, in 1/scale ns
	work    bool
	since   Time // since when it has none

	// Its pauses: how long, how much that varies, and how many were seen. And how
	// long its requests are.
	pause, varies time.Duration
	pauses        int
	rests         int // ‰ of its pauses that were longer than anybody waits, running mean
	request       time.Duration
	part          time.Duration // used since a request ended

	turn  time.Duration // used since its last turn began
	least time.Duration // of its shortest turns lately; 0: it had none yet
	late  Time          // while it is queued: when it has been passed over for long enough

	inQueued, inDue, inPassed int
}

func newLAG(o Options) Policy {
	earlier := func(a, b *runner) bool {
		if a.time != b.time {
			return ahead(b.time, a.time)
		}
		return a.id < b.id
	}
	return &lag{
		opt:     o,
		members: make(map[ID]*runner),
		queued:  heap[runner]{at: func(r *runner) *int { return &r.inQueued }, less: earlier},
		due:     heap[runner]{at: func(r *runner) *int { return &r.inDue }, less: earlier},
		passed: heap[runner]{at: func(r *runner) *int { return &r.inPassed }, less: func(a, b *runner) bool {
			if a.late != b.late {
				return a.late < b.late
			}
			return a.id < b.id
		}},
		cost: o.SwitchCost,
	}
}

// ahead compares virtual times, which wrap.
func ahead(a, b uint64) bool { return int64(a-b) > 0 }

// lead is how much accelerator time r is ahead of o, in terms of its own share.
func (r *runner) lead(o *runner) time.Duration {
	d := int64(r.time - o.time)
	if d < 0 {
		return -time.Duration(product(uint64(-d), r.credits))
	}
	return time.Duration(product(uint64(d), r.credits))
}

// behind says whether r is so far behind o that the accelerator is kept for it.
func (r *runner) behind(o *runner) bool { return -r.lead(o) > r.request/2 }

// product is d·credits in whole nanoseconds, at most maxDebt.
func product(d uint64, credits int64) uint64 {
	hi, lo := bits.Mul64(d, uint64(credits))
	if hi != 0 || lo>>scaleBits > uint64(maxDebt) {
		return uint64(maxDebt)
	}
	return lo >> scaleBits
}

// dueAt is until when a domain without work is waited for in place of another, if at
// all: as long as it mostly pauses, or for a part of what a request of the other
// takes, since one pause in a dozen may be longer than the rest: that at the end of a
// run of requests.
func (p *lag) dueAt(r, rival *runner) (Time, bool) {
	span := max(r.pause+4*r.varies, rival.request/lagPart)
	return r.since.Add(min(span, p.opt.Wait)), p.waitsFor(r)
}

// waitsFor says whether r's pauses are such that it is waited for.
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
	p.raise(now) // while it still takes part: a domain that is alone owes nothing
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
	return min(-r.lead(&runner{time: p.raised()}), 0) // what it lags behind is soon lost
}

func (p *lag) Restore(_ Time, id ID, balance time.Duration) {
	r := p.members[id]
	r.time = p.floor
	r.spend(max(-balance, 0))
}

// line puts r, which has work, in line.
func (p *lag) line(now Time, r *runner) {
	p.queued.push(r)
	p.credits += r.credits
	r.late = now.Add(p.patience(r))
	p.passed.push(r)
}

// patience is for how long r is passed over at most: so long that its short turns come to
// no more than a part of its share.
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

// overdue returns the domain that has been passed over for the longest, if it is due. A domain in debt waits on.
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

// saves returns by how much a domain may lag behind o when it has work again.
func (p *lag) saves(o *runner) time.Duration { return max(lagSaved, p.most()) + 2*o.request }

// out takes r out of the heaps.
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

// come notes that r has work again.
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

// bound limits what r lags behind those who take part: whoever asks for less than its
// share saves up nothing.
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

// rest notes that r has no work.
func (p *lag) rest(now Time, r *runner) {
	r.work, r.since = false, now
	p.out(r)
	if r != p.holder {
		p.expect(now, r)
	}
}

// expect puts r, which has no work, among those who will be back soon, if it will.
func (p *lag) expect(now Time, r *runner) {
	if p.waitsFor(r) && r.since.Add(p.opt.Wait) > now {
		p.due.push(r)
	}
}

// learn takes in a pause. One that is too long to wait for says nothing of those
// between two requests of a run; but whoever rests often is not waited for.
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

// raise lifts the floor to the least virtual time of those who take part. Who was to be
// back and isn't takes no part: nobody need have looked since.
func (p *lag) raise(now Time) {
	for b := p.due.top(); b != nil && b.since.Add(p.opt.Wait) <= now; b = p.due.top() {
		p.due.remove(b)
	}
	p.floor = p.raised()
}

// raised returns the floor, or the least virtual time of the domains that take part if that is more.
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
		r.learn(u.Paused/time.Duration(u.Pauses), p.opt.Wait)
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

// spend lets r's virtual time grow by what it used.
func (r *runner) spend(used time.Duration) {
	spent := uint64(used)<<scaleBits + r.rest
	r.time += spent / uint64(r.credits)
	r.rest = spent % uint64(r.credits)
}

// most is what the holder may be ahead of the next domain.
func (p *lag) most() time.Duration {
	if p.opt.Ahead > 0 {
		return p.opt.Ahead
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

// begin notes that a turn of r begins.
func (p *lag) begin(r *runner) {
	if r.turn > 0 {
		if r.least == 0 || r.turn < r.least {
			r.least = r.turn
		}
		r.least += min(r.turn-r.least, r.least) / lagTurns
	}
	r.turn = 0
}

// wake is when to look again at a lease: at its end, when its budget may have been used, or when another domain has been passed
// over for long enough. Requests that go on for long report their use only at a look.
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

// keep says whether the holder stays, and on what terms. Where it has no work the
// accelerator idles for its pause: that is worth it if changing contexts takes longer,
// or if it is behind, for which it would get it back at once.
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

// safe is until when the turn of the holder goes on although another domain has been passed over for long enough. A short turn may
// begin while the other's work runs on.
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

// choose returns the domain that is next, on what terms, and whether its turn is short.
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
			p.due.remove(b) // it did not come
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
		return "lag: nobody has work"
	case rival == nil:
		return fmt.Sprintf("lag: domain %d has the accelerator, nobody else has work", h.id)
	case !h.work:
		return fmt.Sprintf("lag: domain %d is expected back; domain %d, which waits, is %v ahead of it", h.id, rival.id, -h.lead(rival))
	default:
		return fmt.Sprintf("lag: domain %d is %v ahead of domain %d, up to %v; credits %d, %d in line",
			h.id, h.lead(rival), rival.id, p.most(), h.credits, p.queued.len())
	}
}
