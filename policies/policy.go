package policies

import (
	"time"

	"pegasus/vcpu"
)

// Short names for the types that every line here uses.
type (
	Time    = vcpu.Time
	ID      = vcpu.ID
	Domain  = vcpu.Domain
	Usage   = vcpu.Usage
	Credits = vcpu.Credits
)

// Forever as a lease's end means: until the policy decides otherwise.
const Forever = vcpu.Forever

// Policy decides which domain may submit work to one accelerator, and for how long. It is a state machine
// without clock, goroutine, floating point or map order: the same calls give the same answers, byte for byte.
// The Scheduler is its only caller and guarantees that time never runs backwards, that every ID except
// Attach's is attached, and that usage is reported before the Pick that depends on it.
type Policy interface {
	// Attach adds a domain, initially without work. For a domain that is attached already it changes the
	// parameters, which take effect at the domain's next turn.
	Attach(now Time, d Domain)
	// Detach removes a domain and its lease, if it has one.
	Detach(now Time, id ID)
	// Wake reports a change of a domain's state and the time since when it holds, which may be slightly
	// before the last Pick.
	Wake(since Time, id ID, s Signal)
	// Charge reports accelerator time used. The use of one lease may be reported in several parts, and after
	// that lease has ended.
	Charge(now Time, id ID, u Usage)
	// Pick returns the next decision that is due at now, or ok=false when none is left; then wakeAt is the
	// time of the next call if no event comes before.
	Pick(now Time) (d Decision, ok bool, wakeAt Time)
}

// Queue is a policy that decides about single requests and needs the next request of each domain. It lends
// leases of the kind Requests; Charge reports the number of requests that ended.
type Queue interface {
	// Head reports the request of a class that waits at a domain's gate now; a zero Request: none. The
	// Scheduler calls it on a change, and again for a request that still waits after the domain's gate was
	// closed: work from before the lease may have ended under it.
	Head(now Time, id ID, c Class, r Request)
}

// Observer is a policy that uses samples of the hypervisor's schedule.
type Observer interface {
	// Observe passes the newest sample, which is immutable from now on.
	Observe(now Time, s *vcpu.Sample)
}

// Loaded is a policy that monitors more promises than shares.
type Loaded interface {
	// Overloaded reports whether the accelerator misses its promises, so that new domains are better placed
	// elsewhere: placement halves its weight.
	Overloaded() bool
}

// Request describes a request that waits at a gate.
type Request struct {
	Seq uint64 // number among the domain's requests, from 1 on
	// Predicted is the time for which it is expected to hold its engine; `Known` reports whether a request with
	// its key was measured before.
	Predicted time.Duration
	Known     bool
	Key       uint64 // the same for requests of about the same cost
	Context   uint32 // the context among the domain's that it belongs to
	Release   Time   // of the job that it belongs to; 0: unknown
	Bytes     uint64 // that it copies; 0: none, or unknown
	Threads   uint64 // that it starts; 0: none, or unknown
}

// Signal is a change of a domain's state.
type Signal uint8

const (
	// Arrived: the domain has work. Sent when work arrives while the gate is closed, and whenever a read of
	// the gate page finds pending or submitted work.
	Arrived Signal = iota
	// Drained: no work is pending or in flight. Sent again when a read of the gate page finds that the domain
	// was busy in between.
	Drained
	// ContextOpened and ContextClosed: the first context or allocation was created, the last one destroyed.
	ContextOpened
	ContextClosed
)

// Decision is one operation on the accelerator's gates.
type Decision struct {
	Op    Op
	Lease Lease // for Revoke only Domain and Class are set
}

// Op is the kind of a decision.
type Op uint8

const (
	// Grant opens the domain's gate under the terms of the lease. If it is open already, the terms replace
	// the old ones and the gate stays open throughout.
	Grant Op = iota
	// Revoke closes the domain's gate. Submitted work runs to its end.
	Revoke
)

// Kind is the bound of a lease besides Until.
type Kind uint8

const (
	// Window: submission is open until Until.
	Window Kind = iota
	// Budget: as Window, and at most Amount nanoseconds of predicted accelerator time.
	Budget
	// Requests: as Window, and at most Amount requests.
	Requests
)

// Class is the class of engines that a lease is for.
type Class = vcpu.EngineClass

const (
	AnyClass   = vcpu.AnyClass
	Compute    = vcpu.ComputeClass
	Copy       = vcpu.CopyClass
	numClasses = vcpu.NumClasses
)

// Lease is a domain's right to submit work. Accelerators do not preempt, so work submitted under a lease may
// end after it. A domain has one lease for any class, or one for each class.
type Lease struct {
	Domain ID
	Class  Class
	Kind   Kind
	Amount int64
	Until  Time
}

// Explainer is a policy that can explain its last decision in one line. It writes a domain as "domain" and
// its ID.
type Explainer interface {
	Explain() string
}

// Refuser is a policy that can name the slot that refuses a domain's request.
type Refuser interface {
	// Refusal begins with the name of the slot (reserve, share, order) and gives the reason; "": no request
	// waits.
	Refusal(id ID) string
}
