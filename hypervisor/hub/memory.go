package hub

import (
	"context"
	"errors"
	"os"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	wire "pegasus/callbuf/region"
)

// Memory is the memory that a machine shares with its hub. The hub's goroutine calls its methods; any goroutine may
// call NoRoom, MostArena and the functions that Port returns. The memory's content may change at any time while the
// machine runs.
type Memory interface {
	// Take takes the machine's current control area, with nothing lent; nil: it has none. Memory taken and lent
	// before is not used any more.
	Take() []byte
	// Same reports whether the machine still has the control area that was taken.
	Same() bool
	// Lend returns a process's segment from the machine's answer to wire.Need. It never returns a segment that
	// overlaps a lent one. ErrNoRoom: the machine has no memory for it; a *HostError: the host can't map it; any
	// other error is of an answer that no honest agent gives.
	Lend(to uint32, l callbuf.Layout, answer wire.Message) (Segment, error)
	// TakeBack ends the loan to a process, if there is one.
	TakeBack(to uint32)
	// NoRoom returns the error for a process when there is no memory for its segment.
	NoRoom(bytes uint64) error
	// MostArena returns the largest arena that a process may have; 0: only the domain's limit applies.
	MostArena() uint64

	// Rouses reports whether a futex in a segment wakes across the host's processes.
	Rouses() bool
	// Port returns the function that opens the port between hub and agent. reopen is as for bell.Listen.
	Port() (open func() (bell.Conn, error), reopen bool)
	// Watch calls changed whenever the result of Take, Same or Over may have changed.
	Watch(ctx context.Context, changed func()) error
	// Over returns why the machine is not to be served any more; "": it is.
	Over() string
	// Close releases all of the memory.
	Close()
}

// Segment is memory that a machine lends for a process. It is valid until it is taken back.
type Segment struct {
	File   *os.File        // mapped by the worker
	Parts  callbuf.Extents // of it
	Header []byte          // its first page
}

// ErrNoRoom reports that a machine has no memory for another segment.
var ErrNoRoom = errors.New("the machine has no memory for a segment")

// HostError reports that the host can't map the memory that a machine lends, which may be valid: the host's own
// memory or descriptors are used up. Only that process isn't served.
type HostError struct{ Err error }

func (e *HostError) Error() string { return "the host can't map it: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *HostError) Unwrap() error { return e.Err }
