package policies

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// ring gives windows as published: it walks round all domains in the order of their credits and gives each as
// many whole ticks as its credits are multiples of the smallest. Idle domains get theirs too, overruns are
// not corrected, and the next window opens when one ends, even if work is still running.
//
// Where the published text is silent: a walk serves every member once; when a rotation would exceed its cap,
// all windows shrink by the same factor, to no less than a tick; changes of membership and credits count from
// the next window on.
type ring struct {
	name  string
	opt   Options
	share func(*Options, Domain) Credits
	parts int          // windows over which an overrun is repaid; 0: it is not
	extra func(ID) int // ticks in addition to a domain's next window; nil: none

	members map[ID]*seat
	seats   []*seat // by credits, the richest first
	current int     // index of the holder's seat in seats; its former index, if it left
	held    bool
	stale   bool // credits or membership changed since lengths were computed

	least int64 // smallest credits of a member
	sum   int64 // ticks of a whole rotation, before it is shrunk

	waiting *seat // chosen, but its predecessor's gate must be closed first
	start   Time
	until   Time
	idleEnd Time
	over    bool // the holder left, or closed its last context
}

// seat is a domain's place in the ring.
type seat struct {
	id      ID
	credits int64
	wanted  int64 // its credits from the next window on
	context bool
	idle    bool  // it has no work, as last reported
	ticks   int64 // length of the window given last
	overrun overrun
}

func newRing(name string, o Options, share func(*Options, Domain) Credits) *ring {
	return &ring{name: name, opt: o, share: share, parts: o.repaidParts(), members: make(map[ID]*seat), current: -1, idleEnd: Forever}
}

func (p *ring) Attach(_ Time, d Domain) {
	credits := max(int64(p.share(&p.opt, d)), 1)
	p.stale = true
	if s := p.members[d.ID]; s != nil {
		s.wanted = credits
		return
	}
	s := &seat{id: d.ID, credits: credits, wanted: credits}
	p.members[d.ID] = s
	at, _ := slices.BinarySearchFunc(p.seats, s, richer)
	p.seats = slices.Insert(p.seats, at, s)
	if at <= p.current {
		p.current++
	}
}

func (p *ring) Detach(_ Time, id ID) {
	at := p.index(id)
	delete(p.members, id)
	p.seats = slices.Delete(p.seats, at, at+1)
	p.stale = true
	if at == p.current {
		p.held = false
	}
	if at <= p.current {
		p.current--
	}
}

func (p *ring) Wake(since Time, id ID, sig Signal) {
	s := p.members[id]
	holds := p.held && p.seats[p.current] == s
	switch sig {
	case ContextOpened:
		s.context, p.stale = true, true
	case ContextClosed:
		s.context, p.stale = false, true
		p.over = p.over || holds
	case Drained:
		s.idle = true
		if holds {
			p.idleEnd = p.yield(since)
		}
	case Arrived:
		s.idle = false
		if holds {
			p.idleEnd = Forever
		}
	}
}

// yield returns when a holder that is idle since then gives up its window.
func (p *ring) yield(since Time) Time {
	if p.opt.IdleYield <= 0 {
		return Forever
	}
	return since.Add(p.opt.IdleYield)
}

func (p *ring) Charge(_ Time, id ID, u Usage) { p.members[id].overrun.used += u.Busy() }

func (p *ring) Pick(now Time) (Decision, bool, Time) {
	d, ok := p.decide(now)
	if !p.held || len(p.seats) == 1 {
		return d, ok, Forever
	}
	return d, ok, min(p.until, p.idleEnd)
}

func (p *ring) decide(now Time) (Decision, bool) {
	switch {
	case len(p.seats) == 0:
		return Decision{}, false
	case p.waiting != nil:
		s := p.waiting
		p.waiting = nil
		return p.open(now, s), true
	case !p.held:
		return p.open(now, p.next()), true
	}
	h := p.seats[p.current]
	if len(p.seats) > 1 && p.until == Forever {
		p.until = p.bound(now, h)
		if p.until > now {
			return Decision{Grant, Lease{Domain: h.id, Until: p.until}}, true
		}
	}
	if len(p.seats) == 1 {
		p.over = false
		changed := p.until != Forever
		p.until = Forever
		return Decision{Grant, Lease{Domain: h.id, Until: Forever}}, changed
	}
	if now < min(p.until, p.idleEnd) && !p.over {
		return Decision{}, false
	}
	p.held = false
	p.waiting = p.next()
	return Decision{Revoke, Lease{Domain: h.id}}, true
}

// bound sets the end of the window of a domain that had the ring to itself to where it would have been: each
// of its windows is followed by another.
func (p *ring) bound(now Time, h *seat) Time {
	window := p.length(h)
	return p.start.Add((now.Sub(p.start) + window - 1) / window * window)
}

// next advances to the seat after the current one.
func (p *ring) next() *seat {
	if p.stale {
		p.recompute()
	}
	p.current = (p.current + 1) % len(p.seats)
	return p.seats[p.current]
}

func (p *ring) open(now Time, s *seat) Decision {
	p.held, p.over = true, false
	p.start, p.until, p.idleEnd = now, Forever, Forever
	if s.idle {
		p.idleEnd = p.yield(now)
	}
	if len(p.seats) == 1 {
		s.overrun.unbound()
		return Decision{Grant, Lease{Domain: s.id, Until: Forever}}
	}
	window := p.length(s)
	if p.extra != nil {
		more := p.extra(s.id)
		s.ticks += int64(more)
		window += time.Duration(more) * p.opt.Tick
	}
	p.until = now.Add(s.overrun.begin(window, p.parts))
	return Decision{Grant, Lease{Domain: s.id, Until: p.until}}
}

// recompute applies changed credits and recomputes the lengths.
func (p *ring) recompute() {
	var last *seat
	if p.current >= 0 {
		last = p.seats[p.current]
	}
	p.least = p.seats[0].wanted
	for _, s := range p.seats {
		s.credits = s.wanted
		p.least = min(p.least, s.credits)
	}
	slices.SortFunc(p.seats, richer)
	p.sum = 0
	for _, s := range p.seats {
		p.sum += p.entitled(s)
	}
	if last != nil {
		p.current = p.index(last.id)
	}
	p.stale = false
}

// entitled returns a domain's window in ticks before the rotation is shrunk: Algorithm 1's T. A domain
// without a context has one tick.
func (p *ring) entitled(s *seat) int64 {
	if !s.context {
		return 1
	}
	return max(1, s.credits/p.least)
}

func (p *ring) length(s *seat) time.Duration {
	ticks, most := p.entitled(s), int64(p.opt.RotationCap/p.opt.Tick)
	if p.sum > most {
		ticks = max(1, ticks*most/p.sum)
	}
	s.ticks = ticks
	return time.Duration(ticks) * p.opt.Tick
}

func (p *ring) index(id ID) int {
	s := p.members[id]
	return slices.Index(p.seats, s)
}

// richer orders seats by credits, the richest first.
func richer(a, b *seat) int {
	return cmp.Or(cmp.Compare(b.credits, a.credits), cmp.Compare(a.id, b.id))
}

func (p *ring) Explain() string {
	if !p.held {
		return p.name + " (paper): no domain is attached"
	}
	s := p.seats[p.current]
	if len(p.seats) == 1 {
		return fmt.Sprintf("%s (paper): domain %d is alone, its window stays open", p.name, s.id)
	}
	return fmt.Sprintf("%s (paper): domain %d has seat %d of %d and %d ticks of %v; credits %d, least %d",
		p.name, s.id, p.current+1, len(p.seats), s.ticks, p.opt.Tick, s.credits, p.least)
}
