package policies

import (
	"fmt"
	"math/bits"
	"time"
)

var _ = register(Spec{
	Name: "credit", Rank: 9, New: newCredit, Lends: Requests, Share: byCredits, Params: []*Param{orderInUnit.Param, launches.Param, period.Param},
	Serves: "the first domain in the list that has requests; a domain without credit goes to the end",
	Part:   "its part, if its requests are no longer than those of the others",
})

var (
	launches = newCount(Param{Key: "launches", Doc: "requests of a lease, at most"}, 32, 1, 1024)
	period   = newDuration(Param{Key: "period", Doc: "interval at which credit is refilled"}, 30*ms, ms, time.Second)
)

// newCredit returns Gdev's port of Xen's credit scheduler: the first unit in the list that has requests is
// served, and goes to the end once it has used up its credit. As published every period adds a unit's part of
// it to its credit; a unit that is then a whole period ahead or behind restarts at 0. So a unit is charged
// for its requests only as far as they are short: newBand corrects that. In production mode nothing is
// forgotten: see tab. (Kato et al., "Gdev: First-Class GPU Resource Management in the Operating System",
// USENIX ATC 2012.)
func newCredit(o Options) Policy {
	return newBursts("credit", o, newCredits(o))
}

// newBursts returns a queue that lends several requests at a time. As published their number is fixed; in
// production mode they are as many as fit into a period, and the lease ends when a period was used.
func newBursts(name string, o Options, s share) *queue {
	q := newQueue(name, o, s, o.order(byPriority))
	if o.Mode == Production {
		q.limits.longest = period.of(&o)
	}
	return q
}

// credits is the share slot of credit: a list of units with their accounts.
type credits struct {
	*rotation
	opt    Options
	tab    tab
	served *unit // unit that has the lease, or gets it next
	now    Time  // latest time reported

	launches             int
	period, window, mean time.Duration
	reach                time.Duration // debt beyond it prolongs the wait for a brief lease

	passed heap[unit] // in production mode: waiting units, by when each has waited for the others' part of a rotation
	brief  bool       // the served unit had waited so long, and another was first in the list

	// The sum of the parts promised to units, in ‰, and the credits of the units without a promised part:
	// they share the rest.
	parts   int64
	weights int64
	version int // of these sums
}

// creditAccount is a unit's account under Credit and BAND.
type creditAccount struct {
	bw, weight int64         // as counted in the sums
	income     time.Duration // per period, as of this version of the sums
	version    int
	credit     time.Duration
	line       line // in the tab
	turns      turns
	tick       Time // start of its current period

	// busy is the time used since start, and `known` the part of it up to the last tick.
	start       Time
	busy        time.Duration
	known, over time.Duration

	mean   time.Duration // used per period, running mean
	recent time.Duration // used, but not in the mean yet
}

// creditAccountOf returns the account of a unit under Credit or BAND.
func creditAccountOf(u *unit) *creditAccount { return u.state.(*creditAccount) }

// leastRest is the part, in ‰, that always remains for the units without a promised part, however much was
// promised to the others.
const leastRest = 10

// turns is a unit's record of waiting for its turns.
type turns struct {
	since Time          // since when it waits
	want  Time          // when it has waited for the others' part of a rotation
	at    int           // position among the waiting units
	brief bool          // its last lease was a brief one
	used  time.Duration // since its last lease began
	tail  time.Duration // the part of that beyond the lease
	ranOn time.Duration // the part of its debt from such use, beyond a tick each time
}

func newCredits(o Options) *credits {
	return &credits{rotation: newRotation(), opt: o, launches: launches.of(&o), period: period.of(&o), window: window.of(&o), mean: mean.of(&o), reach: o.reach(), tab: newTab(), passed: heap[unit]{
		at: func(u *unit) *int { return &creditAccountOf(u).turns.at },
		less: func(a, b *unit) bool {
			if x, y := creditAccountOf(a).turns.want, creditAccountOf(b).turns.want; x != y {
				return x < y
			}
			return a.place < b.place
		},
	}}
}

// wantFrom returns when u, which waits, has waited for the others' part of a rotation: see
// coordinated.wantFrom.
func (c *credits) wantFrom(u *unit) Time {
	p := creditAccountOf(u)
	t, weight := &p.turns, p.line.weight
	span := max(c.opt.Tick, briefApart*(c.opt.brief()+t.tail))
	at := t.since.Add(t.tail + max(scaleTime(span, max(c.tab.total-weight, 0), weight), c.opt.Tick))
	if debt := min(t.ranOn, -c.balance(u)) - c.reach; debt > 0 {
		at = at.Add(scaleTime(debt, max(c.tab.total, weight), weight))
	}
	return at
}

// passedOver returns the unit that has waited for the others' part of a rotation, or nil.
func (c *credits) passedOver(now Time) *unit {
	if u := c.passed.top(); u != nil && creditAccountOf(u).turns.want <= now {
		return u
	}
	return nil
}

