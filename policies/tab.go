package policies

import (
	"math/bits"
	"time"
)

// tab counts the credit of units in production mode: the time that a unit uses is taken off its credit and
// divided among the competing units, the user included, in proportion to their incomes. A unit competes while
// it has requests or a lease, and while it owes time. The sum of all credits stays constant: where one unit
// is overdrawn, another is owed as much, and stays first in the list until it has used that.
type tab struct {
	units map[*unit]bool // all of them
	total int64          // weights of the competing units
	pot   uint64         // use per weight, in 1/finer ns
	odd   uint64         // the remainder of the division that made it

	debtors heap[unit] // units without requests or a lease, by when their debt is repaid
}

// Incomes are large numbers, so the pot is finer than those of other policies, and use is divided in parts
// that its arithmetic can hold.
const (
	finerBits = 20
	finer     = 1 << finerBits
	mostShare = 1 << 40
)

// line is a unit's line in the tab.
type line struct {
	weight  int64
	busy    bool   // it has requests or a lease
	since   Time   // since when it has neither
	pot     uint64 // value of the pot up to which its credit is settled
	rest    uint64 // remainder of that, in 1/finer ns
	until   uint64 // value of the pot at which a debtor's debt is repaid
	indebt  int
	counted bool // in total
}

func newTab() tab {
	sooner := func(a, b *unit) bool {
		x, y := &creditAccountOf(a).line, &creditAccountOf(b).line
		if x.until != y.until {
			return int64(x.until-y.until) < 0
		}
		return a.place < b.place
	}
	return tab{
		units:   make(map[*unit]bool),
		debtors: heap[unit]{at: func(u *unit) *int { return &creditAccountOf(u).line.indebt }, less: sooner},
	}
}

// earned returns a unit's credit as of now, and the remainder of the division.
func (t *tab) earned(u *unit) (credit time.Duration, rest uint64) {
	p := creditAccountOf(u)
	l := &p.line
	if !l.counted {
		return p.credit, 0
	}
	hi, lo := bits.Mul64(t.pot-l.pot, uint64(l.weight))
	lo, carry := bits.Add64(lo, l.rest, 0)
	if hi += carry; hi >= uint64(2*maxDebt)>>(64-finerBits) {
		return maxDebt, 0
	}
	return min(p.credit+time.Duration(hi<<(64-finerBits)|lo>>finerBits), maxDebt), lo % finer
}

func (t *tab) balance(u *unit) time.Duration {
	credit, _ := t.earned(u)
	return credit
}

// settle updates a unit's credit to the current pot.
func (t *tab) settle(u *unit) {
	p := creditAccountOf(u)
	l := &p.line
	p.credit, l.rest = t.earned(u)
	l.pot = t.pot
}

// set sets a unit's credit.
func (t *tab) set(u *unit, credit time.Duration) {
	t.settle(u)
	p := creditAccountOf(u)
	p.credit, p.line.rest = credit, 0
	t.reckon(u)
}

// weigh sets a unit's weight from now on.
func (t *tab) weigh(u *unit, weight int64) {
	l := &creditAccountOf(u).line
	if l.weight == weight {
		return
	}
	t.settle(u)
	if l.counted {
		t.total += weight - l.weight
	}
	l.weight = weight
	t.reckon(u)
}

// reckon adds a settled unit to the debtors and the total, or removes it, as its state requires.
func (t *tab) reckon(u *unit) {
	p := creditAccountOf(u)
	l := &p.line
	owes := !l.busy && p.credit < 0
	switch has := t.debtors.has(u); {
	case owes:
		if l.until = t.even(u); has {
			t.debtors.fix(u)
		} else {
			t.debtors.push(u)
		}
	case has:
		t.debtors.remove(u)
	}
	if counts := l.busy || owes; counts != l.counted {
		l.counted = counts
		if counts {
			t.total += l.weight
		} else {
			t.total -= l.weight
			l.rest = 0
		}
	}
}

// even returns the value of the pot at which the debt of a settled unit is repaid.
func (t *tab) even(u *unit) uint64 {
	p := creditAccountOf(u)
	l := &p.line
	hi, lo := bits.Mul64(uint64(-p.credit), finer)
	lo, borrow := bits.Sub64(lo, l.rest, 0)
	lo, carry := bits.Add64(lo, uint64(l.weight)-1, 0)
	if hi += carry - borrow; hi >= uint64(l.weight) { // that is, never
		return t.pot + 1<<62
	}
	grows, _ := bits.Div64(hi, lo, uint64(l.weight))
	return t.pot + min(grows, 1<<62)
}

// spend takes d off a unit's credit and divides it among the competing units.
func (t *tab) spend(u *unit, d time.Duration) {
	t.settle(u)
	creditAccountOf(u).credit = max(creditAccountOf(u).credit-d, -maxDebt)
	t.reckon(u)
	t.share(d)
	t.settle(u)
	t.reckon(u)
}

// share divides d among the competing units. Debtors take part until their debt is repaid.
func (t *tab) share(d time.Duration) {
	for ; d > mostShare; d -= mostShare {
		t.share(mostShare)
	}
	if t.total == 0 {
		return
	}
	t.odd += uint64(d) << finerBits
	for t.total > 0 {
		grows := t.odd / uint64(t.total)
		u := t.debtors.top()
		if u == nil || creditAccountOf(u).line.until-t.pot > grows {
			t.pot += grows
			t.odd %= uint64(t.total)
			return
		}
		grows = creditAccountOf(u).line.until - t.pot
		t.pot += grows
		t.odd -= grows * uint64(t.total)
		t.settle(u)
		t.reckon(u)
	}
	t.odd = 0
}

// compete records that a unit has requests. If it had none for more than a moment, its claim is limited to
// the greatest one that a resting unit may have.
func (t *tab) compete(now Time, u *unit) {
	t.settle(u)
	p := creditAccountOf(u)
	l := &p.line
	over := p.credit - mostOwed
	if rested := !l.busy && now.Sub(l.since) > roundsRest; rested && over > 0 {
		p.credit = mostOwed
		t.share(over)
	}
	l.busy = true
	t.reckon(u)
}

// rest records that a unit has no requests, and whether it still has a lease.
func (t *tab) rest(now Time, u *unit, leased bool) {
	t.settle(u)
	l := &creditAccountOf(u).line
	if l.busy && !leased {
		l.since = now
	}
	l.busy = leased
	t.reckon(u)
}

// remove drops a unit without requests.
func (t *tab) remove(u *unit) {
	l := &creditAccountOf(u).line
	if t.debtors.has(u) {
		t.debtors.remove(u)
	}
	if l.counted {
		t.total -= l.weight
	}
	l.counted, l.busy = false, false
	delete(t.units, u)
}
