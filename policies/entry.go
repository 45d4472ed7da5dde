package policies

import (
	"math/bits"
	"time"
)

// entry is a domain's account under a fair window policy.
type entry struct {
	id      ID
	credits int64 // weight of its share; at least 1
	active  bool  // has work, or holds the window
	fresh   bool  // had no work before, and no turn since

	// round is the rotation in which its next window may begin, if its balance
	// is sufficient by then.
	round int64
	// balance is the accelerator time that it is owed (positive) or owes, as of
	// pot; within [-maxDebt, quantum + maxCarry].
	balance time.Duration
	idling  idling

	rest uint64 // remainder of the division that made the balance, in 1/scale ns
	pot  uint64 // value of the common pot when the balance was last settled

	inTurns, inPoorest int // positions in the heaps
}

// scale is the number of units of the pot that make a nanosecond per credit.
const (
	scaleBits = 10
	scale     = 1 << scaleBits
)

// settle adds to the balance the gain of its credits since the last settlement, up to most.
func (e *entry) settle(pot uint64, most time.Duration) {
	hi, lo := bits.Mul64(pot-e.pot, uint64(e.credits))
	lo, carry := bits.Add64(lo, e.rest, 0)
	e.pot = pot
	if hi+carry > 0 || lo>>scaleBits > uint64(maxDebt+most) {
		e.balance, e.rest = most, 0
		return
	}
	e.balance += time.Duration(lo >> scaleBits)
	e.rest = lo % scale
	if e.balance > most {
		e.balance, e.rest = most, 0
	}
}

// spend takes d off the balance.
func (e *entry) spend(d time.Duration) { e.balance = max(e.balance-min(d, 2*maxDebt), -maxDebt) }

// rotations returns the number of rotations until the balance has reached `want`, when each adds unit per
// credit.
func (e *entry) rotations(want time.Duration, unit uint64) int64 {
	if e.balance >= want {
		return 0
	}
	need := uint64(want-e.balance) << scaleBits
	each := unit * uint64(e.credits)
	return int64((need - min(need, e.rest) + each - 1) / each)
}

// sooner orders entries by rotation, within one by credits, the richest first.
func sooner(a, b *entry) bool {
	if a.round != b.round {
		return a.round < b.round
	}
	if a.credits != b.credits {
		return a.credits > b.credits
	}
	return a.id < b.id
}

func poorer(a, b *entry) bool {
	if a.credits != b.credits {
		return a.credits < b.credits
	}
	return a.id < b.id
}
