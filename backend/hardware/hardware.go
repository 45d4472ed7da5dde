// Package hardware is the contract between the daemon and the implementation of an accelerator: the daemon executes no
// work on the accelerator but measures domains' engine time, reclaims the resources of dead workers, and passes files
// to workers.
//
// Callers: backend and backend/sched call the methods; cmd/pegasusd implements them.
//
// Trust boundary: implementations share pages with workers, and check every value that a worker can write.
package hardware

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"time"

	"pegasus/configs"
)

// Accelerator is the daemon's handle of an accelerator. The daemon executes no work on it; its workers do.
type Accelerator interface {
	Profile() Profile
	// MemoryUsed returns the bytes of its memory in use, and MemoryReserved the bytes that all workers hold: more, if
	// some of them are evicted.
	MemoryUsed() uint64
	MemoryReserved() uint64
	// BusyTime returns for how long its engines were held in total, in nanoseconds, including by removed domains.
	BusyTime() int64
	// Account returns the account of a domain, and opens one if there is none.
	Account(domain string) (Account, error)
	// OpenAccount returns the account of a domain, or nil if none is open. The domain may be without processes.
	OpenAccount(domain string) Account
	// KeepAccounts closes all accounts except those of these domains. The other domains have no processes.
	KeepAccounts(domains []string)
	// SetCommons sets how many bytes of its memory a domain uses beside its workers'.
	SetCommons(domain string, bytes uint64)
	// KeepCommons clears that number for all domains except these.
	KeepCommons(domains []string)
	// Files returns the files for the workers of a domain with an account; the files common to all workers come first.
	// The Accelerator keeps ownership.
	Files(domain string) []*os.File
	// Reap frees the engines and memory of a dead worker of a domain, and charges the domain for the time for which it
	// held engines until now.
	Reap(domain string, pid int)
	// Serve assigns engines to one domain after another, until ctx ends.
	Serve(ctx context.Context)
	// Mend repairs damage by hostile workers, as far as it can be detected, and returns the domains with damaged pages.
	// One goroutine calls it, several times a second.
	Mend() (domains []string)
	Close() error
}

// Account measures the engine time of a domain on an accelerator: how long its workers, including dead ones, held each
// engine. It outlives workers and daemon, until Close.
type Account interface {
	// Opened returns a value that distinguishes the account from other accounts of the domain.
	Opened() int64
	// Total returns the time since the account was opened.
	Total() EngineTime
	// Charge returns the time that no earlier call returned, to this daemon or a previous one. No engine was held for
	// longer than burst without being charged. Calls must not be concurrent.
	Charge(burst time.Duration) EngineTime
	// Charged returns the time that Charge has returned so far, including to previous daemons.
	Charged() EngineTime
	// Turn sets for which engines it is the domain's turn, and for how long a kernel may compute; 0: without a limit.
	Turn(compute, copies bool, kernel time.Duration)
	// Close ends the account of a domain without processes. Its time stays in the Accelerator's BusyTime.
	Close()
}

// EngineTime gives for how long engines were held, in nanoseconds, by engine. Fills and copies inside the device hold
// the engine for kernels.
type EngineTime struct {
	Compute int64 `json:"compute"`
	CopyIn  int64 `json:"copy_in"`
	CopyOut int64 `json:"copy_out"`
}

// UnmarshalJSON also reads the array of earlier releases: kernels, copies in and out, and copies inside the device.
func (t *EngineTime) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte("[")) {
		var by [4]int64
		err := json.Unmarshal(data, &by)
		*t = EngineTime{by[0] + by[3], by[1], by[2]}
		return err
	}
	type plain EngineTime
	return json.Unmarshal(data, (*plain)(t))
}

func (t *EngineTime) Add(o EngineTime, sign int64) {
	t.Compute += sign * o.Compute
	t.CopyIn += sign * o.CopyIn
	t.CopyOut += sign * o.CopyOut
}

func (t EngineTime) Copies() int64 { return t.CopyIn + t.CopyOut }
func (t EngineTime) Sum() int64    { return t.Compute + t.Copies() }

// Profile holds the constant properties of an accelerator.
type Profile struct {
	Device string // its name, as shown to programs
	UUID   string // as programs see it; accelerators of the same name on other hosts may have the same if they are software
	Memory uint64
	Swap   uint64 // by how much workers' memory may exceed Memory
	// Promisable bounds the memory guaranteed to all domains together.
	Promisable uint64
	Compute    uint64        // cores times clock, in the same unit for all accelerators
	Bandwidth  uint64        // to and from the host; 0 if unknown
	Change     time.Duration // measured cost of a context switch; 0 if unknown
	Context    uint64        // measured bytes of Memory that a context occupies itself; 0 if unknown
	Stops      bool          // work is preempted at the end of its domain's turn, and resumes in the next
}

// Maker opens the hardware of one [[accelerator]] table; files are those of an earlier instance that workers still use,
// or none. dir is the directory for files that outlive daemon and workers; "": none.
type Maker func(c configs.Accelerator, dir string, files []*os.File) (Accelerator, error)
