package backend

import (
	"context"
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
	// BusyTime is how long its engines were held in total, in nanoseconds, by domains that are gone, too.
	BusyTime() int64
	// Account returns the account of a domain, which it opens if there is none.
	Account(domain string) (Account, error)
	// OpenAccount returns the account of a domain, or nil if none is open: no process of the domain need be there.
	OpenAccount(domain string) Account
	// KeepAccounts forgets the accounts of all but these domains, which no processes have.
	KeepAccounts(domains []string)
	// SetCommons says how many bytes of it a domain has of its own, beside what its workers
	// have.
	SetCommons(domain string, bytes uint64)
	// KeepCommons forgets what all but these domains have of their own.
	KeepCommons(domains []string)
	// Files are handed to the workers of a domain that has an account: those that all workers have come first. They stay the
	// Hardware's.
	Files(domain string) []*os.File
	// Reap frees the engines and memory of a dead worker of a domain. The time for which it held engines until now is charged to the domain.
	Reap(domain string, pid int)
	// Serve gives engines to one domain after another, until ctx ends.
	Serve(ctx context.Context)
	// Mend repairs damage by hostile workers, as far as it can be detected, and returns the domains in whose pages it
	// found damage. One goroutine calls it, several times a second.
	Mend() (domains []string)
	Close() error
}

// Account is the engine time of a domain on an accelerator: how long its workers held each engine, those that died with it
// included. It outlives workers and daemon, up to Close.
type Account interface {
	// Opened tells the account from others of the domain.
	Opened() int64
	// Total returns the time since the account was opened.
	Total() EngineTime
	// Charge returns the time that it has not returned before, to this daemon or one before it. No engine was held for longer
	// than burst without being charged. It is for the scheduler loop.
	Charge(burst time.Duration) EngineTime
	// Charged returns the time that Charge has returned so far, to daemons before this one, too.
	Charged() EngineTime
	// Turn says for which engines it is the domain's turn, and for how long a kernel may compute; 0: for ever.
	Turn(compute, copies bool, kernel time.Duration)
	// Close ends the account of a domain without processes. Its time is still in the Hardware's BusyTime.
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
	Stops      bool          // work stops at the end of its domain's turn, and goes on in the next
}

// Maker makes the hardware of one [[accelerator]] table; files are those of an
// earlier one that workers still use, or none. dir is where the hardware keeps files that outlive daemon and workers; "": it keeps none.
type Maker func(c configs.Accelerator, dir string, files []*os.File) (Hardware, error)
