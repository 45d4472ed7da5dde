package policies

import (
	"fmt"
	"slices"
	"time"

	"pegasus/vcpu"
)

var _ = register(Spec{
	Name: "drr", Rank: 11, New: newDRR, Lends: Requests, Share: byCredits,
	Params: []*Param{orderInUnit.Param, launches.Param, quantum.Param, jiffy.Param},
	Serves: "each domain in rounds, for a quantum a round",
	Part:   "in proportion to its credits",
})

var (
	quantum = newDuration(Param{Key: "quantum", Doc: "time per round of a domain with 256 credits"}, ms/2, ms/20, 30*ms)
	jiffy   = newDuration(Param{Key: "jiffy", Zero: "measured when requests end", Doc: "period of the clock that measures use, as published"}, 0, ms/10, 100*ms)
)

// newDRR returns GERM's deficit round robin: in every round each unit with requests gets a quantum, in
// proportion to its credits, and may submit as long as the next request is expected to cost less than the
// unit has left. The unit keeps the rest as long as it has requests; an overdraft it always owes.
// (Dwarakinath, "A Fair-Share Scheduler for the Graphics Processing Unit", Stony Brook 2008.)
//
// The cost of a request is estimated from the bytes that it copies or the threads that it starts, by
// coefficients of its domain that follow the measured costs; without these the prediction is used, or a
// quantum.
//
// As published each request is lent by itself, and a unit loses its rest when its requests pause. In production mode a
// unit gets as many requests at a time as it can pay for before another unit's turn comes, at most for a short turn:
// between two leases the accelerator is idle for some 50 µs, which are 6 % of a request of 0.8 ms. And since
// consecutive requests of a program come a short time after the ones before ended, a unit counts as having requests as
// long as no gap exceeds roundsRest.
func newDRR(o Options) Policy {
	return newQueue("drr", o, newRounds(o), o.order(byArrival))
}

// roundsRest is the time for which a unit without requests keeps its rest.
const roundsRest = 2 * time.Millisecond

// Requests are lent several at a time to a domain after manyShort requests that cost less than short each, since only
// the cost of the first request can be estimated. A longer one halves the count.
const (
	short     = 2 * time.Millisecond
	manyShort = 16
)

// rounds is the share slot of drr. It makes no fruitless visits: it computes how often a unit has to be
// visited until it can pay for its first request, and skips the rounds in which no unit can.
type rounds struct {
	opt      Options
	launches int
	quantum  time.Duration
	jiffy    time.Duration // 0: the ends of requests measure use
	rest     time.Duration // for which a unit without requests keeps its rest
	waiting  heap[unit]    // by round, then by place
	places   int64
	resting  []*unit // without waiting requests since no longer than rest, and perhaps others
	round    int64   // the current one
	place    int64   // of the unit visited last
	turn     *unit   // that unit, while its turn continues

	lent  chunk         // the request that was lent, or the first of several
	span  time.Duration // accelerator time of the lease
	ended []chunk       // requests that ended since tick, if a clock is to measure them
	tick  Time
}

// deficit is a unit's account under DRR.
type deficit struct {
	quantum time.Duration // added at each visit
	left    time.Duration // time that it may use
	rested  Time          // since when it has no requests, waiting or lent
	visited int64         // the round of its last visit
	first   int64         // while it waits: the round of its next visit; unit.key is the round in which it can pay
}

// deficitOf returns the account of a unit under DRR.
func deficitOf(u *unit) *deficit { return u.state.(*deficit) }

// chunk is a request that was lent.
type chunk struct {
	unit    *unit
	of      *tenant
	request Request
	cost    time.Duration // as estimated
	spent   time.Duration // as measured so far
}

func newRounds(o Options) *rounds {
	d := &rounds{opt: o, launches: launches.of(&o), quantum: quantum.of(&o), jiffy: jiffy.of(&o), waiting: heap[unit]{
		at: func(u *unit) *int { return &u.at },
		less: func(a, b *unit) bool {
			if a.key != b.key {
				return a.key < b.key
			}
			return a.place < b.place
		},
	}}
	if o.Mode == Production {
		d.rest = roundsRest
	}
	return d
}

