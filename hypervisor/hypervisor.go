// Package hypervisor defines how guests reach the daemon: the endpoint to which a domain's guest processes connect,
// their identity as the host reports it, and the answer they receive.
//
// Callers: the backend, which is independent of the adapters. Adapters implement the interfaces: local for processes
// of this host.
//
// Trust boundary: a guest's own statements are not trusted. All of a Connection except Features comes from the host.
package hypervisor

import (
	"context"
	"io/fs"
	"os"

	"pegasus/callbuf"
)

// Domain is the description of a domain with which an adapter opens its endpoint.
type Domain struct {
	Name         string
	Owner, Group string // of its endpoint; empty: the daemon's own
	Mode         fs.FileMode
}

// Adapter opens the endpoints of domains for one kind of guest.
type Adapter interface {
	// Open accepts connections of a domain's guests until the Endpoint is closed. It calls serve for each connecting
	// guest process in a goroutine of its own; when ctx ends, no process waits for an answer any more. Open itself
	// rejects connections from processes that are not guests and passes the reason to away.
	Open(ctx context.Context, d Domain, serve func(context.Context, Connection), away func(error)) (Endpoint, error)
	// Sweep removes the addresses that an earlier daemon left, of domains for which keep reports false. It returns
	// the errors of all addresses that remain.
	Sweep(keep func(domain string) bool) error
}

// Endpoint is the socket, or its equivalent, at which a domain's guests connect.
type Endpoint interface {
	// Address returns the address that the guest is configured with, such as a path.
	Address() string
	// Guard changes the owner, group and mode that control access from now on. Processes that are in stay. After an
	// error the earlier settings hold.
	Guard(d Domain) error
	// Close stops accepting processes, cancels the processes that wait for an answer, and removes the address.
	// Afterwards the same domain may be opened again.
	Close() error
	// Leave is Close for a daemon that ends before the domain: the address stays, and a mount of it reaches the
	// endpoint that the next daemon opens.
	Leave() error
	// Wait blocks, after Close or Leave, until all calls of serve have returned.
	Wait()
}

// Connection is one guest process that has connected and waits for the daemon's answer.
type Connection interface {
	// PID returns the process's ID; Process returns a pidfd of it, which the caller closes. Zero and nil for a guest
	// that is no process of this host.
	PID() int
	Process() *os.File
	Features() uint64
	// Admit answers with the terms, the segment and the worker's socket.
	Admit(w callbuf.Welcome, segment, worker *os.File) error
	// Refuse answers with a CUresult and a human-readable reason.
	Refuse(result int32, why string) error
}
