package engine

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// MaxAccounts bounds the domains that a page keeps accounts of.
const MaxAccounts = 2048

// ErrAccounts is returned by OpenAccount when there is no free account.
var ErrAccounts = errors.New("engine page: all accounts are taken")

// Times are durations in nanoseconds, by the token that was held.
type Times [NumTokens]int64

// account is the time for which the workers of one domain held each token. The sums are those of the place in the table:
// they go on when the place is given to another domain, so that the sum over all places is the time of all domains that
// there ever were. The daemon alone writes domain, opened, base and charged.
//
// The first account is that of workers without a domain's account.
type account struct {
	domain  atomic.Uint64 // 0: free
	opened  atomic.Int64  // when; no two accounts of a page are opened at the same time
	held    [NumTokens]tally
	added   [NumTokens]atomic.Int64 // of engines that are not held by a token; see Worker.Charge
	base    [NumTokens]atomic.Int64 // the sum at opened
	charged [NumTokens]atomic.Int64 // the part of the sum that Charge has returned
	_       [32]byte
}

func (a *account) times() (t Times) {
	for k := range t {
		sum, _, _ := a.held[k].load()
		t[k] = sum + a.added[k].Load()
	}
	return t
}

// Account is an open account of a domain.
type Account struct {
	a *account
	p *Page
}

// OpenAccount returns the account of a domain, and opens one if there is none. The daemon opens it before the domain's
// first worker calls SetShare, and is the only process that opens and closes accounts.
func (p *Page) OpenAccount(domain uint64) (Account, error) {
	free := 0
	for i := 1; i < MaxAccounts; i++ {
		switch a := &p.l.accounts[i]; {
		case a.domain.Load() == domain:
			return Account{a, p}, nil
		case free == 0 && a.domain.Load() == 0 && !p.charges(i):
			free = i
		}
		if free != 0 && i >= p.openAccounts() {
			break
		}
	}
	if free == 0 {
		return Account{}, fmt.Errorf("%w: %d domains", ErrAccounts, MaxAccounts-1)
	}
	a := &p.l.accounts[free]
	for k, ns := range a.times() {
		a.base[k].Store(ns)
		a.charged[k].Store(ns)
	}
	a.opened.Store(max(Now(), p.l.lastOpened.Load()+1))
	p.l.lastOpened.Store(a.opened.Load())
	raise(&p.l.highAccount, uint32(free+1))
	a.domain.Store(domain)
	return Account{a, p}, nil
}

// charges reports whether a worker that was not reaped charges account i.
func (p *Page) charges(i int) bool {
	for w := range p.slots() {
		s := &p.l.workers[w]
		if ownerPid(s.owner.Load()) != 0 && s.account.Load() == uint32(i) {
			return true
		}
	}
	return false
}

// openAccounts is the number of accounts that were ever open, with the first.
func (p *Page) openAccounts() int { return int(min(max(p.l.highAccount.Load(), 1), MaxAccounts)) }

// Account returns the open account of a domain.
func (p *Page) Account(domain uint64) (a Account, ok bool) {
	i := p.accountOf(domain)
	return Account{p.account(i), p}, i != 0
}

// accountOf is the number of a domain's account, or that of the first.
func (p *Page) accountOf(domain uint64) uint32 {
	for i := 1; i < p.openAccounts(); i++ {
		if p.l.accounts[i].domain.Load() == domain {
			return uint32(i)
		}
	}
	return 0
}

// account returns account i, or the first if there is no such account.
func (p *Page) account(i uint32) *account {
	if i >= MaxAccounts {
		i = 0
	}
	return &p.l.accounts[i]
}

// KeepAccounts closes the accounts of all but these domains.
func (p *Page) KeepAccounts(domains []uint64) {
	for i := 1; i < p.openAccounts(); i++ {
		if a := &p.l.accounts[i]; !slices.Contains(domains, a.domain.Load()) {
			a.domain.Store(0)
		}
	}
}

// Close closes the account. Workers that still charge it keep it from being opened for another domain.
func (a Account) Close() { a.a.domain.Store(0) }

// Opened returns the time at which the account was opened, which tells it from all other accounts of the page.
func (a Account) Opened() int64 { return a.a.opened.Load() }

// Total returns for how long the domain has held each token since the account was opened. A token that is held now
// counts when it is released.
func (a Account) Total() Times {
	t := a.a.times()
	for k := range t {
		t[k] -= a.a.base[k].Load()
	}
	return t
}

// Charge returns the time that no call has returned before, neither in this process nor in an earlier daemon. A token that
// is held counts up to now: a kernel may go on for long.
func (a Account) Charge() (t Times) {
	now := Now()
	for k := range t {
		sum, _, tickets := a.a.held[k].load()
		since, held := a.p.holds(Token(k), a.a, now)
		if _, _, n := a.a.held[k].load(); held && n == tickets { // else the ticket may be in the sum
			sum += max(now-since, 0)
		}
		sum += a.a.added[k].Load()
		before := a.a.charged[k].Load() // may have been charged of a ticket that was then found to have ended a little earlier
		t[k] = max(sum-before, 0)
		a.a.charged[k].Store(before + t[k])
	}
	return t
}

// holds reports whether a worker that charges account a holds a token, and since when.
func (p *Page) holds(k Token, a *account, now int64) (since int64, ok bool) {
	t := &p.l.tokens[k]
	n := t.serving.Load()
	s := t.slot(n)
	w := s.word.Load()
	if i, _ := w.worker(); !w.claims(n) || w.abandoned() || i >= MaxWorkers || p.account(p.l.workers[i].account.Load()) != a {
		return 0, false
	}
	since = p.since(k, n, w, now)
	ended := s.end.Load() > t.slot(n-1).end.Load()
	return since, !ended && t.serving.Load() == n
}

// balanceTries bounds how often Balance reads sums that change meanwhile.
const balanceTries = 1000

// Balance returns for how long a token was held in total, and how much of that was charged to accounts, both up to the
// same ticket. ok is false if tickets were served too fast to read the sums between two of them.
func (p *Page) Balance(k Token) (held, charged int64, ok bool) {
	t := &p.l.tokens[k]
	for range balanceTries {
		sum, before, tickets := t.busy.load()
		var last uint64
		var added int64
		charged = 0
		for i := range p.openAccounts() {
			a := &p.l.accounts[i]
			ns, _, n := a.held[k].load()
			charged += ns
			added += a.added[k].Load()
			last = max(last, n)
		}
		if _, _, now := t.busy.load(); now != tickets {
			continue
		}
		if last < tickets { // the account of the latest ticket follows
			sum = before
		}
		return sum + added, charged + added, true
	}
	return 0, 0, false
}