func (d *rounds) unitChanged(_ Time, u *unit) {
	if u.place == 0 {
		d.places++
		u.place, u.state = d.places, &deficit{}
	}
	deficitOf(u).quantum = max(d.quantum*time.Duration(u.credits)/time.Duration(vcpu.DefaultCredits), 1)
	d.reckon(u)
}

func (d *rounds) unitRemoved(_ Time, u *unit) {
	d.resting = slices.DeleteFunc(d.resting, func(o *unit) bool { return o == u })
	if d.turn == u {
		d.turn = nil
	}
	if d.lent.unit == u {
		d.lent = chunk{}
	}
}

func (d *rounds) enqueue(now Time, u *unit) {
	d.measure(now)
	r := deficitOf(u)
	d.repay(u)
	if d.rest > 0 && u != d.lent.unit && now.Sub(r.rested) > d.rest {
		r.left = min(r.left, 0)
	}
	if d.rest > 0 && u != d.lent.unit && now > r.rested {
		r.left = min(r.left, max(r.quantum, d.estimate(u.first())))
	}
	r.first = max(r.visited+1, d.coming(u))
	u.key = d.pays(u)
	d.waiting.push(u)
}

// repay reduces a unit's overdraft by the quanta of the rounds that passed while it had no requests. As
// published the overdraft stays until it has some.
func (d *rounds) repay(u *unit) {
	r := deficitOf(u)
	by := d.coming(u) - 1
	if d.opt.Mode == Paper || by <= r.visited {
		return
	}
	r.left, r.visited = d.repaid(u), by
}

// repaid returns a unit's rest after the rounds that have passed.
func (d *rounds) repaid(u *unit) time.Duration {
	r := deficitOf(u)
	by := d.coming(u) - 1 - r.visited
	if r.left >= 0 || by <= 0 || d.opt.Mode == Paper {
		return r.left
	}
	if by > int64(-r.left/r.quantum) {
		return 0
	}
	return r.left + time.Duration(by)*r.quantum
}

// balance returns the balance relative to a unit that has just come and is visited in this round. A positive
// rest is soon lost.
func (d *rounds) balance(u *unit) time.Duration {
	r := deficitOf(u)
	balance := r.left
	if !d.waiting.has(u) {
		balance = d.repaid(u)
	}
	if r.visited >= d.round && d.round > 0 {
		balance -= r.quantum
	}
	return min(balance, 0)
}

func (d *rounds) restore(_ Time, u *unit, balance time.Duration) {
	r := deficitOf(u)
	r.left, r.visited = min(balance, 0), d.coming(u)-1
	d.reckon(u)
}

// coming returns the round of a unit's next turn, seen from the current position.
func (d *rounds) coming(u *unit) int64 {
	if u.place <= d.place {
		return d.round + 1
	}
	return d.round
}

// pays returns the round in which a waiting unit can pay for its first request.
func (d *rounds) pays(u *unit) int64 {
	return max(deficitOf(u).first+d.visits(u)-1, d.coming(u))
}

// reckon repositions a waiting unit after a change of its rest or first request.
func (d *rounds) reckon(u *unit) {
	if !d.waiting.has(u) {
		return
	}
	u.key = d.pays(u)
	d.waiting.fix(u)
}

// visits returns how often a unit has to be visited until its rest exceeds the cost of its first request.
func (d *rounds) visits(u *unit) int64 {
	r := deficitOf(u)
	short := d.estimate(u.first()) - r.left
	return int64(max(short, 0)/r.quantum) + 1
}

// dequeue removes a unit after its request was lent or withdrawn; its rest is lost if no other request comes soon.
func (d *rounds) dequeue(now Time, u *unit) {
	r := deficitOf(u)
	d.waiting.remove(u)
	r.rested = now
	if d.rest > 0 && !slices.Contains(d.resting, u) {
		d.resting = append(d.resting, u)
	}
	if u != d.turn && d.rest == 0 {
		r.left = min(r.left, 0)
	}
}

