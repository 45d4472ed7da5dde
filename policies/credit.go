package policies

import (
	"fmt"
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
// served, and goes to the end once it has used up its credit. Credit is counted by a tab, which forgets nothing; the
// published algorithm is publishedCredits. (Kato et al., "Gdev: First-Class GPU Resource Management in the Operating
// System", USENIX ATC 2012.)
func newCredit(o Options) Policy {
	if o.Mode == Paper {
		return newPublishedCredit(o)
	}
	return newBursts("credit", o, newCredits(o))
}

// newBursts returns a queue that lends several requests at a time: as many as fit into a period. The lease ends when a
// period was used.
func newBursts(name string, o Options, s share) *queue {
	q := newQueue(name, o, s, o.order(byPriority))
	q.limits.longest = period.of(&o)
	return q
}

// credits is the share slot of credit: a list of units with their accounts.
type credits struct {
	allotment
	opt    Options
	tab    tab
	served *unit         // unit that has the lease, or gets it next
	reach  time.Duration // debt beyond it prolongs the wait for a brief lease
	passed heap[unit]    // waiting units, by when each has waited for the others' part of a rotation
	brief  bool          // the served unit had waited so long, and another was first in the list
}

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
	return &credits{allotment: newAllotment(o), opt: o, reach: o.reach(), tab: newTab(), passed: heap[unit]{
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

func (c *credits) unitChanged(now Time, u *unit) {
	c.allotment.unitChanged(now, u)
	c.tab.units[u] = true
	c.reweigh()
}

// reweigh passes every unit's new income to the tab. After its domains have left, a unit repays its debt by the income
// that it had.
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

func (c *credits) unitRemoved(now Time, u *unit) {
	c.allotment.unitRemoved(now, u)
	c.tab.remove(u)
	c.reweigh()
}

func (c *credits) charge(now Time, u *unit, d time.Duration) {
	c.settle(now, u)
	p := creditAccountOf(u)
	p.use(d, c.period)
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
	c.tab.compete(now, u)
	t := &creditAccountOf(u).turns
	t.since = now
	t.want = c.wantFrom(u)
	c.passed.push(u)
}

func (c *credits) dequeue(now Time, u *unit) {
	c.rotation.dequeue(now, u)
	c.passed.remove(u)
	c.tab.rest(now, u, u == c.served)
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
	if c.served = nil; !c.waiting.has(u) {
		c.tab.rest(now, u, false)
	}
}

func (c *credits) peek() *unit { return c.waiting.top() }

// betweenCalls is the longest pause of a program that calls again at once.
const betweenCalls = 100 * time.Microsecond

// waitsFor returns betweenCalls if u owes more than a turn and more than o, otherwise 0. BAND adds longer waits.
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
	return atMost(c.launches, c.period, u.first().request().Predicted)
}

// settle updates a unit's account to now.
func (c *credits) settle(now Time, u *unit) {
	c.tab.settle(u)
	c.advance(now, u)
}

// share returns the time that a unit used, and out of how much.
func (c *credits) share(now Time, u *unit) (used, of time.Duration) {
	p := creditAccountOf(u)
	if c.mean > 0 {
		return p.mean, c.period
	}
	of = max(now.Sub(p.start), 1)
	return min(p.busy, of), of
}

// greedy reports whether a unit used more than its part.
func (c *credits) greedy(now Time, u *unit) bool {
	used, of := c.share(now, u)
	return c.exceeds(u, used, of)
}

func (c *credits) explain(u *unit) string { return fmt.Sprintf("credit %v", c.tab.balance(u)) }
