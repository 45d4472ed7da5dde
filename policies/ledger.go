package policies

import (
	"fmt"
	"time"
)

// Ledger is a policy that keeps an account of accelerator time for each domain. A domain's account outlives
// its presence: debt is repaid by the time that the other domains get, whether the debtor has left or only
// has no work.
//
// none, fifo, prt and ht keep no accounts: their leases do not depend on earlier use. In paper mode no policy
// keeps any.
type Ledger interface {
	Policy
	// Keeps reports whether the policy keeps accounts. If not, the other methods
	// must not be called.
	Keeps() bool
	// Leave is Detach, but the domain's account stays. Until the next Attach of its ID the domain takes part
	// only by its account.
	Leave(now Time, id ID)
	// Balance returns the accelerator time that the domain is owed (positive) or
	// owes (negative), in relation to the others. It changes nothing.
	Balance(now Time, id ID) time.Duration
	// Restore sets the balance of a domain that was attached at now.
	Restore(now Time, id ID, balance time.Duration)
}

// maxDebt bounds an account on both sides, only so that arithmetic can't overflow: 13 days, longer than a
// kernel or a queue of kernels may run.
const maxDebt time.Duration = 1 << 50

// mostOwed is the greatest claim of a domain without work under policies that preserve claims.
const mostOwed = 10 * time.Second

// Limits of the accounts kept of domains that have left.
const (
	// sweepEvery is the interval at which settled accounts of absent domains are dropped.
	sweepEvery = time.Second
	// leastClaim is the smallest positive balance that an absent domain keeps, and
	// claimKept for how long it does. Debt has neither limit.
	leastClaim = time.Millisecond
	claimKept  = time.Hour
)

// Balances is a domain's balance in each account of an accelerator; with a single account the second is 0.
type Balances [2]time.Duration

// bounded returns d within the limits of an account.
func bounded(d time.Duration) time.Duration { return min(max(d, -maxDebt), maxDebt) }

// Account is the account of a domain that is not attached.
type Account struct {
	ID       ID
	Balances Balances
}

// Absent appends the accounts of the domains that have left to dst, by ID.
func (s *Scheduler) Absent(dst []Account) []Account {
	for _, m := range s.order {
		if m.absent {
			dst = append(dst, Account{m.stat.Domain.ID, s.balances(m)})
		}
	}
	return dst
}

// Balances returns the balances of a domain, attached or absent. It changes nothing.
func (s *Scheduler) Balances(id ID) (b Balances, ok bool) {
	m := s.members[id]
	if m == nil {
		return Balances{}, false
	}
	return s.balances(m), true
}

// ledger returns the account's policy if it keeps accounts, or nil.
func (a *account) ledger() Ledger {
	if l, ok := a.policy.(Ledger); ok && l.Keeps() {
		return l
	}
	return nil
}

// balances returns a domain's balances from the policies or, where the current policy keeps no accounts, the
// ones kept for the next policy.
func (s *Scheduler) balances(m *member) (b Balances) {
	for i := range s.accounts {
		if l := s.accounts[i].ledger(); l != nil {
			b[i] = l.Balance(s.last, m.stat.Domain.ID)
		} else {
			b[i] = m.kept[i]
		}
	}
	return b
}

// restore gives the i-th account of a domain that was just attached its balance.
func (s *Scheduler) restore(now Time, i int, m *member, balance time.Duration) {
	balance = bounded(balance)
	l := s.accounts[i].ledger()
	switch {
	case l == nil:
		m.kept[i] = balance
	case balance != 0:
		l.Restore(now, m.stat.Domain.ID, balance)
	}
}

// leaves removes a domain and reports whether its account is kept. If not, the caller removes the domain from
// order.
func (s *Scheduler) leaves(now Time, m *member) bool {
	for i := range s.accounts {
		if l := s.accounts[i].ledger(); l != nil {
			l.Leave(now, m.stat.Domain.ID)
		} else {
			s.accounts[i].policy.Detach(now, m.stat.Domain.ID)
		}
	}
	if s.absent == 0 {
		s.sweepAt = now.Add(sweepEvery)
	}
	s.absent++
	m.absent, m.left = true, now
	if s.settled(now, m) {
		s.forget(now, m)
		return false
	}
	return true
}

// settled reports whether an absent domain's account has no effect any more.
func (s *Scheduler) settled(now Time, m *member) bool {
	for _, b := range s.balances(m) {
		if b < 0 || b >= leastClaim && now.Sub(m.left) < claimKept {
			return false
		}
	}
	return true
}

// sweep drops the absent domains with settled accounts.
func (s *Scheduler) sweep(now Time) {
	if s.absent == 0 || now < s.sweepAt {
		return
	}
	s.sweepAt = now.Add(sweepEvery)
	kept := s.order[:0]
	for _, m := range s.order {
		if m.absent && s.settled(now, m) {
			s.forget(now, m)
		} else {
			kept = append(kept, m)
		}
	}
	clear(s.order[len(kept):])
	s.order = kept
}

// forget drops an absent domain, but leaves its place in order.
func (s *Scheduler) forget(now Time, m *member) {
	for i := range s.accounts {
		if l := s.accounts[i].ledger(); l != nil {
			l.Detach(now, m.stat.Domain.ID)
		}
	}
	delete(s.members, m.stat.Domain.ID)
	s.absent--
}

// carried converts balances from one number of accounts to another. A single account's balance becomes that
// of the compute engine, to which most of its time belongs; two balances become their sum.
func (b Balances) carried(from, to int) Balances {
	if from == 2 && to == 1 {
		return Balances{bounded(b[0] + b[1])}
	}
	return b
}

func (b Balances) String() string {
	if b[1] == 0 {
		return b[0].String()
	}
	return fmt.Sprintf("%v and %v", b[0], b[1])
}
