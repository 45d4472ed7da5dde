// Package gate decides, without a system call when it is open, whether a worker
// may submit work to an accelerator now, and carries what came and ended back to
// the scheduler. For how long it held engines is the accelerator's to say.
//
// Who calls it: the daemon owns one Page per aVCPU (a domain on an accelerator)
// and grants and revokes leases on it; every worker of that domain is a Member
// of the Page through a slot of its own. Page and Bell are memfds that both
// sides map, so they outlive the daemon, and a new daemon finds everything in
// place.
//
// Whom it trusts: workers are the host's own processes, but they execute
// hostile input. A worker that went bad can harm its own domain's Page only. The
// daemon believes nothing on it that could harm it: indices come from itself and
// counts are taken as differences that cannot be negative.
//
// What is on a Page, all little-endian (the structs header and slot are the
// layout, and a test holds their offsets):
//
//	header, 28672 bytes, a line of 64 bytes each for
//	  0x000 what it is: magic, version, number of slots
//	  0x040 written by the daemon only: generation (futex word, one more at every
//	        change), alive until, in-flight limit, whether notes are wanted
//	  0x080 what was used of each class since its lease ended: overrun
//	  0x0c0 memory: lock, and the quotas of device and host memory
//	  0x100 waiting: released (futex word), limit waiters, drain watch
//	  0x140 three leases: for all classes, for compute, for copies; each has its
//	        kind and deadline, written by the daemon only, and what is left of its
//	        budget and requests, taken by workers
//	  then the table of device segments, what the workers may still write to the
//	  host's log, and who begins or ends to hold a segment
//	256 slots of 3072 bytes, one per worker, each written by its worker alone
//	while that lives:
//	  who, what is in flight and pending, the kind and size of what waits, time used
//	  per class, calls, memory, how long requests waited (64 buckets, each twice as wide as the last)
//	256 reels of 16448 bytes, on which each worker notes when it executed what, with a kernel's
//	  name, while the daemon asks for it; the oldest notes go first
//
// A lease says until when the gate is open for its classes, and optionally for how
// much predicted time or how many requests. When these have been used, the bell
// rings. Workers enforce all of it
// from their own clock. When the daemon has not been heard of since aliveUntil,
// gates count as open; the in-flight limit and the quotas still hold.
//
// Work in flight is bounded per class and aVCPU by its predicted time, since
// accelerators do not preempt; one request is always allowed. The bound is looked
// at, not locked: workers that submit at the same instant may exceed it by one
// request each. Nor can it hold for everything: what is in flight may be waiting
// for a callback of the guest, or for a copy that comes later in the ring, so
// requests beyond the limit are let in when nothing ends. Lest a domain pile up
// work that way, which runs on when its gate is closed, devices that can ask
// again before they execute (Member.AwaitTurn): after a gate has closed, no more
// is begun once as much was used as may be in flight.
package gate

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
)

// Class is a set of engines that a lease opens together.
type Class uint8

const (
	Compute Class = iota
	Copy
	NumClasses
)

// ClassOf is the gate's class for an engine's.
func ClassOf(c accel.Class) Class {
	if c == accel.CopyIn || c == accel.CopyOut {
		return Copy
	}
	return Compute // fills and copies inside the device hold the engine for kernels
}

// Classes is a set of Class.
type Classes uint32

const (
	ComputeOnly Classes = 1 << Compute
	CopyOnly    Classes = 1 << Copy
	AllClasses          = ComputeOnly | CopyOnly
)

// Has says whether the set holds a class.
func (s Classes) Has(c Class) bool { return s>>c&1 != 0 }

// Forever as a deadline never comes.
const Forever = int64(1<<63 - 1)

// Slots bounds the workers of one aVCPU.
const Slots = 256

// Terms are what a lease allows.
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
	// ErrPage is a file that is not a page of this version.
	ErrPage = errors.New("gate: not a page of this version")
	// ErrFull is a Page or Bell without a free slot.
	ErrFull = errors.New("gate: no free slot")
	// ErrQuota is a reservation beyond a quota.
	ErrQuota = errors.New("gate: over quota")
	// ErrStopped is a wait at the gate that was called off.
	ErrStopped = errors.New("gate: wait called off")
)

// The clocks of Go and of the accelerators are the same one; this is where Go's
// starts. Reading it through time.Since needs no system call.
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

// Now is CLOCK_MONOTONIC in nanoseconds, to within the microsecond in which the
// process started.
func Now() int64 { return clockBase + int64(time.Since(clockStart)) }
