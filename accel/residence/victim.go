package residence

import (
	"cmp"
	"slices"
)

// Owner is a process of an accelerator, as the others see it.
type Owner struct {
	ID        int    // its place in the ledger
	Domain    uint64 // those of one domain have one guarantee
	Priority  int    // of its domain; the larger the later it gives way
	Resident  uint64 // bytes it has on the device
	Fixed     uint64 // those of them that never leave it
	Guarantee uint64 // bytes that its domain was promised there
	Used      int64  // when it last used them
}

// Ask is that an owner give bytes back. Pressing means that its domain is to go
// beneath what it was promised, since nothing else is left.
type Ask struct {
	Owner    int
	Bytes    uint64
	Pressing bool
}

// Choose returns whom to ask for short bytes. An owner that has it all goes before
// those that have less; among equals the lowest priority, then who used its memory
// the longest ago, then the lowest ID. What a domain was promised is left alone while
// there is another way. Owners for whom passed is true are not asked. It returns false if
// nobody has anything.
//
// It depends on its arguments only, and on the order of the owners not at all.
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

// before says whether o is the better victim; enough and enough2 whether they
// have all that is needed.
func before(o *Owner, enough bool, p *Owner, enough2 bool) bool {
	if enough != enough2 {
		return enough
	}
	return cmp.Or(cmp.Compare(o.Priority, p.Priority), cmp.Compare(o.Used, p.Used), cmp.Compare(o.ID, p.ID)) < 0
}

// Excess is what the owners of a domain have beyond its guarantee.
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
	used        uint64 // the request that used it last
}

// home is where an object's bytes are.
type home uint8

const (
	device home = iota
	area        // on the device, in the part that is set aside for what leaves it
	host
)

// choose returns what to give up of objects for want bytes, but no more than
// limit: one that is large enough, and of such the one that was used the longest
// ago, then the lowest address; if none is, several in that order.
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
