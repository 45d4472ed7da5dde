package engine

import "sync"

// Times are durations in nanoseconds, by the token that was held.
type Times [NumTokens]int64

// account is the daemon's own record of a page's times, since any worker of the domain can overwrite the page.
type account struct {
	mu     sync.Mutex
	opened int64 // when the page was made
	said   Times // the largest values of the page when the time was charged
	past   Times // the sum of all charges so far
	upTo   Times // lower bound of the time up to which past includes all holds
	burst  int64 // see Charge
	forged bool  // the page had an impossible value
}

// open takes over the charges of the previous daemon.
func (a *account) open(l *enginesLayout) {
	now := Now()
	a.opened = min(max(l.opened, 0), now)
	a.burst = 1 << 62
	for k := range a.said {
		a.said[k] = l.charged[k].Load()
		a.past[k] = min(max(a.said[k], 0), now-a.opened)
		a.upTo[k] = a.opened + a.past[k]
	}
}

// Opened returns the time at which the page was made, which distinguishes it from other pages.
func (e *Engines) Opened() int64 { return e.account.opened }

// Total returns for how long the domain has held each token since the page was made. A token that is held now is
// counted when it is charged, or released.
func (e *Engines) Total() Times {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.past
	for k := range t {
		sum, _ := e.l.tokens[k].held.load()
		t[k] += e.plausible(Token(k), sum+e.l.added[k].Load()-e.said[k], Now())
	}
	return t
}

// plausible bounds the time ns for which the page claims that a token was held: the result is at most the time since
// the last charge, as one worker at a time holds it.
func (a *account) plausible(k Token, ns, now int64) int64 {
	return min(max(ns, 0), max(now-max(a.upTo[k], now-a.burst), 0))
}

// Charge returns the time that no earlier call has returned, in this process or in an earlier daemon. A token that is
// held counts up to now: a kernel may run for long. No engine was held for longer than burst, in ns, without being
// charged.
func (e *Engines) Charge(burst int64) (t Times) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := Now()
	for k := range t {
		said := e.heldUpTo(Token(k), now) + e.l.added[k].Load()
		passed := e.l.charged[k].Load()
		if passed != e.said[k] {
			e.forged, e.said[k] = true, said
		}
		var x int64
		if e.extra[k].Load() != 0 {
			x = e.extra[k].Swap(0)
			e.l.added[k].Add(x) // so that the page passes it on to the next daemon
		}
		t[k] = e.plausible(Token(k), max(said-e.said[k], 0)+x, now)
		e.past[k] += t[k]
		e.upTo[k] = max(e.upTo[k], now-e.burst) + t[k]
		if e.said[k] = max(said, e.said[k]) + x; e.said[k] != passed { // a write to an unchanged page would cost as much as all reads
			e.l.charged[k].Store(e.said[k])
		}
	}
	e.burst = burst // up to now it may have been held for longer: no daemon ran
	return t
}

// unforge reports whether the page had an impossible value since the latest call.
func (e *Engines) unforge() (was bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	was, e.forged = e.forged, false
	return was
}

// Charged returns the time that Charge has returned so far, in earlier daemons, too.
func (e *Engines) Charged() Times {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.past
}

// heldUpTo returns for how long a token was held up to now, including by its present holder.
func (e *Engines) heldUpTo(k Token, now int64) int64 {
	t := &e.l.tokens[k]
	sum, tickets := t.held.load()
	since, held := e.holds(k, now)
	if _, n := t.held.load(); held && n == tickets { // else the ticket may be in the sum
		sum += max(now-since, 0)
	}
	return sum
}

// holds reports whether a worker holds a token, and since when.
func (e *Engines) holds(k Token, now int64) (since int64, ok bool) {
	t := &e.l.tokens[k]
	n := t.serving.Load()
	s := t.slot(n)
	w := s.word.Load()
	if !w.claims(n) || w.abandoned() || e.l.grants[k].load().mode() == absent {
		return 0, false
	}
	since = e.since(k, n, w, now)
	ended := s.end.Load() > t.slot(n-1).end.Load()
	return since, !ended && t.serving.Load() == n
}
