package policies

import (
	"slices"
	"time"
)

// roster holds the domains of a queue, and the units that they belong to. Every domain has one unit. A
// unit's credits are the sum of its members'. A unit exists as long as it has members, or keeps the account
// of a domain that has left. The roster reports the changes of units to the queue's share.
type roster struct {
	share  share
	books  books // the share, if it keeps accounts; otherwise nil
	before order // of the tenants of a unit

	tenants map[ID]*tenant
	groups  map[string]*unit
	absent  map[ID]*unit // units that hold the accounts of domains that have left
	common  *unit        // the unit of all domains, for a queue without shares; otherwise nil
}

func newRoster(s share, b books, before order) roster {
	return roster{
		share: s, books: b, before: before,
		tenants: make(map[ID]*tenant),
		groups:  make(map[string]*unit),
		absent:  make(map[ID]*unit),
	}
}

// join adds c to its unit.
func (r *roster) join(now Time, c *tenant) {
	if c.unit = r.common; c.unit != nil {
		return
	}
	group := c.domain.Promise.Group
	was := r.absent[c.domain.ID]
	u := r.groups[group]
	switch {
	case was != nil && was.name == group:
		u = was
	case u == nil || group == "":
		u = newUnit(group, r.before)
		if u.name != "" {
			r.groups[u.name] = u
		}
	}
	c.unit = u
	u.members = append(u.members, c)
	r.weigh(now, u)
	if was == nil {
		return
	}
	if u != was { // c is of another group now
		r.restore(now, c.domain.ID, r.books.balance(was))
	}
	r.close(now, c.domain.ID)
}

// part removes c from its unit.
func (r *roster) part(now Time, c *tenant) {
	u := c.unit
	if u == r.common {
		return
	}
	u.members = slices.DeleteFunc(u.members, func(o *tenant) bool { return o == c })
	switch {
	case len(u.members) > 0:
		r.weigh(now, u)
	case u.absent > 0:
		r.books.vacated(u)
	}
	r.dissolve(now, u)
}

// close ends the account of an absent domain.
func (r *roster) close(now Time, id ID) {
	u := r.absent[id]
	delete(r.absent, id)
	u.absent--
	r.dissolve(now, u)
}

// dissolve removes a unit that has neither members nor accounts of absent ones.
func (r *roster) dissolve(now Time, u *unit) {
	if len(u.members) > 0 || u.absent > 0 {
		return
	}
	if u.name != "" {
		delete(r.groups, u.name)
	}
	r.share.unitRemoved(now, u)
}

// weigh recomputes the entitlement of a unit from its members.
func (r *roster) weigh(now Time, u *unit) {
	if u == r.common {
		return
	}
	u.credits, u.bw, u.id = 0, 0, u.members[0].domain.ID
	for _, c := range u.members {
		u.credits += int64(c.domain.Credits.OrDefault())
		u.bw += int64(max(c.domain.Promise.Bandwidth, 0))
		u.id = min(u.id, c.domain.ID)
	}
	r.share.unitChanged(now, u)
}

// balance returns the balance of the unit of a domain, present or absent.
func (r *roster) balance(id ID) time.Duration {
	if c := r.tenants[id]; c != nil {
		return r.books.balance(c.unit)
	}
	return r.books.balance(r.absent[id])
}

// restore sets the balance of the domain's unit. A unit of several domains keeps its own balance if that is
// the lower one.
func (r *roster) restore(now Time, id ID, balance time.Duration) {
	u := r.tenants[id].unit
	if len(u.members)+u.absent > 1 {
		balance = min(balance, r.books.balance(u))
	}
	r.books.restore(now, u, balance)
}

// only returns the domain that is the only one, or nil.
func (r *roster) only() *tenant {
	if len(r.tenants) == 1 {
		for _, c := range r.tenants {
			return c
		}
	}
	return nil
}
