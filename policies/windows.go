package policies

import "time"

var debtAF = newCount(Param{
	Key: "debt_af", Name: "DebtAF", Zero: "nothing is repaid",
	Doc: "paper mode: one part in so many of an overrun is repaid in each window; 33 is usual",
}, 0, 0, 60)

// repaidParts returns the number of windows over which an overrun is repaid; 0: it is not, since in production mode balances
// are corrected at once.
func (o *Options) repaidParts() int {
	if o.Mode != Paper {
		return 0
	}
	return debtAF.of(o)
}

// newWindows returns a policy that gives one domain after the other a window, in proportion to its share.
func newWindows(name string, o Options, share func(*Options, Domain) Credits) Policy {
	if o.Mode == Paper {
		return newRing(name, o, share)
	}
	return newFair(name, o, share)
}

// idling detects, in production mode, that a domain leaves its windows unused. A domain that computes on its
// CPU in short pauses leaves much unused without any report of it. If it weren't charged for that, its
// windows would grow until it had its part of accelerator time, at the cost of all others.
type idling struct {
	// unseen is the part of its windows without reported use or, if negative, the reported use beyond them;
	// seen is the use reported since the last window.
	unseen, seen time.Duration
}

// ended is called at the end of a window, with the time that the domain had for itself. It returns the unused
// time to charge.
func (i *idling) ended(window time.Duration) time.Duration {
	i.unseen = max(i.unseen+window-i.seen, -maxUnseen)
	i.seen = 0
	wasted := max(i.unseen-maxUnseen, 0)
	i.unseen -= wasted
	return wasted
}

// overrun is the time that a domain used beyond its windows in paper mode, if it must be repaid: a part of
// the debt each turn.
type overrun struct {
	window, used, debt time.Duration
}

// begin returns the length of a window that was to have the given length and repays 1/parts of the debt; 0:
// none.
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

// unbound sets a window without end, which nothing overruns.
func (o *overrun) unbound() { o.window, o.used = 1<<63-1, 0 }
