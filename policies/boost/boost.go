// Package boost makes virtual machines' parts of the CPUs follow the accelerator. While a machine has the
// accelerator's window its weight is raised, so that its vCPUs keep the accelerator busy; afterwards it is
// lowered until the machine has had no more of the CPUs than without the boost. So no prediction of vCPU
// activity is needed.
//
// The daemon feeds it events of the gates and writes the resulting weights into the machines' cgroups; the
// simulator does the same with its model of the CPUs. Like a policy it is pure and deterministic: the caller
// passes the time in, and the package does no I/O and never blocks.
//
// Callers: the daemon (backend) and the simulator (sim).
//
// Trust boundary: none; the caller's events are trusted.
package boost

import (
	"cmp"
	"slices"
	"time"

	"pegasus/vcpu"
)

// Factor multiplies the weight of a machine in its window, and divides it while the machine gives back the
// CPU time gained by that.
const Factor = 4

const (
	// MinWindow is the shortest window for which a weight is raised, and the least time for which any weight
	// stays, because writing one is not free.
	MinWindow = 5 * time.Millisecond
	// A machine's weight is raised for at most earns ‰ of the time plus stock, so for at most half of any
	// second.
	earns = 450
	stock = 50 * time.Millisecond
	// maxDebt is the CPU time that the machines of a pool may owe together. No second is off by more than
	// twice that, plus the gain in one MinWindow.
	maxDebt = 20 * time.Millisecond
	// maxOff bounds a machine's surplus or deficit to its part of this time.
	maxOff = 60 * time.Millisecond
	// enough is the least debt that is worth a write: as a rule more than is given back in MinWindow.
	enough = 2 * time.Millisecond
	// calm is the time for which a weight is left alone after a change by another program.
	calm = time.Second
)

// Pool is a set of machines that share CPUs by weight: cgroups with one parent.
type Pool struct {
	Name     string
	Others   int64 // weights of the other contenders for CPU time there
	Machines []Machine
}

// MaxWeight is the greatest possible weight.
const MaxWeight = 1 << 18

// Machine is a member of a pool.
type Machine struct {
	Domain string
	Weight int64 // the configured weight, Least to Most
	Has    int64 // the current weight; if it differs from our last write, another program changed it
	Least  int64 // at least 1
	Most   int64 // at most MaxWeight
}

// Write is a machine's new weight.
type Write struct {
	Domain string
	Weight int64
}

// Boosts tracks the current window owner and each domain's outstanding boost debt. The zero value is empty
// and ready to use.
type Boosts struct {
	pools []*pool
	now   vcpu.Time
}

type pool struct {
	Pool    // its Machines are replaced by these:
	members []*member
}

// level is a member's weight relative to the configured one.
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
	has     int64         // weight of our last write
	until   vcpu.Time     // its window's end if later than now; otherwise it has no window
	left    time.Duration // time for which it may still be raised
	debt    time.Duration // CPU time that it had beyond its part of the pool
	settled vcpu.Time     // earliest time of the next change of its weight
	gone    bool
}

// Set replaces the pools, and the machines with weights that may be changed. A machine that is missing from
// them gets its configured weight back.
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

// take returns the account of a machine: the existing one from old, or a new one.
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

// Open reports that a machine has the accelerator for the given length, unless Close comes earlier.
func (b *Boosts) Open(now vcpu.Time, domain string, length time.Duration) {
	b.pass(now)
	if m := b.find(domain); m != nil {
		m.until = now.Add(length)
	}
}

// Close reports that a machine does not have the accelerator any more.
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

// pass advances the accounts to now: each machine is credited its part by the current weights and debited its
// part by the configured ones.
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

// even takes the sum of the debts off the members by weight, so that the debts sum to 0: the debts with
// machines that have left are written off.
func (p *pool) even(due int64) {
	if p.Others > 0 {
		return // they absorb the remainder
	}
	var sum time.Duration
	for _, m := range p.members {
		sum += m.debt
	}
	for _, m := range p.members {
		m.debt -= part(sum, m.Weight, due)
	}
}

// part returns d·n/of, for an n up to MaxWeight.
func part(d time.Duration, n, of int64) time.Duration {
	return min(d, time.Hour) * time.Duration(n) / time.Duration(of)
}

// Writes returns the weights that must be written now, by pool and domain.
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

// weight returns a member's weight at a level.
func (m *member) weight(l level) int64 {
	switch l {
	case raised:
		return min(Factor*m.Weight, m.Most)
	case lowered:
		return max(m.Weight/Factor, m.Least)
	}
	return m.Weight
}

// level returns the level that a member must have. In its window it is never lowered: it gives back its debt
// while it has to wait for the accelerator anyway.
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

// may reports whether changing a member's weight has an effect: there is another machine in the pool, and the
// member can give back its gain.
func (p *pool) may(m *member) bool {
	return !m.gone && len(p.members) > 1 && m.weight(raised) > m.Weight && m.weight(lowered) < m.Weight
}

// gives reports whether a member's debt is large enough to be given back.
func (p *pool) gives(m *member) bool { return m.debt >= enough && p.may(m) }

// payback returns the longest time that a lowered member needs to give back its debt, as long as all weights
// stay the same.
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

// lends reports whether a member may owe more, given the limit most for the pool's total debt.
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

// due returns the sum of all configured weights.
func (p *pool) due() int64 {
	sum := p.Others
	for _, m := range p.members {
		sum += m.Weight
	}
	return sum
}

// Next returns when Writes must be called again if no event comes before; Forever if that is not needed.
// While a weight is to be raised or a debt to be given back, that is every MinWindow.
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