// serve gives u the next lease.
func (c *credits) serve(now Time, u *unit, brief bool) {
	c.settle(now, u)
	c.served, c.brief = u, brief
	t := &creditAccountOf(u).turns
	t.used, t.tail, t.brief = 0, 0, brief
}

// spend adds u's use, under its lease or after it. Use beyond the lease makes u wait.
func (c *credits) spend(t *turns, d time.Duration) {
	before := max(t.tail-c.opt.Tick, 0)
	lent := c.opt.Tick
	if t.brief {
		lent = c.opt.brief()
	}
	t.used = min(t.used+d, maxDebt)
	t.tail = max(t.used-lent, 0)
	t.ranOn = min(t.ranOn+max(t.tail-c.opt.Tick, 0)-before, maxDebt)
}

// yields returns false: a lease of several requests lasts.
func (c *credits) yields(*tenant) bool { return false }

// lasts returns the length of the lease: a brief one ends early, and so does any other when a waiting unit's
// turn comes.
func (c *credits) lasts(now Time) time.Duration {
	long := c.opt.Tick
	if c.brief {
		long = c.opt.brief()
	}
	if u := c.passed.top(); u != nil {
		long = min(long, max(creditAccountOf(u).turns.want.Sub(now), c.opt.brief()))
	}
	return long
}

// keeps reports whether credit is counted by the tab.
func (c *credits) keeps() bool { return c.opt.Mode == Production }

func (c *credits) unitChanged(now Time, u *unit) {
	if u.state == nil {
		u.state = &creditAccount{tick: now, start: now}
	}
	p := creditAccountOf(u)
	c.rotation.unitChanged(now, u)
	c.uncount(u)
	if p.bw = u.bw; p.bw == 0 {
		p.weight = u.credits
	}
	c.parts += p.bw
	c.weights += p.weight
	c.version++
	if c.keeps() {
		c.tab.units[u] = true
		c.reweigh()
	}
}

// reweigh passes every unit's new income to the tab. A unit whose domains have left repays its debt by the
// income that it had.
func (c *credits) reweigh() {
	for u := range c.tab.units {
		if len(u.members) > 0 {
			c.tab.weigh(u, max(int64(c.income(u)), 1))
		}
	}
}

// vacated removes the unit from the sums that the others' incomes depend on.
func (c *credits) vacated(u *unit) {
	c.uncount(u)
	c.reweigh()
}

func (c *credits) uncount(u *unit) {
	p := creditAccountOf(u)
	c.parts -= p.bw
	c.weights -= p.weight
	p.bw, p.weight = 0, 0
	c.version++
}

func (c *credits) unitRemoved(now Time, u *unit) {
	c.rotation.unitRemoved(now, u)
	c.uncount(u)
	if c.keeps() {
		c.tab.remove(u)
		c.reweigh()
	}
}

func (c *credits) charge(now Time, u *unit, d time.Duration) {
	c.settle(now, u)
	p := creditAccountOf(u)
	p.busy += d
	p.recent = min(p.recent+d, 8*c.period)
	if !c.keeps() {
		p.credit -= d
		return
	}
	t := &p.turns
	c.spend(t, d)
	c.tab.spend(u, d)
	t.ranOn = min(t.ranOn, max(-c.balance(u), 0))
	if c.passed.has(u) {
		t.want = c.wantFrom(u)
		c.passed.fix(u)
	}
}

func (c *credits) enqueue(now Time, u *unit) {
	c.rotation.enqueue(now, u)
	if c.keeps() {
		c.tab.compete(now, u)
		t := &creditAccountOf(u).turns
		t.since = now
		t.want = c.wantFrom(u)
		c.passed.push(u)
	}
}

func (c *credits) dequeue(now Time, u *unit) {
	c.rotation.dequeue(now, u)
	if c.keeps() {
		c.passed.remove(u)
		c.tab.rest(now, u, u == c.served)
	}
}

// complete puts a unit without credit at the end of the list.
func (c *credits) complete(now Time, u *unit) {
	c.settle(now, u)
	c.release(now, u)
	if creditAccountOf(u).credit <= 0 {
		c.toEnd(u)
	}
}

// release records that a unit's lease has ended.
func (c *credits) release(now Time, u *unit) {
	if c.served = nil; c.keeps() && !c.waiting.has(u) {
		c.tab.rest(now, u, false)
	}
}

func (c *credits) peek() *unit { return c.waiting.top() }

// betweenCalls is the longest pause of a program that calls again at once.
const betweenCalls = 100 * time.Microsecond

// waitsFor returns the pause between two calls if u owes more than a turn, otherwise 0. Longer waits are
// BAND's addition.
func (c *credits) waitsFor(u, o *unit) time.Duration {
	if b := c.balance(u); b < -c.opt.Tick && b < c.balance(o) {
		return betweenCalls
	}
	return 0
}

