package xenstore

import (
	"errors"
	"fmt"
	"syscall"

	"pegasus/xenstore/wire"
)

// Errors of calls that the server hasn't answered.
var (
	// ErrLost reports a connection that ended without Close. The request may have been carried out.
	ErrLost = errors.New("the connection to XenStore is lost")
	// ErrClosed reports a closed client.
	ErrClosed = errors.New("the XenStore client is closed")
	// ErrEnded reports a transaction that was committed or aborted, or a watch that was closed.
	ErrEnded = errors.New("it has ended already")
)

// ErrQuota is what errors.Is matches in an error of a domain that has reached a limit of nodes, bytes in a node,
// transactions (ENOSPC, EDQUOT) or watches (E2BIG of WATCH).
var ErrQuota = errors.New("a XenStore quota is used up")

// ErrTooLong reports a request that doesn't fit into a packet and isn't sent. E2BIG is joined to it.
var ErrTooLong = errors.New("it is too long for a packet")

// tooLong returns the error of a request of so many bytes, where most fit into a packet.
func tooLong(bytes, most int) error {
	return fmt.Errorf("%w: %d bytes, where %d is the most (%w)", ErrTooLong, bytes, most, syscall.E2BIG)
}

// errUnsent is joined to ErrLost when the request wasn't sent.
var errUnsent = errors.New("it wasn't sent")

// Error is the failure of a request: the server's answer, or an invalid argument that the client found before
// sending.
type Error struct {
	Op   wire.Type
	Path string // or another subject of the request; may be empty
	Err  error  // a syscall.Errno as a rule
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("xenstore: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("xenstore: %s %s: %v", e.Op, e.Path, e.Err)
}

// Unwrap returns the error without the request.
func (e *Error) Unwrap() error { return e.Err }

// Is matches ErrQuota. E2BIG is a quota's only in the answer to WATCH; else something doesn't fit into a packet.
func (e *Error) Is(target error) bool {
	var errno syscall.Errno
	if target != ErrQuota || errors.Is(e.Err, ErrTooLong) || !errors.As(e.Err, &errno) {
		return false
	}
	return errno == syscall.ENOSPC || errno == syscall.EDQUOT || errno == syscall.E2BIG && e.Op == wire.Watch
}

// invalid returns the error of an argument that is never sent.
func invalid(op wire.Type, path string, why error) error {
	return &Error{op, path, fmt.Errorf("%w: %w", syscall.EINVAL, why)}
}
