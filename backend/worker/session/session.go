// Package session serves one guest process: it takes the calls from the process's segment, checks them, waits for
// admission at the gate, submits the work to an accelerator and replies.
//
//	poller       ring, lookahead, reorder: takes packets in their order, dispatches calls, replies
//	calls        one handler for each kind of object, which owns the objects: contexts, modules, streams, …
//	submitter    gate, backpressure, costs: submits the handlers' work to the device
//	core         what all of them use: the segment, the gate, the device, and the session's end
//
// A handler calls the submitter, which calls the poller only while a call must wait: the poller then reads ahead.
//
// Callers: backend/worker.
//
// Trust boundary: the session trusts the device, and nothing in the guest. It copies all input from the segment into
// private memory once, and checks and uses the copy; sizes and offsets are kept privately. A guest process's objects
// belong to its contexts and are destroyed with them.
//
// One goroutine, the poller, takes the packets in their order and calls the device; it owns all state without a lock.
// Longer work completes in callbacks of the device, on other goroutines; they reply to the guest, return the
// reservation at the gate and keep errors for later. State that both access is atomic or has a mutex above it. A call
// that waits at the gate blocks the calls behind it; only reports of finished host callbacks are processed ahead of it,
// since work in flight may depend on them.
//
// Lock order: the locks are pendingErrors.mu (of a context), event.mu and callbacks.mu. None is taken while another one
// is held, or held across a call of the device. ending.once runs the session's end, and with it accel.Aborter.Abort,
// which therefore must not wait for a goroutine that ends the session.
//
// A segment is dropped if its guest violates the protocol: all its later calls return CUDA_ERROR_LAUNCH_FAILED. After a
// kernel has exceeded its timeout they return CUDA_ERROR_LAUNCH_TIMEOUT, and after a bug of the worker
// CUDA_ERROR_UNKNOWN.
package session

import (
	"log/slog"
	"os"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/backend/worker/handles"
	"pegasus/callbuf"
	"pegasus/cuda"
)

const (
	// parkSlice bounds the poller's sleeps, in case a wake-up is lost.
	parkSlice = 500 * time.Millisecond
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

// Session serves one guest process. It consists of the poller, which takes calls from the ring, the calls' handlers,
// each with the objects that it owns, and the submitter, through which they submit work. It has no state of its own.
type Session struct {
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

// New returns a session without a device, which can be ended but not served. spinTime is how long the poller and its
// guest's threads may poll before they sleep.
func New(h *callbuf.Host, m *gate.Member, spinTime time.Duration, log *slog.Logger) *Session {
	s := &Session{core: core{host: h, gate: m, log: log}}
	k := &s.calls
	b := base{&s.core, &s.work, &k.contexts}
	s.poller = poller{core: &s.core, work: &s.work, calls: k, spinTime: spinTime}
	s.work = submitter{core: &s.core, callbacks: &k.callbacks, poller: &s.poller}
	s.work.load.init()
	k.contexts = contexts{core: &s.core, work: &s.work, segments: &k.segments}
	k.contexts.owners = []objectOwner{&k.modules, &k.streams, &k.events, &k.textures, &k.graphs, &k.allocations, &k.callbacks}
	k.modules = modules{base: b, table: handles.New[*module]()}
	k.streams = streams{base: b, table: handles.New[*stream]()}
	k.events = events{base: b, streams: &k.streams, table: handles.New[*event]()}
	k.allocations = allocations{base: b, owners: make(map[uint64]*guestContext)}
	k.textures = textures{base: b, modules: &k.modules, arrays: handles.New[*array](), table: handles.New[*texture]()}
	k.segments = segments{base: b, allocations: &k.allocations, attached: make(map[uint64]attachment)}
	k.mappings = mappings{base: b, segments: &k.segments, table: handles.New[*memory](), ranges: make(map[uint64]struct{})}
	k.callbacks.base, k.callbacks.streams, k.callbacks.queued = b, &k.streams, make(map[uint64]*callback)
	k.graphs = graphs{
		base: b, modules: &k.modules, streams: &k.streams, events: &k.events, textures: &k.textures, callbacks: &k.callbacks,
		table: handles.New[*graph](),
	}
	k.launches = launches{base: b, modules: &k.modules, streams: &k.streams}
	k.transfers = transfers{base: b, streams: &k.streams, textures: &k.textures}
	k.deviceCalls = deviceCalls{b}
	h.TakeReports()
	h.TakeLong()
	return s
}

// Use sets the session's device. The caller calls it before Poll.
func (s *Session) Use(d accel.Device) {
	s.device = d
	s.total = d.Snapshot().TotalMem
	s.can = d.Capabilities()
	s.work.use()
	s.poller.use()
}

// ShareMemory enables the calls about device segments and exported memory, if the device can share memory. store is the
// file of the domain's device segments. The caller calls it before Poll.
func (s *Session) ShareMemory(store *os.File) { s.calls.segments.shareMemory(store) }

// Poll serves calls until the session ends. It locks the calling goroutine to its thread.
func (s *Session) Poll() { s.poller.poll() }

// End makes every further call of the guest process return r and ends Poll. why is empty for an ordinary end. Any
// goroutine may call it.
func (s *Session) End(r cuda.Result, why string) { s.end(r, why) }

// Abandon ends the session as End does, and Close doesn't wait for its work: some of it runs until the process ends.
func (s *Session) Abandon(r cuda.Result, why string) {
	s.ending.abandoned.Store(true)
	s.end(r, why)
}

// Why returns the reason of the end, after Poll has returned.
func (s *Session) Why() string { return s.ending.why }

// Close destroys the guest's objects after Poll has returned. It waits for a bounded time and reports whether all
// were destroyed.
func (s *Session) Close() bool {
	if s.ending.abandoned.Load() {
		s.calls.segments.storeAll()
		return false
	}
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
