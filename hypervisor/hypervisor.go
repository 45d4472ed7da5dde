// Package hypervisor says how guests reach the daemon: where a domain's guest
// processes knock, who the host says they are, and how they are answered.
//
// The backend calls it and knows no adapter. Adapters fulfil it: local for
// processes of this host. What a guest says about itself is not believed; all
// of a Newcomer but Features comes from the host.
package hypervisor

import (
	"context"
	"io/fs"
	"os"

	"pegasus/callbuf"
)

// Domain is what an adapter needs to know of a domain to let its guests in.
type Domain struct {
	Name         string
	Owner, Group string // of its door; empty: the daemon's own
	Mode         fs.FileMode
}

// Adapter opens doors.
type Adapter interface {
	// Open lets guests of a domain knock until the Door is closed. Every guest
	// process that does is given to serve, in a goroutine of its own; when ctx
	// ends, nobody waits for an answer any more. Who knocks and is no guest is
	// answered here; away is told why.
	Open(ctx context.Context, d Domain, serve func(context.Context, Newcomer), away func(error)) (Door, error)
	// Sweep removes addresses that an earlier daemon left, of domains for which keep reports false. It
	// returns the errors of all addresses that remain.
	Sweep(keep func(domain string) bool) error
}

// Door is where a domain's guests knock.
type Door interface {
	// Address is what a guest is told, such as a path.
	Address() string
	// Guard changes by which owner, group and mode processes are let in from now on. Processes that are in stay.
	// After an error the earlier ones hold.
	Guard(d Domain) error
	// Close lets no process in any more, cancels the processes that wait for an answer, and removes the
	// address. Afterwards the same domain may be opened again.
	Close() error
	// Leave is Close for a daemon that ends before the domain: the address stays, and a mount of it reaches
	// the door that the next daemon opens.
	Leave() error
	// Wait returns, after Close or Leave, when serve has returned for all.
	Wait()
}

// Newcomer is one guest process that waits for an answer.
type Newcomer interface {
	// PID, and a pidfd of the same process that is the caller's to close.
	// Zero and nil for a guest that is no process of this host.
	PID() int
	Process() *os.File
	Features() uint64
	// Admit answers with the terms, the segment and the worker's socket.
	Admit(w callbuf.Welcome, segment, worker *os.File) error
	// Refuse answers with a CUresult and a reason for people.
	Refuse(result int32, why string) error
}
