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
	// Balance returns BusyTime and the part of it that was charged to accounts, closed ones included, as they were at
	// one moment. A difference is time that was lost or charged twice.
	Balance() (held, charged int64)
	// Account returns the account of a domain's engine time, which it opens if there is none.
	Account(domain string) (Account, error)
	// OpenAccount returns the account of a domain, or nil if none is open.
	OpenAccount(domain string) Account
	// KeepAccounts closes the accounts of all but these domains.
	KeepAccounts(domains []string)
	// SetCommons says how many bytes of it a domain has of its own, beside what its workers
	// have.
	SetCommons(domain string, bytes uint64)
	// KeepCommons forgets what all but these domains have of their own.
	KeepCommons(domains []string)
	// Files are handed to every worker. They stay the Hardware's.
	Files() []*os.File
	// Reap frees what a dead worker held. The time for which it held engines until now is charged to its domain's account.
	Reap(pid int)
	// Mend makes good what a hostile worker has damaged for the others, as far as that can be told, and returns how many
	// times it did. One goroutine calls it, several times a second.
	Mend() int
	Close() error
}

// Account is the engine time of a domain on an accelerator: how long its workers held each engine, those that died with it
// included. It outlives workers and daemon, up to Close.
type Account interface {
	// Opened tells the account from all others of the accelerator.
	Opened() int64
	// Total returns the time since the account was opened.
	Total() EngineTime
	// Charge returns the time that it has not returned before, to this daemon or one before it. It is for the scheduler loop.
	Charge() EngineTime
	// Close ends the account. What it has then is still in the Hardware's Balance.
	Close()
}

// EngineTime is for how long engines were held, in nanoseconds, by engine. Fills and copies inside the device hold the
// one for kernels.
type EngineTime struct {
	Compute int64 `json:"compute"`
	CopyIn  int64 `json:"copy_in"`
	CopyOut int64 `json:"copy_out"`
}

func (t *EngineTime) add(o EngineTime, sign int64) {
	t.Compute += sign * o.Compute
	t.CopyIn += sign * o.CopyIn
	t.CopyOut += sign * o.CopyOut
}

func (t EngineTime) copies() int64 { return t.CopyIn + t.CopyOut }
func (t EngineTime) sum() int64    { return t.Compute + t.copies() }

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