// estimate returns the expected cost of a tenant's request. In production mode a lease lasts for a tick at most while
// others wait, and a unit need not save up for more.
func (d *rounds) estimate(c *tenant) time.Duration {
	cost := d.expected(c)
	if d.opt.Mode == Production && d.jiffy == 0 {
		cost = min(cost, d.opt.Tick)
	}
	return cost
}

func (d *rounds) expected(c *tenant) time.Duration {
	r := c.request()
	switch {
	case r.Bytes > 0 && c.rates.perByte > 0:
		return c.rates.perByte.cost(r.Bytes)
	case r.Threads > 0 && c.rates.perThread > 0:
		return c.rates.perThread.cost(r.Threads)
	case r.Known:
		return r.Predicted
	}
	return d.quantum
}

func (d *rounds) vacated(*unit) {}

func (d *rounds) lasts(Time) time.Duration { return d.span }

func (d *rounds) peek() *unit {
	if u := d.turn; u != nil && d.waiting.has(u) && d.estimate(u.first()) < deficitOf(u).left {
		return u
	}
	return d.waiting.top()
}

// waitsFor returns roundsRest while the rounds that have passed have not repaid u's overdraft, otherwise 0. The
// rounds that are skipped for u would repay it at once.
func (d *rounds) waitsFor(u, _ *unit) time.Duration {
	r := deficitOf(u)
	if r.left+time.Duration(max(d.coming(u)-r.first, 0))*r.quantum < 0 {
		return roundsRest
	}
	return 0
}

func (d *rounds) pick(now Time) (*unit, int, Time) {
	d.measure(now)
	u := d.turn
	if u != nil && d.waiting.has(u) && d.estimate(u.first()) < deficitOf(u).left {
		return d.lend(now, u)
	}
	if u != nil && !d.waiting.has(u) && d.rest == 0 {
		deficitOf(u).left = min(deficitOf(u).left, 0)
	}
	d.turn = nil
	for u = d.waiting.top(); u != nil; u = d.waiting.top() {
		planned := u.key
		if len(u.members) > 1 { // another may be first by now
			d.reckon(u)
		}
		if u.key == planned {
			d.visit(u)
			return d.lend(now, u)
		}
	}
	return nil, 0, Forever
}

// visit gives a unit its quanta of all rounds up to the one in which it can pay.
func (d *rounds) visit(u *unit) {
	r := deficitOf(u)
	r.left += time.Duration(u.key-r.first+1) * r.quantum
	r.visited, r.first = u.key, u.key+1 // other requests of it may still wait
	d.round, d.place, d.turn = u.key, u.place, u
}

func (d *rounds) lend(now Time, u *unit) (*unit, int, Time) {
	c := u.first()
	d.lent = chunk{unit: u, of: c, request: *c.request(), cost: d.estimate(c)}
	d.span = maxDebt
	if d.lent.cost >= short || c.shorts < manyShort || d.opt.Mode == Paper || d.jiffy > 0 || len(u.members) > 1 || c.lane.reserve != nil || d.expects(now, u) {
		return u, 1, Forever
	}
	d.waiting.remove(u)
	span := min(d.undisturbed(u), d.opt.Tick)
	d.waiting.push(u)
	requests := atMost(d.launches, span, d.lent.cost)
	if requests > 1 {
		d.span = span
	}
	return u, requests, Forever
}

// expects reports whether a unit other than u keeps its rest, since its next request may come soon.
func (d *rounds) expects(now Time, u *unit) bool {
	d.resting = slices.DeleteFunc(d.resting, func(o *unit) bool { return d.waiting.has(o) || now.Sub(deficitOf(o).rested) > d.rest })
	return len(d.resting) > 1 || len(d.resting) == 1 && d.resting[0] != u
}

