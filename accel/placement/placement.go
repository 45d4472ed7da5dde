// Package placement decides on which accelerator a domain's work runs.
//
// A domain is placed when its first process initialises CUDA, and stays until its last process has ended: moving its
// memory would cost more than a better accelerator gains. The package neither blocks nor depends on time.
//
// Callers: the daemon, when domains start and end.
//
// Trust boundary: none; the package trusts its arguments.
//
// Accelerators form a queue, the greatest weight first, and a domain is placed on the first one that fits. The weight is
// the strength S of an accelerator, times the free part of its memory, divided by its present load:
//
//	W = S · free/memory / (1 + Σ weights of its domains / 256)
//	S = ½ compute + ¼ memory + ¼ bandwidth, each relative to the best
//
// in thousandths, and half of that while the accelerator fails to keep the promises to its present domains. A domain
// that fits nowhere waits for admission; of the waiting domains, the one with the greatest weight is admitted first.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Order is the order in which accelerators are tried for a domain.
type Order uint8

const (
	ByWeight   Order = iota // the fitting one with the greatest weight
	RoundRobin              // the next fitting one after the last that was taken
)

// DefaultMaxDomains is the number of domains that an accelerator takes by default.
const DefaultMaxDomains = 64

// Accelerator describes an accelerator on which domains can be placed.
type Accelerator struct {
	Name string
	Profile
	MaxDomains int    // 0: DefaultMaxDomains
	MaxCredits int    // largest sum of its domains' weights; 0: unlimited
	Promised   uint64 // largest sum of its domains' guarantees, in bytes; 0: Memory
}

// Domain describes a domain that is to be placed.
type Domain struct {
	Name   string
	Weight int    // its credits; 0: 256
	Memory uint64 // device memory that it is expected to need, in bytes
	Only   string // the accelerator that it is tied to; empty: any

	Guarantee uint64 // device memory that other domains can't take from it, in bytes
}

// Placement names the accelerator on which a domain is placed.
type Placement struct {
	Domain, Accelerator string
}

// Queue holds the accelerators of a host, the domains placed on them and the waiting domains. It is not safe for
// concurrent use.
type Queue struct {
	order   Order
	seats   []*seat // in the order they were added
	best    Profile
	last    int // index of the accelerator taken last; -1: none yet
	domains map[string]*guest
	waiting []*guest // the greatest weight first, then in the order of arrival
}

// seat is an accelerator with its present load.
type seat struct {
	Accelerator
	guests    int
	load      uint64 // Σ weights of its domains
	reserved  uint64 // Σ memory that they are expected to need
	allocated uint64 // memory in use, of the latest SetAllocated
	promised  uint64 // Σ guarantees
	strained  bool   // it fails to keep its promises, which halves its weight
}

// guest is a domain, placed or waiting.
type guest struct {
	Domain
	on *seat // nil while it waits
}

// NewQueue returns a queue without accelerators.
func NewQueue(o Order) *Queue {
	return &Queue{order: o, last: -1, domains: make(map[string]*guest)}
}

// Add makes an accelerator available, and returns the waiting domains that are placed because of that.
func (q *Queue) Add(a Accelerator) ([]Placement, error) {
	if q.find(a.Name) != nil {
		return nil, fmt.Errorf("accelerator %q is there already", a.Name)
	}
	if a.Memory == 0 {
		return nil, errors.New("an accelerator without memory")
	}
	if a.MaxDomains <= 0 {
		a.MaxDomains = DefaultMaxDomains
	}
	q.seats = append(q.seats, &seat{Accelerator: a})
	q.best = best(q.seats)
	return q.admit(), nil
}

// Place places a domain and returns the accelerator's name. It returns ok=false if the domain must wait; then a later
// Add, SetAllocated or Release admits it. Place may be called again for a placed or waiting domain, also to change its
// weight or memory. That may admit other domains, for which the next Place returns the accelerator.
func (q *Queue) Place(d Domain) (accelerator string, ok bool) {
	g := q.guest(d)
	if g.on == nil {
		q.enqueue(g)
	}
	q.admit()
	if g.on == nil {
		return "", false
	}
	return g.on.Name, true
}

// Restore places a domain on the accelerator that it already uses, whether it fits or not.
func (q *Queue) Restore(d Domain, accelerator string) error {
	s := q.find(accelerator)
	if s == nil {
		return fmt.Errorf("no accelerator %q", accelerator)
	}
	g := q.guest(d)
	q.drop(g)
	g.on = s
	s.take(g.Domain)
	return nil
}

// Release removes a placed or waiting domain, and returns the waiting domains that are placed because of that.
func (q *Queue) Release(domain string) []Placement {
	g := q.domains[domain]
	if g == nil {
		return nil
	}
	q.drop(g)
	delete(q.domains, domain)
	return q.admit()
}

// SetAllocated sets the memory of an accelerator that is in use, in bytes, and returns the waiting domains that are
// placed because of that.
func (q *Queue) SetAllocated(accelerator string, bytes uint64) []Placement {
	s := q.find(accelerator)
	if s == nil || s.allocated == bytes {
		return nil
	}
	less := bytes < s.allocated
	s.allocated = bytes
	if less {
		return q.admit()
	}
	return nil
}

// SetOverloaded sets whether an accelerator fails to keep the promises to its domains. That halves its weight, so that
// new domains prefer other accelerators.
func (q *Queue) SetOverloaded(accelerator string, is bool) {
	if s := q.find(accelerator); s != nil {
		s.strained = is
	}
}

