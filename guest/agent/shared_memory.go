package agent

import (
	"errors"
	"os"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
)

// Machine is the kind of virtual machine in which the agent runs.
type Machine interface {
	// Find opens the memory that is shared with the host, and touches no other. State for the next agent, besides the
	// memory's own contents, can be stored in the FDStore.
	Find(*FDStore) (SharedMemory, error)
	// OpenBell opens the doorbell in both directions between agent and hub.
	OpenBell() (bell.Conn, error)
}

// SharedMemory is the memory that a machine shares with its host; processes get allocations in it.
type SharedMemory interface {
	// Name and Bytes describe the memory in messages.
	Name() string
	Bytes() uint64
	// Shared reports whether a process with one allocation can access all of the memory.
	Shared() bool

	// Begin frees all allocations once the host has stopped using them, and creates and maps a control area. Announce
	// publishes the control area to the host, for the session boot.
	Begin() (control []byte, err error)
	Announce(boot uint64) error
	// Resume keeps the allocations of the previous agent's processes and maps its control area, provided that this is
	// the one published last.
	Resume(Record) (control []byte, err error)

	// Create allocates zeroed memory, and Remove frees it when no process uses it any more.
	Create(name string, bytes uint64) (*Allocation, error)
	Remove(name string) error
	// NoRoom returns the message to the hub that a process's allocation has failed.
	NoRoom() region.Message
	// MostArena returns the size of the largest arena of a process; 0: the host decides.
	MostArena() uint64

	// Gone returns the reason why the memory is no longer usable, nil while it is: it was unplugged, or the host has
	// lost its state. It may still be mapped then; some kernels remove the mapping, so that accesses fault, others
	// leave the memory that is at its addresses now.
	Gone() error
	// Leave is called when the agent ends and another one may follow. Close releases the agent's resources, and none of
	// a process.
	Leave() error
	Close()
}

// Allocation is a process's part of the SharedMemory.
type Allocation struct {
	*os.File
	Part  *callbuf.Extent // part of the file, to be sent to the process and recorded; nil: the whole file
	Where region.Message  // the message that gives its location to the hub
	// Settled, unless it is nil, has to be called once the hub has found the allocation.
	Settled func()
}

// Close closes the file. The allocation stays.
func (p *Allocation) Close() error {
	if p.Settled != nil {
		p.Settled()
	}
	return p.File.Close()
}

// Obstacle is an error of Create of which the process receives the text. For any other error the hub reports that
// there is no room, and the setting that limits it.
type Obstacle struct{ Err error }

func (o *Obstacle) Error() string { return o.Err.Error() }

// Unwrap returns the wrapped error.
func (o *Obstacle) Unwrap() error { return o.Err }

// ErrUnplugged reports that the memory was removed from the machine.
var ErrUnplugged = errors.New("the region was unplugged")

// ErrNone reports that a machine has no device that could be shared memory.
var ErrNone = errors.New("this machine has no region: its host attaches it (pegasus attach)")
