package policies

import "time"

// unit is the entity that receives a share: a domain, or a group of domains (Gdev's virtual accelerator).
type unit struct {
	name    string
	id      ID    // the lowest ID of its members
	credits int64 // sum of its members' credits
	bw      int64 // sum of its members' bandwidths, in ‰; 0: by credits
	members []*tenant
	absent  int        // domains that have left; this unit keeps their account
	line    heap[lane] // lanes with a request that may be served, the first in front
	free    lane       // lane of members without a reserve
	waiting int        // members with a request, whether or not it may be served

	at    int   // position in the share's heap
	key   int64 // by which the share orders it, if it needs one
	place int64 // in the share's list, from 1 on
	state any   // the share's own record of the unit, which unitChanged creates
}

// lane holds the members of a unit that the same reserve limits. Their requests queue behind one another:
// while the first may not be served, none of them may.
type lane struct {
	unit    *unit
	reserve *reserve // nil: the members have no reserve
	waiting heap[tenant]
	users   int // with a reserve: its members that belong to the unit
	at      int // position in the unit's line
}

// tenant is a domain's record of requests.
type tenant struct {
	domain  Domain
	unit    *unit
	lane    *lane
	rates   rates
	shorts  int      // recent requests that were short, under DRR
	history *History // cost history of its requests; nil: predictions are used as given
	busy    bool     // it has work, as last reported
	refused bool     // admission control refused the reserve that it was promised
	heads   [numClasses]Request
	lent    [numClasses]uint64 // Seq of the last request lent
	arrived uint64             // number of the arrival of the waiting request, or of the last one that waited
	since   Time               // time of that arrival
	due     Time               // deadline of the waiting request; Forever: none
	at      int                // position in its lane

	unended time.Duration // used under its last lease, and under earlier ones that were taken back before a request ended
	ended   int           // requests that ended under its last lease
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

// first returns the tenant of u to serve next; nil: none may be served.
func (u *unit) first() *tenant {
	if l := u.line.top(); l != nil {
		return l.waiting.top()
	}
	return nil
}

// waits reports whether c is in line.
func (c *tenant) waits() bool { return c.at > 0 }

// pending reports whether a request waits that has not been lent.
func (c *tenant) pending() bool {
	for i := range c.heads {
		if c.heads[i].Seq > c.lent[i] {
			return true
		}
	}
	return false
}

// request returns the waiting request; of several, the costliest. The tenant owns it; the caller must not
// change it.
func (c *tenant) request() *Request {
	most := &noRequest
	for i := range c.heads {
		if r := &c.heads[i]; r.Seq > c.lent[i] && (most == &noRequest || r.Predicted > most.Predicted) {
			most = r
		}
	}
	return most
}

// noRequest is the result of request if none waits.
var noRequest Request

// deadline returns when the waiting request must have ended: the promised time after the release of its job
// or, if that is unknown, after its arrival.
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

// order reports whether a is served before b, two tenants of a unit; it is total.
type order func(a, b *tenant) bool

// orderInUnit selects the order in which the domains of a unit are served.
var orderInUnit = newWord(Param{Key: "order", Doc: "order of the domains of a group: the policy's own, by arrival of the requests (fifo), by priority (fp) or by deadline (edf)"},
	"policy", "fifo", "fp", "edf")

// order returns the selected order, by default the published one.
func (o *Options) order(published order) order {
	switch orderInUnit.of(o) {
	case "fifo":
		return byArrival
	case "fp":
		return byPriority
	case "edf":
		return byDeadline
	}
	return published
}

// byArrival serves requests in order of arrival.
func byArrival(a, b *tenant) bool { return a.arrived < b.arrived }

// byPriority (FP) serves the more urgent tenant first; among equals interactive ones (TimeGraph's AGPA), then
// by arrival.
func byPriority(a, b *tenant) bool {
	if c := urgency(a, b); c != 0 {
		return c > 0
	}
	return a.arrived < b.arrived
}

// urgency compares the promises of two tenants: positive if a is the more urgent. Tenants in the background
// are the least urgent.
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

// byDeadline (EDF) serves the earliest deadline first, then by arrival.
func byDeadline(a, b *tenant) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.arrived < b.arrived
}