func (c *credits) pick(now Time) (*unit, int, Time) {
	u := c.waiting.top()
	if u == nil {
		return nil, 0, Forever
	}
	if o := c.passedOver(now); o != nil && o != u {
		c.serve(now, o, true)
		return o, c.few(o), Forever
	}
	c.serve(now, u, false)
	return u, c.burst(u), Forever
}

// few returns how many requests a unit may submit under a brief lease.
func (c *credits) few(u *unit) int {
	return atMost(c.launches, c.opt.brief(), u.first().request().Predicted)
}

func (c *credits) balance(u *unit) time.Duration { return c.tab.balance(u) }

func (c *credits) restore(_ Time, u *unit, balance time.Duration) {
	c.tab.set(u, min(balance, mostOwed))
}

// burst returns how many requests a unit may submit at a time.
func (c *credits) burst(u *unit) int {
	if c.opt.Mode == Paper {
		return c.launches
	}
	return atMost(c.launches, c.period, u.first().request().Predicted)
}

// income returns the increase of a unit's credit per period. All incomes together are at most a period.
func (c *credits) income(u *unit) time.Duration {
	p := creditAccountOf(u)
	if p.version != c.version {
		p.income, p.version = c.earns(p), c.version
	}
	return p.income
}

func (c *credits) earns(p *creditAccount) time.Duration {
	rest := int64(0)
	if c.weights > 0 {
		rest = max(1000-c.parts, leastRest)
	}
	all := uint64(max(c.parts+rest, 1000))
	period := uint64(c.period)
	if p.bw > 0 {
		return time.Duration(muldiv(period, uint64(p.bw), all, false))
	}
	return time.Duration(muldiv(muldiv(period, uint64(rest), all, false), uint64(p.weight), uint64(c.weights), false))
}

// settle updates a unit's account to now. Changes of the incomes since the last update take effect from now on.
func (c *credits) settle(now Time, u *unit) {
	c.now = max(c.now, now)
	p := creditAccountOf(u)
	if c.keeps() {
		c.tab.settle(u)
	}
	periods := now.Sub(p.tick) / c.period
	if periods <= 0 {
		return
	}
	p.tick = p.tick.Add(periods * c.period)
	if !c.keeps() {
		p.credit = refilled(p.credit, c.income(u), c.period, periods)
	}
	p.look(c.period, c.window)
	if c.mean > 0 {
		p.average(c.period, c.mean, periods)
	}
}

// refilled returns a credit after so many periods: each adds the income, and a credit or a debt of more than
// a period restarts at 0.
func refilled(credit, income, period, periods time.Duration) time.Duration {
	if credit+income < -period {
		credit, periods = 0, periods-1
	}
	if income == 0 {
		return credit
	}
	if last := max(period-credit, 0) / income; periods > last {
		credit, periods = 0, (periods-last-1)%(period/income+1)
	}
	return credit + periods*income
}

// look records the use up to the tick. The window begins anew with the first tick after its end.
func (p *creditAccount) look(period, window time.Duration) {
	window = (window + period - 1) / period * period
	windows := p.tick.Sub(p.start) / window
	p.known, p.over = p.busy, p.tick.Sub(p.start)
	if windows == 0 {
		return
	}
	end := p.start.Add(windows * window)
	if end < p.tick || windows > 1 {
		p.known, p.over = 0, p.tick.Sub(end)
	}
	p.start, p.busy = end, 0
}

// average adds the last periods to the mean.
func (p *creditAccount) average(period, over, periods time.Duration) {
	for ; periods > 0 && p.recent > 0; periods-- {
		last := min(p.recent, period)
		p.recent -= last
		p.mean += (last - p.mean) * period / (period + over)
	}
	keep := muldiv(1<<32, uint64(over), uint64(period+over), false)
	for ; periods > 0 && p.mean > 0; periods /= 2 {
		if periods%2 == 1 {
			p.mean = time.Duration(uint64(p.mean) * keep >> 32)
		}
		keep = keep * keep >> 32
	}
}

// share returns the time that a unit used, and out of how much.
func (c *credits) share(now Time, u *unit) (used, of time.Duration) {
	p := creditAccountOf(u)
	switch {
	case c.mean > 0:
		return p.mean, c.period
	case c.opt.Mode == Paper:
		return min(p.known, p.over), max(p.over, 1)
	}
	of = max(now.Sub(p.start), 1)
	return min(p.busy, of), of
}

// greedy reports whether a unit used more than its part.
func (c *credits) greedy(now Time, u *unit) bool {
	used, of := c.share(now, u)
	hi, lo := bits.Mul64(uint64(used), uint64(c.period))
	hi2, lo2 := bits.Mul64(uint64(of), uint64(c.income(u)))
	return hi > hi2 || hi == hi2 && lo > lo2
}

func (c *credits) explain(u *unit) string {
	credit := creditAccountOf(u).credit
	if c.keeps() {
		credit = c.tab.balance(u)
	}
	return fmt.Sprintf("credit %v", credit)
}

func percent(part, of time.Duration) uint64 { return muldiv(uint64(part), 100, uint64(of), false) }
