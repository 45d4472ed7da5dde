package policies

import (
	"fmt"
	"time"
)

// publishedCredits is the share slot of credit as published (Kato et al., "Gdev: First-Class GPU Resource Management in
// the Operating System", USENIX ATC 2012). Every period adds a unit's part of it to its credit; a unit that is then a
// whole period ahead or behind restarts at 0. So a unit is charged for its requests only as far as they are short:
// publishedBand corrects that. The number of requests lent at a time is fixed.
type publishedCredits struct{ allotment }

func newPublishedCredit(o Options) Policy {
	return newQueue("credit", o, &publishedCredits{newAllotment(o)}, o.order(byPriority))
}

func (c *publishedCredits) charge(now Time, u *unit, d time.Duration) {
	c.settle(now, u)
	p := creditAccountOf(u)
	p.use(d, c.period)
	p.credit -= d
}

// complete puts a unit without credit at the end of the list.
func (c *publishedCredits) complete(now Time, u *unit) {
	c.settle(now, u)
	if creditAccountOf(u).credit <= 0 {
		c.toEnd(u)
	}
}

func (c *publishedCredits) pick(now Time) (*unit, int, Time) {
	u := c.waiting.top()
	if u == nil {
		return nil, 0, Forever
	}
	c.settle(now, u)
	return u, c.launches, Forever
}

// settle updates a unit's account to now.
func (c *publishedCredits) settle(now Time, u *unit) {
	if periods := c.advance(now, u); periods > 0 {
		p := creditAccountOf(u)
		p.credit = refilled(p.credit, c.income(u), c.period, periods)
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

// used returns the time that a unit used, and out of how much, as of the last tick.
func (c *publishedCredits) used(u *unit) (used, of time.Duration) {
	p := creditAccountOf(u)
	if c.mean > 0 {
		return p.mean, c.period
	}
	return min(p.known, p.over), max(p.over, 1)
}

func (c *publishedCredits) explain(u *unit) string {
	return fmt.Sprintf("credit %v", creditAccountOf(u).credit)
}

// publishedBand is the share slot of band as published: a unit that is overdrawn is lent single requests.
type publishedBand struct {
	*publishedCredits
	restraint
}

func newPublishedBand(o Options) Policy {
	b := &publishedBand{&publishedCredits{newAllotment(o)}, restraint{span: holdBack.of(&o)}}
	return newQueue("band", o, b, o.order(byPriority))
}

func (b *publishedBand) complete(now Time, u *unit) {
	b.settle(now, u)
	b.ended = u
	if b.overdrawn(u) {
		b.toEnd(u)
	}
}

// overdrawn reports whether a unit has neither credit nor time left.
func (b *publishedBand) overdrawn(u *unit) bool { return creditAccountOf(u).credit <= 0 && b.greedy(u) }

// greedy reports whether a unit used more than its part.
func (b *publishedBand) greedy(u *unit) bool {
	used, of := b.used(u)
	return b.exceeds(u, used, of)
}

func (b *publishedBand) enqueue(now Time, u *unit) {
	b.rotation.enqueue(now, u)
	b.arrives(u)
}

func (b *publishedBand) dequeue(now Time, u *unit) {
	b.rotation.dequeue(now, u)
	b.forget(u)
}

func (b *publishedBand) unitRemoved(now Time, u *unit) {
	b.publishedCredits.unitRemoved(now, u)
	b.drop(u)
}

func (b *publishedBand) pick(now Time) (*unit, int, Time) {
	u := b.waiting.top()
	if u == nil {
		b.ended = nil
		return nil, 0, Forever
	}
	hold := b.rivals(u)
	if hold {
		b.settle(now, u)
		hold = b.greedy(u)
	}
	u, until := b.choose(now, u, hold)
	if u == nil {
		return nil, 0, until
	}
	b.settle(now, u)
	if b.overdrawn(u) {
		return u, 1, Forever
	}
	return u, b.launches, Forever
}

func (b *publishedBand) explain(u *unit) string {
	used, of := b.used(u)
	return b.publishedCredits.explain(u) + b.usage(u, used, of) + b.restraint.explain(u)
}
