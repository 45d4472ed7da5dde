package sched

import (
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

// Package cpus samples vCPU state for the policies once a tick. That sample is too old for a decision: a hypervisor's
// time slice is as long as a tick, so the vCPU that ran a tick ago is probably not running now. The scheduler loop
// therefore samples vCPU state itself, shortly before it decides.

// preDecisionSampling schedules an accelerator's samples of vCPU state before its decisions. The accelerator's mu
// guards it.
type preDecisionSampling struct {
	at   vcpu.Time     // start of the last sample
	of   vcpu.Time     // due time of the decision that it was for
	took time.Duration // the shorter of the last two durations: a host delays single samples for long
	last time.Duration // duration of the last sample
	lead time.Duration // recent worst-case duration of a sample
}

// LeastPeriod is the least period between samples of the schedule, otherwise sampled once a tick.
const LeastPeriod = 10 * time.Millisecond

const (
	leastGap  = time.Millisecond // between samples: a younger one is recent enough
	gapPart   = 10               // reciprocal of the largest share of time that samples take
	leadDecay = 8                // reciprocal of the part by which the worst case decays with each sample
)

// from returns the time from which a sample for a decision may be taken.
func (g *preDecisionSampling) from(due vcpu.Time) vcpu.Time {
	return max(due.Add(-g.lead), g.at.Add(max(leastGap, gapPart*g.took)))
}

// next returns the time to wake up, for a decision or for the sample before it.
func (g *preDecisionSampling) next(due vcpu.Time) vcpu.Time {
	if due == g.of {
		return due
	}
	return min(g.from(due), due)
}

// isDue reports whether to take a sample now.
func (g *preDecisionSampling) isDue(now, due vcpu.Time) bool {
	return due != vcpu.Forever && due != g.of && now >= g.from(due)
}

// made records a sample.
func (g *preDecisionSampling) made(began, ended vcpu.Time, tick time.Duration) {
	took := ended.Sub(began)
	g.at, g.took, g.last = began, min(took, g.last), took
	g.lead = min(max(took, g.lead-g.lead/leadDecay), tick/gapPart)
}

// samplePending samples vCPU state for the policy, if an imminent decision depends on it.
func (a *Accelerator) samplePending() {
	a.mu.Lock()
	now, due, tick := vcpu.Time(a.now()), a.sched.Next(), a.settings.Tick
	wanted := a.coordinates() && a.presample.isDue(now, due)
	a.mu.Unlock()
	if !wanted {
		return
	}
	sampled := a.sample(max(tick, LeastPeriod))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.presample.of = due; sampled {
		a.presample.made(now, vcpu.Time(a.now()), tick)
	}
}

// coordinates reports whether the accelerator's next decision depends on vCPU state. a.mu is held.
func (a *Accelerator) coordinates() bool {
	return a.sample != nil && Choice(a.settings).Follows() == policies.Schedules && a.members.rivals()
}
