// Package boost has virtual machines' parts of the CPUs follow the accelerator: while a
// machine has the accelerator's window its weight is raised, so that its vCPUs keep the
// accelerator busy, and afterwards lowered until it has had no more of the CPUs than
// without. So nothing has to be foretold of what vCPUs will do.
//
// The daemon calls it with what happens at the gates and writes what it answers into
// the machines' cgroups; the simulator does the same with its model of the CPUs. Like a
// policy it is pure and deterministic: time is passed in, and nothing is read or waited for.
package boost

import (
	"cmp"
	"slices"
	"time"

	"pegasus/vcpu"
)

// Factor is how many times its weight a machine has in its window; and what part of it
// while it gives back what that gave it.
const Factor = 4

const (
	// MinWindow is the shortest window for which a weight is raised, and for so long,
	// at least, each weight stays: writing them is not free.
	MinWindow = 5 * time.Millisecond
	// A machine's weight is raised for earns ‰ of the time and stock at most, so in
	// no second for more than half of it.
	earns = 450
	stock = 50 * time.Millisecond
	// maxDebt is how much of a pool's CPU time its machines may owe, together. No second
	// is off by more than twice that, and what a step of MinWindow adds.
	maxDebt = 20 * time.Millisecond
	// maxOff bounds what one of them has had too much, or too little: its part of so much.
	maxOff = 60 * time.Millisecond
	// enough of a debt is worth a write: more than is given back in MinWindow, as a rule.
	enough = 2 * time.Millisecond
	// calm is for how long a weight is left alone that somebody else has changed.
	calm = time.Second
)

// Pool is where machines share CPUs by weight: cgroups with one parent.
type Pool struct {
	Name     string
	Others   int64 // weights of what else wants CPU time there
	Machines []Machine
}

// MaxWeight is the greatest weight that there can be.
const MaxWeight = 1 << 18

// Machine is one of a pool.
type Machine struct {
	Domain string
	Weight int64 // that is set for it, Least to Most
	Has    int64 // and that it has; if our last write didn't give it that, somebody else did
	Least  int64 // at least 1
	Most   int64 // at most MaxWeight
}

// Write is a weight that a machine has from now on.
type Write struct {
	Domain string
	Weight int64
}

// Boosts knows who has a window, and what everybody owes. Its zero value knows nobody.
type Boosts struct {
	pools []*pool
	now   vcpu.Time
}

type pool struct {
	Pool    // but its machines are these:
	members []*member
}

// level is what a member has of its weight.
type level uint8

const (
	plain level = iota
	raised
	lowered
)

// member is a machine's account.
type member struct {
	Machine
	level   level
	has     int64         // its weight by our last write
	until   vcpu.Time     // its window's end, if it has one: later than now
	left    time.Duration // for which it may be raised
	debt    time.Duration // what it had of the pool's time beyond its part
	settled vcpu.Time     // before which its weight stays
	gone    bool
}

// Set tells of all pools, by name, and whose weights may be changed. Who isn't there any
// more gets back its own.
func (b *Boosts) Set(now vcpu.Time, pools []Pool) {
	b.pass(now)
	var old []*member
	for _, p := range b.pools {
		old = append(old, p.members...)
	}
	b.pools = nil
	for _, p := range pools {
		next := &pool{Pool: p}
		next.Machines = nil
		for _, m := range p.Machines {
			next.members = append(next.members, b.take(&old, m))
		}
		b.pools = append(b.pools, next)
	}
	left := &pool{}
	for _, m := range old {
		if m.gone = true; m.level != plain {
			left.members = append(left.members, m)
		}
	}
	if len(left.members) > 0 {
		b.pools = append(b.pools, left)
	}
	for _, p := range b.pools {
		slices.SortFunc(p.members, func(x, y *member) int { return cmp.Compare(x.Domain, y.Domain) })
	}
}

// take is the account of a machine, which was among the old ones if it was known.
func (b *Boosts) take(old *[]*member, m Machine) *member {
	i := slices.IndexFunc(*old, func(o *member) bool { return o.Domain == m.Domain })
	if i < 0 {
		return &member{Machine: m, has: m.Has}
	}
	o := (*old)[i]
	*old = slices.Delete(*old, i, i+1)
	o.gone = false
	if o.Weight != m.Weight || o.has != m.Has {
		o.has, o.level, o.debt = m.Has, plain, 0
		o.settled = b.now.Add(calm)
	}
	o.Machine = m
	return o
}

// Open tells that a machine has the accelerator for so long, if it doesn't give it up before.
func (b *Boosts) Open(now vcpu.Time, domain string, length time.Duration) {
	b.pass(now)
	if m := b.find(domain); m != nil {
		m.until = now.Add(length)
	}
}

// Close tells that a machine doesn't have the accelerator any more.
func (b *Boosts) Close(now vcpu.Time, domain string) {
	b.pass(now)
	if m := b.find(domain); m != nil {
		m.until = now
	}
}

func (b *Boosts) find(domain string) *member {
	for _, p := range b.pools {
		for _, m := range p.members {
			if m.Domain == domain {
				return m
			}
		}
	}
	return nil
}

