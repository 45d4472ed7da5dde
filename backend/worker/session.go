// Package worker serves one guest process: it takes the calls from the process's segment, checks them, waits for
// admission at the gate, submits the work to an accelerator and replies. A worker is a process of its own, started by
// the daemon and independent of it afterwards, so that a guest process can crash its own worker only, as on a machine
// of its own.
//
// Callers: cmd/pegasusd, with the function that opens a device. The daemon communicates with the worker over one socket
// (job.go).
//
// Trust boundary: the worker trusts the daemon and the device, and nothing in the guest. It copies all input from the
// segment into private memory once, and checks and uses the copy; sizes and offsets are kept privately. A guest
// process's objects belong to its contexts and are destroyed with them.
//
// One goroutine, the poller, takes the packets in their order and calls the device. Longer work completes in callbacks
// of the device, on other goroutines; they reply to the guest, return the reservation at the gate and keep errors for
// later. State that both access is atomic or has a mutex above it, and no lock is held across a call of the device. A
// call that waits at the gate blocks the calls behind it; only reports of finished host callbacks are processed ahead
// of it, since work in flight may depend on them.
//
// A segment whose guest violates the protocol is dropped: all its later calls return CUDA_ERROR_LAUNCH_FAILED. After a
// kernel has exceeded its timeout they return CUDA_ERROR_LAUNCH_TIMEOUT, and after a bug of the worker
// CUDA_ERROR_UNKNOWN.
package worker

import (
	"log/slog"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/callbuf"
)

// Spinner is an optional interface of a device: it counts, for the whole host, the seats of threads that poll instead
// of sleeping.
type Spinner interface {
	// TrySpin takes a seat and reports whether there was one; EndSpin returns it.
	TrySpin() bool
	EndSpin()
	// Saturated reports whether every core is computing, so that no thread should poll.
	Saturated() bool
}

// Versioned is an optional interface of a device: it reports the CUDA version that the device supports, if that is
// lower than the worker's.
type Versioned interface {
	// Version is 1000*major + 10*minor.
	Version() uint32
}

// Habitual is an optional interface of a device: it reports which of package cuda's habits the device has.
type Habitual interface {
	Habits() int32
}

// Sharing is an optional interface of a device: it enforces domains' shares of its memory.
type Sharing interface {
	// SetShare changes the share of the worker's domain. Any goroutine may call it.
	SetShare(Share)
}

const (
	// parkSlice bounds the poller's sleeps, in case a wake-up is lost.
	parkSlice = 500 * time.Millisecond
	// maxObjects bounds the live objects of each kind in a guest process.
	maxObjects = 65536
	// maxImages bounds the total bytes of the images of a guest process's modules. The accelerator's compiled form is
	// some twenty times as large.
	maxImages = 128 << 20
	// maxMachineCode is that bound for a device that takes machine code, which needs no compilation: GPU libraries
	// contain much of it.
	maxMachineCode = 4 << 30
	// endGrace is how long the destruction of an ended guest process's contexts may take.
	endGrace = 700 * time.Millisecond
	// keptGrace is how long it may take after shared segments were stored.
	keptGrace = 200 * time.Millisecond
)

// session serves one guest process. It consists of the poller, which takes calls from the ring, the calls' handlers, each
// with the objects that it owns, and the submitter, through which they submit work. It has no state of its own.
type session struct {
	core
	poller poller
	calls  calls
	work   submitter
}

// calls handles the guest's calls: it implements cuda.Handler by its parts, each of which owns one kind of object.
type calls struct {
	contexts
	modules
	streams
	events
	allocations
	textures
	segments
	mappings
	graphs
	callbacks
	launches
	transfers
	deviceCalls
}

// newSession returns a session without a device, which can be ended but not served.
func newSession(h *callbuf.Host, m *gate.Member, log *slog.Logger) *session {
	s := &session{core: core{host: h, gate: m, log: log}}
	k := &s.calls
	b := base{&s.core, &s.work, &k.contexts}
	s.poller = poller{core: &s.core, work: &s.work, calls: k}
	s.work = submitter{core: &s.core, callbacks: &k.callbacks, poller: &s.poller}
	s.work.load.init()
	k.contexts = contexts{core: &s.core, work: &s.work, segments: &k.segments}
	k.contexts.owners = []objectOwner{&k.modules, &k.streams, &k.events, &k.textures, &k.graphs, &k.allocations, &k.callbacks}
	k.modules = modules{base: b, table: newTable[*module]()}
	k.streams = streams{base: b, table: newTable[*stream]()}
	k.events = events{base: b, streams: &k.streams, table: newTable[*event]()}
	k.allocations = allocations{base: b, owners: make(map[uint64]*guestContext)}
	k.textures = textures{base: b, modules: &k.modules, arrays: newTable[*array](), table: newTable[*texture]()}
	k.segments = segments{base: b, allocations: &k.allocations, attached: make(map[uint64]attachment)}
	k.mappings = mappings{base: b, segments: &k.segments, table: newTable[*memory](), ranges: make(map[uint64]struct{})}
	k.callbacks.base, k.callbacks.streams, k.callbacks.queued = b, &k.streams, make(map[uint64]*callback)
	k.graphs = graphs{
		base: b, modules: &k.modules, streams: &k.streams, events: &k.events, textures: &k.textures, callbacks: &k.callbacks,
		table: newTable[*graph](),
	}
	k.launches = launches{base: b, modules: &k.modules, streams: &k.streams}
	k.transfers = transfers{base: b, streams: &k.streams, textures: &k.textures}
	k.deviceCalls = deviceCalls{b}
	h.TakeReports()
	h.TakeLong()
	return s
}

// use sets the session's device. The caller calls it before poll.
func (s *session) use(d accel.Device) {
	s.device = d
	s.total = d.Snapshot().TotalMem
	s.work.use(d)
	s.poller.use(d)
}

// close destroys the guest's objects after the poller has returned. It waits for a bounded time and reports whether all
// were destroyed.
func (s *session) close() bool {
	gone := make(chan struct{})
	go func() {
		s.calls.contexts.forgetAll()
		close(gone)
	}()
	select {
	case <-gone:
		return true
	case <-time.After(endGrace):
	}
	if !s.calls.segments.storeAll() {
		return false
	}
	select {
	case <-gone: // only storing the attached segments took long
		return true
	case <-time.After(keptGrace):
		return false
	}
}
