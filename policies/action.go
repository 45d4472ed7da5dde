package policies

import (
	"time"

	"pegasus/vcpu"
)

// Event is one input of the Scheduler. The daemon makes events from the contents of the gate pages, the
// simulator from its model; a list of events is a trace that can be replayed.
type Event struct {
	Kind   EventKind `json:"kind"`
	Domain Domain    `json:"domain,omitzero"` // Attach: all of it; otherwise only ID
	Used   Usage     `json:"used,omitzero"`   // Charge
	Signal Signal    `json:"signal,omitzero"` // Wake
	Since  Time      `json:"since,omitzero"`  // Wake: since when it holds, if reported and before now

	// Balances are the initial balances of the domain's accounts, in an Attach of an unknown ID.
	Balances Balances `json:"balances,omitzero"`

	Class   Class        `json:"class,omitzero"`   // Head, Charge, Wake: the class, if the event is about one only
	Request Request      `json:"request,omitzero"` // Head: the request that waits at the gate now; zero: none
	Sample  *vcpu.Sample `json:"sample,omitzero"`  // Observe
}

// EventKind is the method of a policy that an event goes to.
type EventKind uint8

const (
	Attach  EventKind = iota // a domain attached, or its parameters changed
	Detach                   // it left
	Wake                     // its state changed
	Charge                   // it used accelerator time
	Head                     // another request waits at its gate
	Observe                  // a new sample of the hypervisor's schedule
)

// Action is one output of the Scheduler: the new contents of a domain's gate page.
type Action struct {
	Domain ID
	// Generation numbers the times that this domain's gate was opened. New terms
	// for an open gate keep it.
	Generation uint64
	Open       bool
	Lease      Lease // the terms, while Open; otherwise only the class
}

// Stat is the Scheduler's statistics of one domain.
type Stat struct {
	Domain   Domain
	State    vcpu.State
	Used     Usage         // since Attach
	Leases   uint64        // times that the gate was opened
	WaitMean time.Duration // from arrival at a closed gate to its opening; running mean over 8
}
