// Package gate decides, without a system call while the gate is open, whether a worker may submit work to an
// accelerator now, and reports arrived and ended work to the scheduler. The accelerator measures how long that work
// held engines.
//
// Callers: the daemon owns one Page per aVCPU (a domain on an accelerator) and grants and revokes leases on it; every
// worker of that domain is a Member of the Page through a slot of its own. Page and Bell are memfds that both sides
// map, so they outlive the daemon, and a new daemon finds all state in place.
//
// Trust boundary: workers are the host's own processes, but they execute hostile input. A compromised worker can harm
// its own domain's Page only. The daemon uses no value on it that could harm the daemon: indices come from the daemon
// itself, and counts are taken as differences that cannot be negative.
//
// A Page's layout, all little-endian (the structs header and slot define it, and a test checks their offsets):
//
//	header, 28672 bytes, a line of 64 bytes each for
//	  0x000 identification: magic, version, number of slots
//	  0x040 written by the daemon only: generation (futex word, incremented at every
//	        change), alive until, in-flight limit, whether tracing is on
//	  0x080 time used of each class since its lease ended: overrun
//	  0x0c0 memory: lock, and the quotas of device and host memory
//	  0x100 waiting: released (futex word), limit waiters, drain watch
//	  0x140 three leases: for all classes, for compute, for copies; each has its
//	        kind and deadline, written by the daemon only, and the remaining
//	        budget and requests, which workers decrement
//	  then the table of device segments, the workers' remaining allowance for the
//	  host's log, the claims of workers that acquire or release a segment, and the
//	  slots of the workers that prepare work and of those that handle calls
//	256 slots of 3072 bytes, one per worker, each written by its worker alone
//	while that lives:
//	  pid, work in flight and pending, kind and size of the waiting request, time used
//	  per class, calls, memory, how long requests waited (64 buckets, each twice as wide as the last)
//	256 trace rings of 16448 bytes, in which each worker records when it executed which
//	  kernel or copy while the daemon has tracing on; the oldest records are overwritten
//
// A lease gives the time until which the gate is open for its classes, and optionally a limit of predicted time or of
// requests. When the limit is used up, the worker rings the doorbell. Workers enforce leases from their own clock.
// After aliveUntil without a heartbeat of the daemon, gates count as open; the in-flight limit and the quotas still
// hold.
//
// Work in flight is bounded per class and aVCPU by its predicted time, since accelerators do not preempt; one request
// is always allowed. The bound is read without a lock: workers that submit at the same instant may exceed it by one
// request each. The limit is also soft: in-flight work may depend on a guest callback or on a copy later in the ring,
// so requests beyond the limit are admitted when no request completes. To keep a domain from accumulating work that
// way, which would run on after its gate has closed, devices that can check again before they execute call
// Member.AwaitTurn: after a gate has closed, they begin no more once the domain has used as much as may be in flight.
package gate

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/vcpu"
)

// Class is the index of a vcpu.EngineClass, other than vcpu.AnyClass, in the arrays of the gate page.
type Class uint8

const (
	Compute Class = iota
	Copy
	NumClasses
)

// ClassOf returns the class that an engine belongs to.
func ClassOf(e vcpu.Engine) Class { return Class(e.Class() - vcpu.ComputeClass) }

// Classes is a set of Class.
type Classes uint32

const (
	ComputeOnly Classes = 1 << Compute
	CopyOnly    Classes = 1 << Copy
	AllClasses          = ComputeOnly | CopyOnly
)

// Has reports whether the set contains a class.
func (s Classes) Has(c Class) bool { return s>>c&1 != 0 }

// Forever is a deadline that never comes.
const Forever = int64(1<<63 - 1)

// Slots bounds the workers of one aVCPU.
const Slots = 256

// Terms are the conditions of a lease.
type Terms struct {
	Classes Classes
	// Until is when the lease ends (CLOCK_MONOTONIC ns); Forever for never.
	Until int64
	// Budget, if not 0, is how many nanoseconds of predicted accelerator time may
	// be submitted. A request may start while some of it is left.
	Budget int64
	// Requests, if not 0, is how many requests may be submitted.
	Requests int64
}

var (
	// ErrPage reports a file that is not a page of this version.
	ErrPage = errors.New("gate: not a page of this version")
	// ErrFull reports a Page or Bell without a free slot.
	ErrFull = errors.New("gate: no free slot")
	// ErrQuota reports a reservation beyond a quota.
	ErrQuota = errors.New("gate: over quota")
	// ErrStopped reports a wait at the gate that Stop ended.
	ErrStopped = errors.New("gate: wait called off")
)

// Go's clock and the accelerators' clock are the same; clockBase is where Go's starts. Reading it through time.Since
// needs no system call.
var (
	clockStart = time.Now()
	clockBase  = monotonic()
)

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the kernel has no CLOCK_MONOTONIC
	}
	return ts.Nano()
}

// Now returns CLOCK_MONOTONIC in nanoseconds, to within the microsecond in which the process started.
func Now() int64 { return clockBase + int64(time.Since(clockStart)) }
