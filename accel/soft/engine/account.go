package engine

// Times are durations in nanoseconds, by the token that was held.
type Times [NumTokens]int64

// Opened returns the time at which the page was made, which tells it from others.
func (e *Engines) Opened() int64 { return e.l.opened }

// Total returns for how long the domain has held each token since the page was made. A token that is held now counts when it is
// released.
func (e *Engines) Total() (t Times) {
	for k := range t {
		t[k] = e.BusyTime(Token(k))
	}
	return t
}

// Charge returns the time that no call has returned before, neither in this process nor in an earlier daemon. A token that
// is held counts up to now: a kernel may go on for long. It is for one goroutine of the daemon.
func (e *Engines) Charge() (t Times) {
	now := Now()
	for k := range t {
		sum := e.heldUpTo(Token(k), now) + e.l.added[k].Load()
		before := e.l.charged[k].Load() // may have been charged of a ticket that was then found to have ended a little earlier
		extra := e.extra[k].Load()
		t[k] = max(sum-before, 0) + extra - e.told[k]
		e.l.charged[k].Store(max(sum, before))
		e.told[k] = extra
	}
	return t
}

// Charged returns the time that Charge has returned so far, to daemons before this one, too.
func (e *Engines) Charged() (t Times) {
	for k := range t {
		t[k] = e.l.charged[k].Load() + e.told[k]
	}
	return t
}

// heldUpTo is for how long a token was held up to now, by whoever holds it, too.
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
	if !w.claims(n) || w.abandoned() {
		return 0, false
	}
	since = e.since(k, n, w, now)
	ended := s.end.Load() > t.slot(n-1).end.Load()
	return since, !ended && t.serving.Load() == n
}
