package policies

import (
	"time"

	"pegasus/vcpu"
)

// Event is one input of the Scheduler. The daemon makes events out of what the
// gate pages say, the simulator out of its model; a list of them is a trace that
// can be played again.
type Event struct {
	Kind   EventKind `json:"kind"`
	Domain Domain    `json:"domain,omitzero"` // Attach: all of it; otherwise only ID
	Used   Usage     `json:"used,omitzero"`   // Charge
	Signal Signal    `json:"signal,omitzero"` // Wake
	Since  Time      `json:"since,omitzero"`  // Wake: since when it is so, when that is known and before now

	// Balances, of an Attach of an unknown ID, are what the domain's accounts begin with.
	Balances Balances `json:"balances,omitzero"`

	Class   Class        `json:"class,omitzero"`   // Head, Charge, Wake: of which class, if it is only of one
	Request Request      `json:"request,omitzero"` // Head: which waits at the gate now; zero: none
	Sample  *vcpu.Sample `json:"sample,omitzero"`  // Observe
}

// EventKind is which of a policy's entries an event goes to.
type EventKind uint8

const (
	Attach  EventKind = iota // a domain came, or its parameters changed
	Detach                   // it went
	Wake                     // something happened to it
	Charge                   // it used accelerator time
	Head                     // another request waits at its gate
	Observe                  // the hypervisor's schedule is known anew
)

// Action is one output of the Scheduler: what to write into a domain's gate page.
type Action struct {
	Domain ID
	// Generation numbers the times that this domain's gate was opened. New terms
	// for an open gate keep it.
	Generation uint64
	Open       bool
	Lease      Lease // the terms, while Open; otherwise only the class
}

// Stat is what the Scheduler knows about one domain.
type Stat struct {
	Domain   Domain
	State    vcpu.State
	Used     Usage         // since Attach
	Leases   uint64        // times that the gate was opened
	WaitMean time.Duration // from arrival at a closed gate to its opening; running mean over 8
}
