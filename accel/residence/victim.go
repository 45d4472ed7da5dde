package residence

import (
	"cmp"
	"slices"
)

// Owner describes a process that uses an accelerator to the other processes.
type Owner struct {
	ID        int    // its index in the ledger
	Domain    uint64 // the owners of one domain share one guarantee
	Priority  int    // of its domain; owners of a lower priority are chosen first
	Resident  uint64 // bytes that it has on the device
	Fixed     uint64 // the part of Resident that is never evicted
	Guarantee uint64 // its domain's guarantee on the device, in bytes
	Used      int64  // time of its last use of them
}

// Ask is a request to one owner to evict bytes. Pressing means that the eviction may take the owner's domain
// below its guarantee, since no other bytes are left.
type Ask struct {
	Owner    int
	Bytes    uint64
	Pressing bool
}

// Choose returns an eviction request to the best victim, for short bytes or fewer. An owner with all of these bytes
// precedes owners with less; among equals it takes the one of the lowest priority, then the least recently used, then
// the lowest ID. It takes bytes within a domain's guarantee only if no owner has others, and skips the owners for which
// passed returns true. It returns false if no owner has evictable bytes.
//
// The result depends on the arguments only, and not on the order of the owners.
func Choose(owners []Owner, short uint64, passed func(Ask) bool) (a Ask, ok bool) {
	for _, pressing := range []bool{false, true} {
		var best *Owner
		var most uint64
		for i := range owners {
			o := &owners[i]
			n := o.Resident - min(o.Resident, o.Fixed)
			if !pressing {
				n = min(n, Excess(owners, o.Domain))
			}
			if n == 0 || passed != nil && passed(Ask{Owner: o.ID, Pressing: pressing}) {
				continue
			}
			if n = min(n, short); best == nil || before(o, n == short, best, most == short) {
				best, most = o, n
			}
		}
		if best != nil {
			return Ask{best.ID, most, pressing}, true
		}
	}
	return a, false
}

// before reports whether o is a better victim than p. enough and enough2 state whether o and p have all requested bytes.
func before(o *Owner, enough bool, p *Owner, enough2 bool) bool {
	if enough != enough2 {
		return enough
	}
	return cmp.Or(cmp.Compare(o.Priority, p.Priority), cmp.Compare(o.Used, p.Used), cmp.Compare(o.ID, p.ID)) < 0
}

// Excess returns the number of bytes that the owners of a domain have beyond its guarantee.
func Excess(owners []Owner, domain uint64) uint64 {
	var resident, guarantee uint64
	for i := range owners {
		if o := &owners[i]; o.Domain == domain {
			resident += o.Resident
			guarantee = max(guarantee, o.Guarantee)
		}
	}
	return resident - min(guarantee, resident)
}

// object is one allocation.
type object struct {
	addr, bytes uint64
	home        home
	fixed       bool   // it is never moved
	used        uint64 // number of the request that used it last
}

// home is the location of an object's bytes.
type home uint8

const (
	device home = iota
	area        // the part of the device that is reserved for evicted objects
	host
)

// choose returns the objects to evict for `want` bytes, which have no more than limit bytes together. It prefers one
// object that is large enough, the least recently used and then the lowest address; if none is, it returns several in
// that order.
func choose(objects []*object, want, limit uint64) (all []*object) {
	var may []*object
	for _, o := range objects {
		if o.home == device && !o.fixed && o.bytes <= limit {
			may = append(may, o)
		}
	}
	slices.SortFunc(may, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.addr, b.addr))
	})
	for _, o := range may {
		if o.bytes >= want {
			return []*object{o}
		}
	}
	var sum uint64
	for _, o := range may {
		if sum < want && o.bytes <= limit-sum {
			all, sum = append(all, o), sum+o.bytes
		}
	}
	return all
}
