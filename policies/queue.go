package policies

import (
	"fmt"
	"slices"
	"time"
)

// queue is the frame of policies that decide about single requests: one domain at
// a time is lent so many requests, and the next decision is made when they have
// ended. Domains belong to units (Gdev's virtual accelerators): those of a group
// share one, others have one to themselves. Two slots make a policy of it: share
// says which unit is next, before which of its domains.
//
// A domain that is alone on the accelerator has its gate open.
type queue struct {
	name   string
	share  share
	before func(a, b *tenant) bool

	tenants map[ID]*tenant
	groups  map[string]*unit
	arrived uint64 // numbers arrivals

	holder   *tenant // whose lease is out
	left     int     // requests of the lease that have not ended
	alone    bool    // the holder's gate is open, since there is nobody else
	closing  *tenant // its gate has to be closed before another's opens
	chosen   *tenant // will get the lease then
	refusing string  // why nobody was chosen last
	last     reason
}

// share is the slot of a queue that says which unit is served next. It is told of
// units that have requests waiting, and of what was used.
type share interface {
	// waits tells that a unit has requests waiting, and had none.
	waits(now Time, u *unit)
	// rests tells that it has none any more: they were lent, or vanished.
	rests(now Time, u *unit)
	// used tells what a unit used; done that its lease has ended, however much of
	// it was used.
	used(now Time, u *unit, d time.Duration)
	done(now Time, u *unit)
	// next says which of the waiting units is next, and how many requests it may
	// submit; nil: none before wakeAt.
	next(now Time) (u *unit, requests int, wakeAt Time)
	// changed tells that a unit came, or that its credits did; left that it went.
	changed(now Time, u *unit)
	left(now Time, u *unit)
}

// unit is who gets a share: a domain, or a group of them.
type unit struct {
	name    string
	id      ID // the lowest of its members'
	credits int64
	bw      int64 // ‰; 0: by credits
	members []*tenant
	waiting []*tenant // those with a request at their gate, the first in front

	at    int   // position in the share's heap
	place int64 // in its list, from 1 on
}

// tenant is a domain, as far as its requests are concerned.
type tenant struct {
	domain  Domain
	unit    *unit
	heads   [numClasses]Request
	lent    [numClasses]uint64 // the last request that it was lent
	arrived uint64             // when its request came, in order; 0: none waits
	next    uint64             // when that came which is at its gate while it has the lease
}

func newQueue(name string, s share, before func(a, b *tenant) bool) *queue {
	return &queue{name: name, share: s, before: before, tenants: make(map[ID]*tenant), groups: make(map[string]*unit)}
}

func (q *queue) Attach(now Time, d Domain) {
	c := q.tenants[d.ID]
	if c == nil {
		c = &tenant{domain: d}
		q.tenants[d.ID] = c
		q.join(now, c)
		return
	}
	if moved := c.domain.Promise.Group != d.Promise.Group; moved {
		waited := c.arrived
		q.withdraw(now, c)
		q.part(now, c)
		c.domain = d
		q.join(now, c)
		if waited != 0 {
			q.line(now, c, waited)
		}
		return
	}
	c.domain = d
	if c.arrived != 0 { // its priority may be another
		waited := c.arrived
		c.unit.waiting = slices.DeleteFunc(c.unit.waiting, func(o *tenant) bool { return o == c })
		q.insert(c, waited)
	}
	q.weigh(now, c.unit)
}

// join puts c into its unit.
func (q *queue) join(now Time, c *tenant) {
	u := q.groups[c.domain.Promise.Group]
	if u == nil || c.domain.Promise.Group == "" {
		u = &unit{name: c.domain.Promise.Group, id: c.domain.ID}
		if u.name != "" {
			q.groups[u.name] = u
		}
	}
	c.unit = u
	u.members = append(u.members, c)
	q.weigh(now, u)
}

// weigh computes anew what a unit is entitled to.
func (q *queue) weigh(now Time, u *unit) {
	u.credits, u.bw, u.id = 0, 0, u.members[0].domain.ID
	for _, c := range u.members {
		u.credits += int64(c.domain.Credits.OrDefault())
		u.bw += int64(c.domain.Promise.Bandwidth)
		u.id = min(u.id, c.domain.ID)
	}
	q.share.changed(now, u)
}

// part takes c out of its unit.
func (q *queue) part(now Time, c *tenant) {
	u := c.unit
	u.members = slices.DeleteFunc(u.members, func(o *tenant) bool { return o == c })
	if len(u.members) > 0 {
		q.weigh(now, u)
		return
	}
	delete(q.groups, u.name)
	q.share.left(now, u)
}

func (q *queue) Detach(now Time, id ID) {
	c := q.tenants[id]
	q.withdraw(now, c)
	if q.holder == c {
		c.heads = [numClasses]Request{}
		q.release(now)
	}
	if q.closing == c {
		q.closing = nil
	}
	if q.chosen == c {
		q.chosen = nil
	}
	q.part(now, c)
	delete(q.tenants, id)
}

// Wake ends the lease of a holder that has no work: what was to come does not.
func (q *queue) Wake(since Time, id ID, s Signal) {
	if c := q.tenants[id]; c == q.holder && s == Drained && !q.alone {
		q.release(since)
	}
}

func (q *queue) Head(now Time, id ID, class Class, r Request) {
	c := q.tenants[id]
	c.heads[class] = r
	q.arrived++
	q.settle(now, c, q.arrived)
}

