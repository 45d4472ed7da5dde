package policies

import "time"

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
