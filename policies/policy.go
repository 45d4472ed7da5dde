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

// Forever as a lease's end means: until the policy says otherwise.
const Forever = vcpu.Forever

// Policy decides who may submit work to one accelerator, and for how long. It
// is a state machine: no clock, goroutine, floating point or map order within;
// the same calls give the same answers, byte for byte. The Scheduler is its only
// caller and guarantees that time never runs backwards, that every ID but
// Attach's is attached, and that usage is reported before the Pick it bears on.
type Policy interface {
	// Attach adds a domain; for one that is attached already it changes its
	// parameters, which take effect at the next turn. A new domain has no work.
	Attach(now Time, d Domain)
	// Detach forgets a domain and whatever lease it had.
	Detach(now Time, id ID)
	// Wake tells what happened to a domain, and since when it is so, which may be
	// a little before the last Pick.
	Wake(since Time, id ID, s Signal)
	// Charge reports accelerator time used. It may come in several parts, and
	// after the end of the lease under which the work was submitted.
	Charge(now Time, id ID, u Usage)
	// Pick returns the next decision that is due at now, or ok=false when there
	// is none left; then wakeAt says when to ask again if nothing happens before.
	Pick(now Time) (d Decision, ok bool, wakeAt Time)
}

// Queue is a policy that decides about single requests, and so wants to know
// which one a domain would submit next. What it lends are leases of the kind
// Requests; Charge tells how many ended.
type Queue interface {
	// Head tells which request of a class waits at a domain's gate now; a zero
	// Request: none. It is told of changes, and again of what still waits after the
	// domain's gate was closed: work from before its lease may have ended under it.
	Head(now Time, id ID, c Class, r Request)
}

// Observer is a policy that looks at the hypervisor's schedule.
type Observer interface {
	// Observe gives the newest sample, which nobody changes any more.
	Observe(now Time, s *vcpu.Sample)
}

// Loaded is a policy that keeps watch over more promises than shares.
type Loaded interface {
	// Overloaded says that the accelerator doesn't do what was promised, so that
	// new domains should rather go elsewhere: placement is to halve its weight.
	Overloaded() bool
}

// Request is what a policy knows of a request that waits at a gate.
type Request struct {
	Seq uint64 // of the domain's requests, from 1 on
	// Predicted is how long it will hold its engine; Known says that the like was
	// measured before.
	Predicted time.Duration
	Known     bool
	Key       uint64 // the same for requests that cost about the same
	Context   uint32 // of which of the domain's contexts
	Release   Time   // of the job that it belongs to; 0: unknown
	Bytes     uint64 // that it copies; 0: none, or unknown
	Threads   uint64 // that it starts; 0: none, or unknown
}

// Signal is what can happen to a domain.
type Signal uint8

const (
	// Arrived: the domain has work. Sent when work comes while the gate is
	// closed, and whenever a look at the gate page finds pending or submitted work.
	Arrived Signal = iota
	// Drained: nothing is pending and nothing in flight. Sent again when a look at
	// the gate page finds that it was busy in between.
	Drained
	// ContextOpened and ContextClosed: the first context or allocation came, the
	// last one went.
	ContextOpened
	ContextClosed
)

// Decision is one thing for the accelerator's gates to do.
type Decision struct {
	Op    Op
	Lease Lease // for Revoke only Domain and Class are set
}

// Op is the kind of a decision.
type Op uint8

const (
	// Grant opens the domain's gate under these terms; when it is open already,
	// the terms replace the old ones and the gate stays open throughout.
	Grant Op = iota
	// Revoke closes it. Submitted work runs to its end.
	Revoke
)

// Kind says what bounds a lease besides Until.
type Kind uint8

const (
	// Window: submission is open until Until.
	Window Kind = iota
	// Budget: and at most Amount nanoseconds of predicted accelerator time.
	Budget
	// Requests: and at most Amount requests.
	Requests
)

// Class says which engines a lease is for.
type Class uint8

const (
	AnyClass Class = iota
	Compute
	Copy
	numClasses
)

// Lease is a domain's right to submit work. Accelerators do not preempt, so the
// work submitted under a lease may end after it. A domain has one for any class,
// or one for each.
type Lease struct {
	Domain ID
	Class  Class
	Kind   Kind
	Amount int64
	Until  Time
}

// Explainer is a policy that can say in one line why it last decided as it did. It
// writes a domain as "domain" and its ID.
type Explainer interface {
	Explain() string
}

// Refuser is a policy that can say which of its slots refuses a domain's request.
type Refuser interface {
	// Refusal begins with the name of the slot (reserve, share, order) and says why;
	// "": none waits.
	Refusal(id ID) string
}