// Weight returns an accelerator's weight in thousandths, or 0 if there is no accelerator of that name.
func (q *Queue) Weight(accelerator string) int {
	if s := q.find(accelerator); s != nil {
		return int(q.weight(s))
	}
	return 0
}

// Waiting returns the names of the domains that wait for admission, in their order.
func (q *Queue) Waiting() []string {
	var names []string
	for _, g := range q.waiting {
		names = append(names, g.Name)
	}
	return names
}

// Refusal returns an error with the reason if an accelerator can't take a domain now, else nil.
func (q *Queue) Refusal(accelerator string, d Domain) error {
	s := q.find(accelerator)
	if s == nil {
		return fmt.Errorf("no accelerator %q", accelerator)
	}
	return s.refusal(d)
}

func (q *Queue) find(name string) *seat {
	for _, s := range q.seats {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// guest returns the record of a domain, which it creates or updates.
func (q *Queue) guest(d Domain) *guest {
	if d.Weight <= 0 {
		d.Weight = 256
	}
	g := q.domains[d.Name]
	if g == nil {
		g = &guest{Domain: d}
		q.domains[d.Name] = g
		return g
	}
	if g.on != nil {
		g.on.leave(g.Domain)
		g.on.take(d)
	}
	g.Domain = d
	return g
}

// enqueue adds g to the waiting domains, unless it is there, and sorts them.
func (q *Queue) enqueue(g *guest) {
	if !slices.Contains(q.waiting, g) {
		q.waiting = append(q.waiting, g)
	}
	slices.SortStableFunc(q.waiting, func(a, b *guest) int { return cmp.Compare(b.Weight, a.Weight) })
}

// drop removes g from its accelerator or from the waiting domains.
func (q *Queue) drop(g *guest) {
	if g.on != nil {
		g.on.leave(g.Domain)
		g.on = nil
		return
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(w *guest) bool { return w == g })
}

// admit places the waiting domains that fit. A domain that doesn't fit doesn't block those behind it.
func (q *Queue) admit() []Placement {
	var placed []Placement
	still := q.waiting[:0]
	for _, g := range q.waiting {
		s := q.choose(g.Domain)
		if s == nil {
			still = append(still, g)
			continue
		}
		g.on = s
		s.take(g.Domain)
		placed = append(placed, Placement{g.Name, s.Name})
	}
	clear(q.waiting[len(still):])
	q.waiting = still
	return placed
}

// choose returns the accelerator for a domain, or nil if none fits.
func (q *Queue) choose(d Domain) *seat {
	chosen := -1
	for i := range q.seats {
		at := i
		if q.order == RoundRobin {
			at = (q.last + 1 + i) % len(q.seats)
		}
		if q.seats[at].refusal(d) != nil {
			continue
		}
		if chosen < 0 || q.order == ByWeight && q.heavier(q.seats[at], q.seats[chosen]) {
			chosen = at
		}
	}
	if chosen < 0 {
		return nil
	}
	q.last = chosen
	return q.seats[chosen]
}

// heavier reports whether a precedes b in the accelerator queue.
func (q *Queue) heavier(a, b *seat) bool {
	if wa, wb := q.weight(a), q.weight(b); wa != wb {
		return wa > wb
	}
	return a.load < b.load
}

func (q *Queue) weight(s *seat) uint64 {
	w := part(q.strength(s)*256, s.free(), s.Memory) / (256 + s.load)
	if s.strained {
		w /= 2
	}
	return w
}

func (q *Queue) strength(s *seat) uint64 { return s.Profile.strength(q.best) }

// free returns the memory that is neither in use nor reserved, in bytes.
func (s *seat) free() uint64 { return s.Memory - min(max(s.allocated, s.reserved), s.Memory) }

// refusal returns an error with the reason if d can't be placed here, else nil.
func (s *seat) refusal(d Domain) error {
	switch {
	case d.Only != "" && d.Only != s.Name:
		return fmt.Errorf("%s is tied to %s", d.Name, d.Only)
	case s.guests >= s.MaxDomains:
		return fmt.Errorf("%s has %d domains, all that it may have", s.Name, s.guests)
	case s.MaxCredits > 0 && s.load+uint64(d.Weight) > uint64(s.MaxCredits):
		return fmt.Errorf("%s has %d of %d credits left (max_credits), %s has %d", s.Name, uint64(s.MaxCredits)-min(s.load, uint64(s.MaxCredits)), s.MaxCredits, d.Name, d.Weight)
	case s.free() < d.Memory:
		return fmt.Errorf("%s has %d bytes free, %s needs %d", s.Name, s.free(), d.Name, d.Memory)
	case d.Guarantee > s.promisable():
		return fmt.Errorf("%s has %d bytes that are not promised to others, %s is to be guaranteed %d", s.Name, s.promisable(), d.Name, d.Guarantee)
	}
	return nil
}

func (s *seat) take(d Domain) {
	s.guests++
	s.load += uint64(d.Weight)
	s.reserved += d.Memory
	s.promised += d.Guarantee
}

// promisable returns the memory that can still be guaranteed, in bytes.
func (s *seat) promisable() uint64 {
	all := s.Memory
	if s.Promised != 0 {
		all = s.Promised
	}
	return all - min(s.promised, all)
}

func (s *seat) leave(d Domain) {
	s.guests--
	s.load -= uint64(d.Weight)
	s.reserved -= d.Memory
	s.promised -= d.Guarantee
}