// pass brings accounts up to date: each has had its part by the weights of the moment,
// and should have had that by those that are set.
func (b *Boosts) pass(now vcpu.Time) {
	d := now.Sub(b.now)
	if d <= 0 {
		return
	}
	b.now = now
	for _, p := range b.pools {
		had, due := p.Others, p.due()
		for _, m := range p.members {
			had += m.has
		}
		for _, m := range p.members {
			m.left = min(m.left+part(d, earns, 1000), stock)
			if m.level == raised {
				m.left -= d
			}
			m.debt += part(d, m.has, had) - part(d, m.Weight, due)
		}
		p.even(due)
	}
}

// even has the members of a pool owe each other, and nobody who isn't there any more.
func (p *pool) even(due int64) {
	if p.Others > 0 {
		return // they are the rest of the account
	}
	var sum time.Duration
	for _, m := range p.members {
		sum += m.debt
	}
	for _, m := range p.members {
		m.debt -= part(sum, m.Weight, due)
	}
}

// part is d·n/of, for an n up to MaxWeight.
func part(d time.Duration, n, of int64) time.Duration {
	return min(d, time.Hour) * time.Duration(n) / time.Duration(of)
}

// Writes returns the weights that have to be written now, by pool and domain.
func (b *Boosts) Writes(now vcpu.Time) (all []Write) {
	b.pass(now)
	for _, p := range b.pools {
		for _, m := range p.members {
			next := p.level(m, now)
			if next == m.level || !m.gone && m.settled > now {
				continue
			}
			m.level, m.settled = next, now.Add(MinWindow)
			if w := m.weight(next); w != m.has {
				m.has = w
				all = append(all, Write{m.Domain, w})
			}
		}
	}
	b.pools = slices.DeleteFunc(b.pools, func(p *pool) bool {
		p.members = slices.DeleteFunc(p.members, func(m *member) bool { return m.gone })
		return len(p.members) == 0
	})
	return all
}

// weight is what a member has at a level.
func (m *member) weight(l level) int64 {
	switch l {
	case raised:
		return min(Factor*m.Weight, m.Most)
	case lowered:
		return max(m.Weight/Factor, m.Least)
	}
	return m.Weight
}

// level is what a member shall have. In its window it is never lowered: what it owes it
// gives back when it has to wait for the accelerator anyway.
func (p *pool) level(m *member, now vcpu.Time) level {
	window := m.until > now
	switch {
	case !p.may(m):
		return plain
	case window && m.level == raised && m.left > 0 && p.lends(m, maxDebt):
		return raised
	case window && m.level != raised && m.until.Sub(now) >= MinWindow && m.left >= 2*MinWindow && p.lends(m, maxDebt*4/5):
		return raised
	case !window && (p.gives(m) || m.level == lowered && m.debt > 0):
		return lowered
	}
	return plain
}

// may says whether a member's weight can be changed, and to some purpose: there is
// another machine beside it, and what it gets it can give back.
func (p *pool) may(m *member) bool {
	return !m.gone && len(p.members) > 1 && m.weight(raised) > m.Weight && m.weight(lowered) < m.Weight
}

// gives says whether a member owes so much that it has to give it back.
func (p *pool) gives(m *member) bool { return m.debt >= enough && p.may(m) }

// payback is how long a lowered member needs to give back what it owes, at most, as
// long as all weights are what they are.
func (p *pool) payback(m *member) time.Duration {
	had := p.Others
	for _, o := range p.members {
		had += o.has
	}
	const whole = 1_000_000
	rate := part(whole, m.Weight, p.due()) - part(whole, m.has, had)
	if rate <= 0 {
		return MinWindow
	}
	return max(m.debt, 0)*whole/rate + 1
}

// lends says whether a member may owe more, where all together may owe so much.
func (p *pool) lends(m *member, most time.Duration) bool {
	var sum time.Duration
	due := p.due()
	for _, o := range p.members {
		sum += max(o.debt, 0)
		off := o.debt
		if o != m {
			off = -off
		}
		if off >= part(maxOff, o.Weight, due) {
			return false
		}
	}
	return sum < most
}

// due is the sum of all weights, as they are set.
func (p *pool) due() int64 {
	sum := p.Others
	for _, m := range p.members {
		sum += m.Weight
	}
	return sum
}

// Next is when Writes must be called again if nothing happens before; Forever if that is
// not needed. Accounts are looked at again every MinWindow, as long as there is something
// to raise or to give back.
func (b *Boosts) Next() vcpu.Time {
	next, soon := vcpu.Forever, b.now.Add(MinWindow)
	for _, p := range b.pools {
		for _, m := range p.members {
			at := vcpu.Forever
			switch window := m.until > b.now; {
			case m.gone:
				at = b.now
			case m.level == raised:
				at = min(soon, m.until, b.now.Add(max(m.left, 0)*1000/(1000-earns)+1))
			case m.level == lowered:
				at = min(soon, b.now.Add(p.payback(m)))
			case window && p.may(m) || p.gives(m):
				at = soon
			}
			if !m.gone {
				at = max(at, m.settled)
			}
			next = min(next, at)
		}
	}
	return next
}
