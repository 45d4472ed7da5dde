package backend

import (
	"time"

	"pegasus/backend/gate"
	"pegasus/policies"
	"pegasus/vcpu"
)

// A policy that goes by what the CPUs do is told once a tick, by coordinate. That is too old when it decides: a
// hypervisor's slice is as long as a tick, so who ran a tick ago is most likely who doesn't run now. So the loop
// that decides looks itself, a moment before.

// glances are an accelerator's looks at the CPUs before its decisions.
type glances struct {
	at   vcpu.Time     // the last one began
	of   vcpu.Time     // when the decision was due that it was for
	took time.Duration // it, or the one before if that took less: once a host stops anybody for long
	last time.Duration // it took
	lead time.Duration // what one takes, lately, at worst
}

const (
	leastGap  = time.Millisecond // between glances: what is younger is new enough
	gapPart   = 10               // they take one part in so many of the time at most
	leadDecay = 8                // one part in so many of the worst is forgotten with each
)

// from is from when on to glance for a decision.
func (g *glances) from(due vcpu.Time) vcpu.Time {
	return max(due.Add(-g.lead), g.at.Add(max(leastGap, gapPart*g.took)))
}

// next is when to wake up for a decision, or to glance for it.
func (g *glances) next(due vcpu.Time) vcpu.Time {
	if due == g.of {
		return due
	}
	return min(g.from(due), due)
}

// wanted says whether to glance now.
func (g *glances) wanted(now, due vcpu.Time) bool {
	return due != vcpu.Forever && due != g.of && now >= g.from(due)
}

// made tells of one.
func (g *glances) made(began, ended vcpu.Time, tick time.Duration) {
	took := ended.Sub(began)
	g.at, g.took, g.last = began, min(took, g.last), took
	g.lead = min(max(took, g.lead-g.lead/leadDecay), tick/gapPart)
}

// glance has the policy told what the CPUs do, if that matters to a decision that is about to be made.
func (a *accelerator) glance() {
	a.mu.Lock()
	now, due, tick := vcpu.Time(gate.Now()), a.sched.Next(), a.settings.Tick
	wanted := a.coordinates() && a.glances.wanted(now, due)
	a.mu.Unlock()
	if !wanted {
		return
	}
	seen := a.see(max(tick, leastPeriod))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.glances.of = due; seen {
		a.glances.made(now, vcpu.Time(gate.Now()), tick)
	}
}

// coordinates says whether its next decision goes by what the CPUs do. a.mu is held.
func (a *accelerator) coordinates() bool {
	return a.see != nil && choice(a.settings).Follows() == policies.Schedules && a.rivals()
}
