package agent

import (
	"errors"
	"os"

	"pegasus/callbuf"
	"pegasus/callbuf/bell"
	"pegasus/callbuf/region"
)

// Machine is what kind of machine the agent is in.
type Machine interface {
	// Find finds the memory that is shared with the host. Nothing else is touched. What the
	// next agent needs of it besides what lies in it can be left on the shelf.
	Find(*Shelf) (Ground, error)
	// OpenBell opens what the hub rings, and by which it is rung.
	OpenBell() (bell.Conn, error)
}

// Ground is the memory that a machine shares with its host, of which processes get pieces.
type Ground interface {
	// Name and Bytes are for people.
	Name() string
	Bytes() uint64
	// Shared says whether who has one piece can get at all of it.
	Shared() bool

	// Begin makes all of it free, as soon as the host uses nothing of it any more, and makes and
	// maps a control area. Announce tells the host of that, in which a session begins.
	Begin() (control []byte, err error)
	Announce(boot uint64) error
	// Resume leaves to an agent's processes what one before has given them, and maps the
	// control area that it made, if the host was told of that one last.
	Resume(Record) (control []byte, err error)

	// Create makes a piece of zeros, and Remove ends it, which nobody uses any more.
	Create(name string, bytes uint64) (*Piece, error)
	Remove(name string) error
	// NoRoom is what the hub is told of a process for which there can be no piece.
	NoRoom() region.Message
	// MostArena is the largest arena that a process may have; 0: the host knows.
	MostArena() uint64

	// Gone is why it is no more, nil while it is there: it was unplugged, or the host knows nothing of it any more. Its
	// memory may still be mapped then: some kernels take it away, so that whoever touches it faults,
	// and others leave what is at its addresses now.
	Gone() error
	// Leave is called when the agent ends and the next may go on. Close ends what the agent has of
	// it, and nothing that a process has.
	Leave() error
	Close()
}

// Piece is what a process gets of the ground.
type Piece struct {
	*os.File
	Part  *callbuf.Extent // of the file, which has to be told to the process and written down; nil: all of it
	Where region.Message  // by which the hub is told where it is
	// Settled, if it isn't nil, is to be called when the hub needs nothing any more to find it.
	Settled func()
}

// Close closes the file. The piece stays.
func (p *Piece) Close() error {
	if p.Settled != nil {
		p.Settled()
	}
	return p.File.Close()
}

// Obstacle is an error of Create's that the process is told as it is. Of any other the hub says that there is no room, and what
// that is set by.
type Obstacle struct{ Err error }

func (o *Obstacle) Error() string { return o.Err.Error() }

// Unwrap is what it is made of.
func (o *Obstacle) Unwrap() error { return o.Err }

// ErrUnplugged is memory that was taken out of the machine.
var ErrUnplugged = errors.New("the region was unplugged")

// ErrNone is when a machine has nothing that could be shared memory.
var ErrNone = errors.New("this machine has no region: its host attaches it (pegasus attach)")
