package xenstore

import (
	"errors"
	"fmt"
	"syscall"

	"pegasus/xenstore/wire"
)

// Why a call fails that the server hasn't answered.
var (
	// ErrLost is a connection that ended by itself. What was asked may have been done.
	ErrLost = errors.New("the connection to XenStore is lost")
	// ErrClosed is a client that was closed.
	ErrClosed = errors.New("the XenStore client is closed")
	// ErrEnded is a transaction that was committed or aborted, or a watch that was closed.
	ErrEnded = errors.New("it has ended already")
)

// ErrQuota is what errors.Is finds in an error of a domain that has used up what it may
// have: nodes, bytes in a node, transactions (ENOSPC, EDQUOT), watches (E2BIG of WATCH).
var ErrQuota = errors.New("a XenStore quota is used up")

// ErrTooLong is a request that no packet has room for, whoever asks, so it isn't sent. E2BIG is beside it.
var ErrTooLong = errors.New("it is too long for a packet")

// tooLong is a request of so many bytes, where most is what a packet has room for.
func tooLong(bytes, most int) error {
	return fmt.Errorf("%w: %d bytes, where %d is the most (%w)", ErrTooLong, bytes, most, syscall.E2BIG)
}

// errUnsent is beside ErrLost when the request didn't leave.
var errUnsent = errors.New("it wasn't sent")

// Error is what came of a request, when that was bad: the server's answer, or what the
// client found wrong with the arguments before it asked.
type Error struct {
	Op   wire.Type
	Path string // or what else the request is about; may be empty
	Err  error  // a syscall.Errno as a rule
}

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("xenstore: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("xenstore: %s %s: %v", e.Op, e.Path, e.Err)
}

// Unwrap is the error without what it is about.
func (e *Error) Unwrap() error { return e.Err }

// Is finds ErrQuota. E2BIG is a quota's only where servers answer it to one more than there may be; else something doesn't
// fit into a packet.
func (e *Error) Is(target error) bool {
	var errno syscall.Errno
	if target != ErrQuota || errors.Is(e.Err, ErrTooLong) || !errors.As(e.Err, &errno) {
		return false
	}
	return errno == syscall.ENOSPC || errno == syscall.EDQUOT || errno == syscall.E2BIG && e.Op == wire.Watch
}

// invalid is an argument that is never sent.
func invalid(op wire.Type, path string, why error) error {
	return &Error{op, path, fmt.Errorf("%w: %w", syscall.EINVAL, why)}
}
