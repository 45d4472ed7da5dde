// Package vcpu names the things that are scheduled: the share of an
// accelerator that belongs to a domain (its aVCPU), who it is, what it is
// entitled to, what it has used and what it is doing.
//
// It is pure data: time is passed in, nothing here blocks or reads a clock. The
// policies, the daemon and the simulator all speak in these types.
package vcpu

import "time"

// Time is an instant in nanoseconds on the monotonic clock of whoever drives
// the scheduler. Only differences mean anything.
type Time int64

// Forever is later than any instant that is ever reached.
const Forever Time = 1<<63 - 1

// Add returns t+d, and Forever when that cannot be expressed.
func (t Time) Add(d time.Duration) Time {
	if sum := t + Time(d); d < 0 || sum >= t {
		return sum
	}
	return Forever
}

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// ID names an aVCPU on one accelerator. The caller of the scheduler chooses it;
// among domains that are equal in every other way the lower one goes first.
type ID uint32

// Credits is a domain's weight: what it is entitled to in proportion to the
// credits of the others. Zero stands for DefaultCredits.
type Credits uint16

// Xen's default, and the range that a configuration may use.
const (
	DefaultCredits Credits = 256
	MinCredits     Credits = 1
	MaxCredits     Credits = 65535
)

// OrDefault returns c, or DefaultCredits when none were set.
func (c Credits) OrDefault() Credits {
	if c == 0 {
		return DefaultCredits
	}
	return c
}

// Domain is what a policy is told about an aVCPU: who it is and what it is owed.
type Domain struct {
	ID      ID
	Credits Credits // accelerator credits
	CPU     Credits // CPU credits, the hypervisor's weight; 0: unknown
	Promise Promise
}

// Usage is measured accelerator time, per class of work, since the last report.
type Usage struct {
	Compute time.Duration // the compute engine was held
	Copy    time.Duration // a copy engine was held
	// Idle is how long the gate stood open while nothing was pending and nothing
	// in flight: time that nobody else could use. It is charged like use, and is
	// not accelerator time in any statistics. A caller that does not measure it
	// leaves it zero.
	Idle time.Duration
	// Stalled is how long the gate stood open while no engine was held for the domain,
	// and it is not charged for that: the host's own delays, and others' work that still ran.
	Stalled time.Duration
	// Switch is the part of Compute and Copy that the engine needed to change from
	// another context to this one, where that is known.
	Switch time.Duration
	// Requests is how many requests ended.
	Requests int
	// Pauses is how often work came after nothing had been pending and nothing in
	// flight, and Paused for how long that had been, in all. Several may have ended
	// since the last report: work that finds its gate open is not announced.
	Pauses int
	Paused time.Duration
}

// Busy returns the accelerator time in u.
func (u Usage) Busy() time.Duration { return u.Compute + u.Copy }

// Zero says whether there is nothing in u.
func (u *Usage) Zero() bool {
	return u.Compute == 0 && u.Copy == 0 && u.Idle == 0 && u.Stalled == 0 && u.Switch == 0 && u.Requests == 0 && u.Pauses == 0 && u.Paused == 0
}

// Add adds v to u.
func (u *Usage) Add(v *Usage) {
	u.Compute += v.Compute
	u.Copy += v.Copy
	u.Idle += v.Idle
	u.Stalled += v.Stalled
	u.Switch += v.Switch
	u.Requests += v.Requests
	u.Pauses += v.Pauses
	u.Paused += v.Paused
}
