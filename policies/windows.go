package policies

import "time"

// newWindows makes a policy that gives one domain after the other a window, in
// proportion to what share says.
func newWindows(name string, o Options, share func(Domain) Credits) Policy {
	if o.Mode == Paper {
		return newRing(name, o, share)
	}
	return newFair(name, o, share)
}

// idling finds out, in production mode, that a domain leaves its windows unused.
// Of one that computes on its CPU in short pauses much goes unused without anybody
// reporting it. If it weren't charged for that, its windows would grow until it had
// its part of accelerator time, at the cost of all others.
type idling struct {
	// unseen is how much of its windows nobody has reported to have used, or, if
	// negative, reported beyond; seen is what it reported since the last one.
	unseen, seen time.Duration
}

// ended is called at the end of a window, of which the domain had this much for
// itself. It returns what is to be charged for nothing.
func (i *idling) ended(window time.Duration) time.Duration {
	i.unseen = max(i.unseen+window-i.seen, -maxUnseen)
	i.seen = 0
	wasted := max(i.unseen-maxUnseen, 0)
	i.unseen -= wasted
	return wasted
}

// overrun is what a domain used beyond its windows in paper mode, if it shall repay
// that: a part of the debt each turn.
type overrun struct {
	window, used, debt time.Duration
}

// begin returns how long a window is that should have this length and repays one
// part in so many of the debt; 0: none.
func (o *overrun) begin(window time.Duration, parts int) time.Duration {
	if parts > 0 {
		o.debt = min(o.debt+max(o.used-o.window, 0), maxDebt)
		repaid := max(min(o.debt/time.Duration(parts), window-minWindow), 0)
		o.debt -= repaid
		window -= repaid
	}
	o.window, o.used = window, 0
	return window
}

// unbound tells of a window without end, which nothing overruns.
func (o *overrun) unbound() { o.window, o.used = 1<<63-1, 0 }
