package hub

import (
	"context"
	"errors"
	"os"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	wire "pegasus/callbuf/region"
)

// Memory is what a machine shares with its hub. The hub's goroutine calls its methods; what Port
// returns, NoRoom and MostArena any may. Nothing that it hands out is trusted to stay as it is while the machine runs.
type Memory interface {
	// Take takes the machine's control area as things are now, with nothing lent; nil: it has none. Of
	// what was taken and lent before nothing is used any more.
	Take() []byte
	// Same says whether the machine still has the control area that was taken.
	Same() bool
	// Lend takes for a process what the machine has answered to wire.Need. A segment is never one
	// in part that is lent already. ErrNoRoom: the machine has no memory for it; a *HostError: the host
	// can't take it; any other error is of an answer that no honest agent gives.
	Lend(to uint32, l callbuf.Layout, answer wire.Message) (Segment, error)
	// TakeBack ends what was lent to a process, if anything was.
	TakeBack(to uint32)
	// NoRoom is what a process is told when there is none for it.
	NoRoom(bytes uint64) error
	// MostArena is the largest arena that a process may have; 0: as large as its domain's may be.
	MostArena() uint64

	// Rouses says whether a futex in a segment wakes across the host's processes.
	Rouses() bool
	// Port opens what wakes the hub and the agent. reopen is as of bell.Listen.
	Port() (open func() (bell.Conn, error), reopen bool)
	// Watch has changed called whenever Take, Same or Over may have something else to say.
	Watch(ctx context.Context, changed func()) error
	// Over says why the machine is to be served no more; "": it is.
	Over() string
	// Close gives all back.
	Close()
}

// Segment is memory that a machine lends for a process. It is there until it is taken back.
type Segment struct {
	File   *os.File        // which the worker maps
	Parts  callbuf.Extents // of it
	Header []byte          // its first page
}

// ErrNoRoom is of a machine that has no memory for one more segment.
var ErrNoRoom = errors.New("the machine has no memory for a segment")

// HostError is why the host can't take what a machine lends, which may well be all right: the host's own memory or
// descriptors are used up. Only the process that it was for isn't served.
type HostError struct{ Err error }

func (e *HostError) Error() string { return "the host can't map it: " + e.Err.Error() }

// Unwrap is what happened.
func (e *HostError) Unwrap() error { return e.Err }
