package vcpu

import "time"

// Promise is what a domain was promised beyond its credits. Zero values promise
// nothing; a policy that knows nothing of a field leaves it alone.
type Promise struct {
	// SLO is the least part of the accelerator that it expects, in ‰.
	SLO int
	// Bandwidth is its part of the accelerator in ‰, for policies that count in
	// parts and not in credits; 0: by credits.
	Bandwidth int
	// Group names the virtual accelerator that it shares with the others of that
	// group; "": one of its own.
	Group string
	// Priority within its group, or among all where there are no groups: the
	// larger the more urgent.
	Priority int
	// Interactive says that a person is waiting for it now.
	Interactive bool
	// Throughput lets requests follow each other without asking, as long as nobody
	// more urgent waits (TimeGraph's HT; otherwise PRT).
	Throughput bool
	Reserve    Reserve
	// Period is how often it releases a job, Deadline how long a job may take from
	// its release; 0: Period.
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

// ReserveKind is when a reserve is looked at.
type ReserveKind uint8

const (
	NoReserve  ReserveKind = iota
	Posterior              // enforced after the cost is known (PE)
	Apriori                // enforced by the predicted cost (AE)
	Background             // the one for all without a promise, at the lowest priority
)
