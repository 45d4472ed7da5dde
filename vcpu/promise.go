package vcpu

import "time"

// Promise are a domain's guarantees beyond its credits. Zero values guarantee nothing; a policy ignores the fields
// that it doesn't implement.
type Promise struct {
	// SLO is the least part of the accelerator that the domain expects, in ‰.
	SLO int
	// Bandwidth is the domain's part of the accelerator in ‰, for policies that count in parts and not in credits; 0:
	// by credits.
	Bandwidth int
	// Group names the virtual accelerator that the domain shares with the others of that group; "": one of its own.
	Group string
	// Priority within its group, or among all where there are no groups; a larger value is more urgent.
	Priority int
	// Interactive: a user is waiting for the domain now.
	Interactive bool
	// Throughput lets requests follow each other without a new scheduling decision, as long as no more urgent domain
	// waits (TimeGraph's HT; otherwise PRT).
	Throughput bool
	Reserve    Reserve
	// Period is the interval in which the domain releases jobs, Deadline the longest time of a job from its release;
	// 0: Period.
	Period, Deadline time.Duration
}

// Reserve limits a domain to Cost of accelerator time in every Period, and, if
// admitted, guarantees it.
type Reserve struct {
	Kind   ReserveKind
	Shared string // the name of a reserve that several domains use; "": its own
	Cost   time.Duration
	Period time.Duration
}

// ReserveKind is the time at which a reserve is enforced.
type ReserveKind uint8

const (
	NoReserve  ReserveKind = iota
	Posterior              // enforced after the cost was measured (PE)
	Apriori                // enforced by the predicted cost (AE)
	Background             // the one for all domains without a promise, at the lowest priority
)
