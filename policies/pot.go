package policies

import (
	"math/bits"
	"time"
)

// commonPot holds the balances of the domains of a coordinated policy. The pot grows by the time that domains use,
// per credit of the competing ones; a domain's balance grows with the pot, at the rate of its credits, and falls by
// its own use.
type commonPot struct {
	value   uint64            // of the pot; values wrap, so they are compared by their difference
	rest    uint64            // remainder of the division that made it
	total   int64             // credits of the competing domains and of the debtors
	line    tournament        // the competing domains except the holder of the window
	debtors heap[domainState] // domains out of the line that owe time, by when their debt is repaid
	debts   bool              // debtors take part, and claims are limited
	begun   bool              // the first tick was divided
}

// newCommonPot returns an empty pot. most is the greatest balance and the greatest debt of a domain, in 1/scale ns.
func newCommonPot(most int64, debts bool) commonPot {
	return commonPot{
		line: tournament{most: most},
		debtors: heap[domainState]{at: func(e *domainState) *int { return &e.indebt }, less: func(a, b *domainState) bool {
			if a.even != b.even {
				return int64(a.even-b.even) < 0
			}
			return a.id < b.id
		}},
		debts: debts,
	}
}

// at returns the balance at this value of the pot, limited to most.
func (e *domainState) at(pot uint64, most int64) int64 {
	hi, lo := bits.Mul64(pot-e.pot, uint64(e.credits))
	if hi != 0 || lo >= uint64(most-e.balance) {
		return most
	}
	return e.balance + int64(lo)
}

// balance returns the current balance of a domain that takes part.
func (p *commonPot) balance(e *domainState) int64 { return e.at(p.value, p.line.most) }

// top returns the domain in line with the greatest balance, or nil.
func (p *commonPot) top() *domainState { return p.line.top(p.value) }

// settle updates the balance to the current pot.
func (p *commonPot) settle(e *domainState) {
	if p.counts(e) {
		e.balance = p.balance(e)
	}
	e.pot = p.value
}

// counts reports whether e takes part: it competes, or is a debtor.
func (p *commonPot) counts(e *domainState) bool { return e.active || p.debtors.has(e) }

// begin divides the cost of the first tick.
func (p *commonPot) begin(tick time.Duration) {
	if !p.begun {
		p.begun = true
		p.share(tick)
	}
}

// add registers a new domain.
func (p *commonPot) add(e *domainState) { p.line.enroll(e, p.value) }

// drop removes a domain that does not compete.
func (p *commonPot) drop(e *domainState) {
	if p.debtors.has(e) {
		p.total -= e.credits
		p.debtors.remove(e)
	}
	p.line.retire(e)
}

// weigh sets the credits of a domain.
func (p *commonPot) weigh(e *domainState, credits int64) {
	p.settle(e)
	if p.counts(e) {
		p.total += credits - e.credits
	}
	e.credits = credits
	if p.line.has(e) {
		p.line.fix(e, p.value)
	}
	p.reckon(e)
}

// join makes e compete.
func (p *commonPot) join(e *domainState) {
	p.settle(e)
	e.active = true
	p.reckon(e)
	p.total += e.credits
}

// leave makes e, which is out of the line, stop competing. A claim beyond mostOwed is waived.
func (p *commonPot) leave(e *domainState) {
	p.settle(e)
	e.active = false
	p.total -= e.credits
	p.reckon(e)
	if most := int64(mostOwed) << scaleBits; p.debts && e.balance > most {
		p.share(time.Duration((e.balance - most) >> scaleBits))
		e.balance = most
	}
}

// spend takes d off e's balance and divides it among the competing domains.
func (p *commonPot) spend(e *domainState, d time.Duration) {
	p.settle(e)
	e.balance -= int64(d) << scaleBits
	p.reckon(e)
	p.share(d)
	p.settle(e)
	e.balance = max(e.balance, -p.line.most)
	if p.line.has(e) {
		p.line.fix(e, p.value)
	}
	p.reckon(e)
}

// debt returns the debt of e. The balance of e must be up to date.
func (e *domainState) debt() time.Duration { return time.Duration(max(-e.balance, 0) >> scaleBits) }

// reckon adds e to the debtors, or removes it from them. The balance of e must be up to date.
func (p *commonPot) reckon(e *domainState) {
	owes := p.debts && !e.active && e.balance < 0
	switch has := p.debtors.has(e); {
	case owes:
		e.even = p.value + uint64((-e.balance+e.credits-1)/e.credits)
		if has {
			p.debtors.fix(e)
			return
		}
		p.total += e.credits
		p.debtors.push(e)
	case has:
		p.total -= e.credits
		p.debtors.remove(e)
	}
}

// share divides d among the competing domains and the debtors. A debtor takes part until its balance is 0.
func (p *commonPot) share(d time.Duration) {
	if p.total == 0 {
		return
	}
	p.rest += uint64(d) << scaleBits
	for p.total > 0 {
		grows := p.rest / uint64(p.total)
		e := p.debtors.top()
		if e == nil || e.even-p.value > grows {
			p.value += grows
			p.rest %= uint64(p.total)
			return
		}
		grows = e.even - p.value
		p.value += grows
		p.rest -= grows * uint64(p.total)
		p.settle(e)
		p.reckon(e)
	}
	p.rest = 0
}
