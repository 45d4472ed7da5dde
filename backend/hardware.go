package backend

import (
	"os"
	"time"

	"pegasus/configs"
)

// Hardware is an accelerator as the daemon holds it. The daemon executes
// nothing on it; its workers do.
type Hardware interface {
	Profile() Profile
	// MemoryUsed is how many bytes of its memory are in use, MemoryReserved how many all
	// workers hold: more, if some of what they hold is elsewhere.
	MemoryUsed() uint64
	MemoryReserved() uint64
	// BusyTime is how long its engines were held in total, in nanoseconds.
	BusyTime() int64
	// SetCommons says how many bytes of it a domain has of its own, beside what its workers
	// have.
	SetCommons(domain string, bytes uint64)
	// KeepCommons forgets what all but these domains have of their own.
	KeepCommons(domains []string)
	// Files are handed to every worker. They stay the Hardware's.
	Files() []*os.File
	// Reap frees what a dead worker held.
	Reap(pid int)
	Close() error
}

// Profile is what doesn't change about an accelerator.
type Profile struct {
	Device string // its name, as programs see it
	Memory uint64
	Swap   uint64 // how much more than Memory workers may hold
	// Promisable is how much of Memory domains can be guaranteed together.
	Promisable uint64
	Compute    uint64        // cores times clock, in units that are the same for all
	Bandwidth  uint64        // to and from the host; 0 if unknown
	Change     time.Duration // of contexts: what one costs, as was measured; 0 if unknown
	Context    uint64        // bytes of Memory that one takes for itself, as was measured; 0 if unknown
}

// Maker makes the hardware of one [[accelerator]] table; files are those of an
// earlier one that workers still use, or none.
type Maker func(c configs.Accelerator, files []*os.File) (Hardware, error)
