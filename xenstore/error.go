package xenstore

import (
	"errors"
	"fmt"
	"slices"
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
// have: nodes, bytes in a node, watches, transactions (E2BIG, ENOSPC, EDQUOT).
var ErrQuota = errors.New("a XenStore quota is used up")

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

// Is finds ErrQuota.
func (e *Error) Is(target error) bool {
	quota := []syscall.Errno{syscall.E2BIG, syscall.ENOSPC, syscall.EDQUOT}
	var errno syscall.Errno
	return target == ErrQuota && errors.As(e.Err, &errno) && slices.Contains(quota, errno)
}

// invalid is an argument that is never sent.
func invalid(op wire.Type, path string, why error) error {
	return &Error{op, path, fmt.Errorf("%w: %w", syscall.EINVAL, why)}
}