// settle puts c in line, as the n-th that came, or takes it out, as its heads say.
// What waits at the gate of the holder may be of its lease: that is settled when
// the lease ends.
func (q *queue) settle(now Time, c *tenant, n uint64) {
	switch {
	case c == q.holder:
		c.next = n
	case !c.pending():
		q.withdraw(now, c)
	case c.arrived == 0:
		q.line(now, c, n)
	}
}

// pending says whether a request waits that was not lent yet.
func (c *tenant) pending() bool {
	for i, r := range c.heads {
		if r.Seq > c.lent[i] {
			return true
		}
	}
	return false
}

// request is the request that waits; of several that which costs most.
func (c *tenant) request() Request {
	var most Request
	for i, r := range c.heads {
		if r.Seq > c.lent[i] && (most.Seq == 0 || r.Predicted > most.Predicted) {
			most = r
		}
	}
	return most
}

// line puts c, whose request arrived as the n-th, in its unit's line.
func (q *queue) line(now Time, c *tenant, n uint64) {
	first := len(c.unit.waiting) == 0
	q.insert(c, n)
	if first {
		q.share.waits(now, c.unit)
	}
}

func (q *queue) insert(c *tenant, n uint64) {
	c.arrived = n
	line := c.unit.waiting
	at, _ := slices.BinarySearchFunc(line, c, func(a, b *tenant) int {
		if q.before(a, b) {
			return -1
		}
		return 1
	})
	c.unit.waiting = slices.Insert(line, at, c)
}

// withdraw takes c out of the line.
func (q *queue) withdraw(now Time, c *tenant) {
	if c.arrived == 0 {
		return
	}
	c.arrived = 0
	u := c.unit
	u.waiting = slices.DeleteFunc(u.waiting, func(o *tenant) bool { return o == c })
	if len(u.waiting) == 0 {
		q.share.rests(now, u)
	}
	if q.chosen == c {
		q.chosen = nil
	}
}

func (q *queue) Charge(now Time, id ID, u Usage) {
	c := q.tenants[id]
	q.share.used(now, c.unit, u.Busy())
	if c != q.holder || q.alone {
		return
	}
	if q.left -= u.Requests; q.left <= 0 {
		q.release(now)
	}
}

// release ends the holder's lease. Its gate stays as it is until it is known who
// is next.
func (q *queue) release(now Time) {
	c := q.holder
	q.holder, q.closing, q.alone = nil, c, false
	q.share.done(now, c.unit)
	q.settle(now, c, c.next)
}

func (q *queue) Pick(now Time) (Decision, bool, Time) {
	if d, ok := q.solitude(now); ok || q.holder != nil {
		return d, ok, Forever
	}
	wakeAt := Forever
	if q.chosen == nil {
		var u *unit
		var n int
		if u, n, wakeAt = q.share.next(now); u != nil {
			q.chosen, q.left = u.waiting[0], n
		}
	}
	switch {
	case q.closing != nil && q.closing != q.chosen:
		d := Decision{Revoke, Lease{Domain: q.closing.domain.ID}}
		q.closing = nil
		return d, true, Forever
	case q.chosen != nil:
		return q.lend(now), true, Forever
	}
	return Decision{}, false, wakeAt
}

// solitude opens the gate of the only domain, and takes that back when another
// comes.
func (q *queue) solitude(now Time) (Decision, bool) {
	switch {
	case len(q.tenants) == 1 && !q.alone:
		for _, c := range q.tenants {
			q.withdraw(now, c)
			q.holder, q.chosen, q.closing, q.alone = c, nil, nil, true
			q.last = reason{id: c.domain.ID}
		}
		return Decision{Grant, Lease{Domain: q.holder.domain.ID, Until: Forever}}, true
	case len(q.tenants) > 1 && q.alone:
		q.release(now)
	}
	return Decision{}, false
}

// lend gives the chosen domain its requests.
func (q *queue) lend(now Time) Decision {
	c := q.chosen
	r := c.request()
	q.last = reason{id: c.domain.ID, window: r.Predicted, credits: c.unit.credits, rivals: len(c.unit.waiting) - 1}
	q.holder, q.chosen, q.closing = c, nil, nil
	for i, h := range c.heads {
		c.lent[i] = max(c.lent[i], h.Seq)
	}
	q.withdraw(now, c)
	return Decision{Grant, Lease{Domain: c.domain.ID, Kind: Requests, Amount: int64(q.left), Until: Forever}}
}

func (q *queue) Explain() string {
	switch {
	case q.holder == nil && q.refusing != "":
		return q.name + ": " + q.refusing
	case q.holder == nil:
		return q.name + ": nobody has work"
	case q.alone:
		return fmt.Sprintf("%s: domain %d is alone, its gate stays open", q.name, q.last.id)
	}
	return fmt.Sprintf("%s: domain %d has a request of about %v; %d others of its unit wait", q.name, q.last.id, q.last.window, q.last.rivals)
}

// byArrival serves in the order in which requests came.
func byArrival(a, b *tenant) bool { return a.arrived < b.arrived }

// byPriority serves the more urgent first, equals as they came.
func byPriority(a, b *tenant) bool {
	if p, o := a.domain.Promise.Priority, b.domain.Promise.Priority; p != o {
		return p > o
	}
	return a.arrived < b.arrived
}
