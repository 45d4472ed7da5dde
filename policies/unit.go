package policies

import "time"

// unit is who gets a share: a domain, or a group of them (Gdev's virtual
// accelerator).
type unit struct {
	name    string
	id      ID    // the lowest of its members'
	credits int64 // the sum of its members'
	bw      int64 // so is this, in ‰; 0: by credits
	members []*tenant
	absent  int        // domains that have left, and whose account this is
	line    heap[lane] // those with a request that may be served, the first in front
	free    lane       // of those without a reserve
	waiting int        // those with a request, whether it may be served or not

	at     int     // position in the share's heap
	place  int64   // in the share's list, from 1 on
	purse  purse   // what Credit and BAND know of it
	rounds deficit // what DRR knows of it
}

// lane is those of a unit whom the same reserve limits. They queue behind one
// another: when the first may not be served, none of them may.
type lane struct {
	unit    *unit
	reserve *reserve // nil: they have none
	waiting heap[tenant]
	users   int // where there is a reserve: its members that are of the unit
	at      int // in the unit's line
}

// tenant is a domain, as far as its requests are concerned.
type tenant struct {
	domain  Domain
	unit    *unit
	lane    *lane
	rates   rates
	history *History // what its requests cost; nil: they are as predicted
	busy    bool     // it has work, as last told
	refused bool     // admission control refused the reserve that it was promised
	heads   [numClasses]Request
	lent    [numClasses]uint64 // the last request that it was lent
	arrived uint64             // number of the arrival of what waits, or waited last
	since   Time               // when that was
	due     Time               // by when it is to have ended; Forever: there is no such time
	at      int                // in its lane

	unended time.Duration // used under leases that were taken back before a request ended
	ended   bool          // its last lease ended with its last request
}

func newUnit(name string, before order) *unit {
	u := &unit{name: name}
	u.line = heap[lane]{
		at:   func(l *lane) *int { return &l.at },
		less: func(a, b *lane) bool { return before(a.waiting.top(), b.waiting.top()) },
	}
	u.free = newLane(u, nil, before)
	return u
}

func newLane(u *unit, r *reserve, before order) lane {
	return lane{unit: u, reserve: r, waiting: heap[tenant]{at: func(c *tenant) *int { return &c.at }, less: before}}
}

// first is the tenant of u that is served next; nil: nobody may be served.
func (u *unit) first() *tenant {
	if l := u.line.top(); l != nil {
		return l.waiting.top()
	}
	return nil
}

// waits says whether c is in line.
func (c *tenant) waits() bool { return c.at > 0 }

// pending says whether a request waits that was not lent yet.
func (c *tenant) pending() bool {
	for i := range c.heads {
		if c.heads[i].Seq > c.lent[i] {
			return true
		}
	}
	return false
}

// request is the request that waits; of several that which costs most. It is not
// to be changed, and the tenant's.
func (c *tenant) request() *Request {
	most := &noRequest
	for i := range c.heads {
		if r := &c.heads[i]; r.Seq > c.lent[i] && (most == &noRequest || r.Predicted > most.Predicted) {
			most = r
		}
	}
	return most
}

// noRequest is what waits where none does.
var noRequest Request

// deadline is by when the request that waits is to have ended: the promised time
// after the release of its job, or, where that is unknown, after it came.
func (c *tenant) deadline() Time {
	span := c.domain.Promise.Deadline
	if span <= 0 {
		span = c.domain.Promise.Period
	}
	if span <= 0 {
		return Forever
	}
	due := Forever
	for i, r := range c.heads {
		if r.Seq <= c.lent[i] {
			continue
		}
		release := r.Release
		if release <= 0 {
			release = c.since
		}
		due = min(due, release.Add(span))
	}
	return due
}

// order says which of a unit's tenants is served before which; it is total.
type order func(a, b *tenant) bool

// byArrival serves in the order in which requests came.
func byArrival(a, b *tenant) bool { return a.arrived < b.arrived }

// byPriority (FP) serves the more urgent first; among equals those for whom a
// person waits (TimeGraph's AGPA), then as they came.
func byPriority(a, b *tenant) bool {
	if c := urgency(a, b); c != 0 {
		return c > 0
	}
	return a.arrived < b.arrived
}

// urgency compares what two tenants were promised: positive if a is the more
// urgent. Those in the background are the least.
func urgency(a, b *tenant) int {
	p, o := &a.domain.Promise, &b.domain.Promise
	switch x, y := a.inBackground(), b.inBackground(); {
	case x != y && y:
		return 1
	case x != y:
		return -1
	case p.Priority > o.Priority:
		return 1
	case p.Priority < o.Priority:
		return -1
	case p.Interactive != o.Interactive && p.Interactive:
		return 1
	case p.Interactive != o.Interactive:
		return -1
	}
	return 0
}

// byDeadline (EDF) serves first what is due first, then as it came.
func byDeadline(a, b *tenant) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.arrived < b.arrived
}