// yields reports whether another unit can pay for its first request before the holder can pay for its next.
func (d *rounds) yields(holder *tenant) bool {
	cost := d.lent.cost
	if holder.pending() {
		cost = d.estimate(holder)
	}
	return d.lent.spent+cost >= d.undisturbed(holder.unit)
}

// undisturbed returns the time that u, which was visited last, can pay for before another unit can pay for its
// first request.
func (d *rounds) undisturbed(u *unit) time.Duration {
	r := deficitOf(u)
	other := d.waiting.top()
	if other == nil {
		return maxDebt
	}
	visits := other.key - d.round
	if other.place < u.place {
		visits--
	}
	visits = min(max(visits, 0), int64(maxDebt/r.quantum))
	return r.left + time.Duration(visits)*r.quantum
}

func (d *rounds) charge(now Time, u *unit, t time.Duration) {
	switch d.measure(now); {
	case d.jiffy > 0:
	case u == d.lent.unit:
		d.lent.spent += t
	default: // of an earlier request
		deficitOf(u).left = max(deficitOf(u).left-t, -maxDebt)
		d.reckon(u)
	}
}

// complete charges the cost of a request to its unit: at once as measured or, if a clock is to measure it, as
// estimated until that clock ticks. A unit without a lent request had the accelerator to itself and is not
// charged.
func (d *rounds) complete(now Time, u *unit) {
	r := deficitOf(u)
	d.measure(now)
	r.rested = now
	c := d.lent
	d.lent = chunk{}
	switch {
	case c.unit == nil:
		r.left = max(r.left, 0)
	case c.unit != u:
	case d.jiffy > 0:
		r.left -= c.cost
		d.ended = append(d.ended, c)
	default:
		r.left -= c.spent
		c.of.measured(c.request)
	}
}

// measure advances the clock to now. If the clock has ticked since, each request that ended before is taken
// to have cost the same part of the time between two ticks, regardless of its unit.
func (d *rounds) measure(now Time) {
	if d.jiffy <= 0 || now < d.tick.Add(d.jiffy) {
		return
	}
	d.tick = now - (now-d.tick)%Time(d.jiffy)
	for _, c := range d.ended {
		cost := d.jiffy / time.Duration(len(d.ended))
		deficitOf(c.unit).left += c.cost - cost
		c.of.rates.learn(c.request, cost)
		d.reckon(c.unit)
	}
	clear(d.ended)
	d.ended = d.ended[:0]
}

func (d *rounds) explain(u *unit) string {
	r := deficitOf(u)
	return fmt.Sprintf("it has %v left, a quantum is %v", r.left, r.quantum)
}

// rates are the coefficients of a domain's request costs, per byte and per thread.
type rates struct{ perByte, perThread rate }

// rate is a cost per unit in 2⁻¹⁶ ns; 0: unknown.
type rate uint64

const rateBits = 16

// measured updates the rates of c by its requests that ended under its last lease, the first of which was q.
func (c *tenant) measured(q Request) {
	if c.ended == 0 {
		return
	}
	each := c.unended / time.Duration(c.ended)
	c.rates.learn(q, each)
	if c.shorts = min(c.shorts+c.ended, 4*manyShort); each >= short {
		c.shorts /= 2 // one that was disturbed is no reason to lend single ones again
	}
}

// learn adds the cost of a request to a running mean over 8.
func (r *rates) learn(q Request, cost time.Duration) {
	switch {
	case cost <= 0:
	case q.Bytes > 0:
		r.perByte.learn(q.Bytes, cost)
	case q.Threads > 0:
		r.perThread.learn(q.Threads, cost)
	}
}

func (r *rate) learn(units uint64, cost time.Duration) {
	seen := rate(max(min(muldiv(uint64(cost), 1<<rateBits, units, false), 1<<62), 1))
	if *r == 0 {
		*r = seen
		return
	}
	*r = max(*r-*r/8+seen/8, 1)
}

// cost returns the cost of that many units, at most an hour.
func (r rate) cost(units uint64) time.Duration {
	return time.Duration(min(muldiv(units, uint64(r), 1<<rateBits, false), uint64(time.Hour)))
}
