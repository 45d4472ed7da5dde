// Package vcpu defines the entities that are scheduled: a domain's share of an accelerator (its aVCPU), its identity,
// its entitlement, its usage and its state.
//
// It is pure data: time is passed in, nothing here blocks or reads a clock.
//
// Callers: the policies, the daemon and the simulator, which share these types.
//
// Trust boundary: none; the package only defines data.
package vcpu

import "time"

// Time is an instant in nanoseconds on the monotonic clock of the scheduler's caller. Only differences are
// meaningful.
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

// ID identifies an aVCPU on one accelerator. The caller of the scheduler chooses it; among domains that are equal in
// every other way the lower one goes first.
type ID uint32

// Credits is a domain's weight: its entitlement in proportion to the credits of the others. Zero stands for
// DefaultCredits.
type Credits uint16

// Xen's default, and the range allowed in a configuration.
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

// Domain is a policy's view of an aVCPU: its identity and its entitlement.
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
	// Idle is how long the gate was open while nothing was pending and nothing in flight: time that no other domain
	// could use. It is charged like use, and is not accelerator time in any statistics. A caller that does not
	// measure it leaves it zero.
	Idle time.Duration
	// Stalled is how long the gate was open while no engine was held for the domain, for which the domain is not
	// charged: the host's own delays, and others' work that still ran.
	Stalled time.Duration
	// Switch is the part of Compute and Copy that the engine needed to change from another context to this one, where
	// it is measured.
	Switch time.Duration
	// Requests is the number of requests that ended.
	Requests int
	// Pauses is the number of times that work arrived after nothing had been pending and nothing in flight, and
	// Paused the total length of those times. Several may have ended since the last report: work that finds its gate
	// open is not announced.
	Pauses int
	Paused time.Duration
}

// Busy returns the accelerator time in u.
func (u Usage) Busy() time.Duration { return u.Compute + u.Copy }

// Zero reports whether u is empty.
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
