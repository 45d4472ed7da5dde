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
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/backend/gate"
	"pegasus/callbuf"
	"pegasus/cuda"
)

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

// session is a guest process that is being served.
type session struct {
	host   *callbuf.Host
	gate   *gate.Member
	device accel.Device
	can    accel.Capabilities // of the device
	total  uint64             // the device's memory in bytes
	spin   accel.Coordinator  // nil if the device counts no seats

	// spinTime is how long the poller polls an empty ring, and a guest thread its reply slot, before it sleeps.
	spinTime time.Duration

	predictor accel.Predictor           // nil if the device predicts nothing
	queue     interface{ Queued() int } // nil if the device counts nothing
	log       *slog.Logger

	// The poller's fields.
	contexts    [callbuf.MaxContexts]*guestContext
	going       sync.WaitGroup // contexts that are being destroyed
	modules     table[*module]
	imageBytes  uint64 // of the modules
	streams     table[*stream]
	events      table[*event]
	arrays      table[*array]
	textures    table[*texture]
	memories    table[*memory]
	ranges      map[uint64]struct{} // reserved addresses
	graphs      table[*graph]
	graphBytes  uint64                   // counted against maxGraphBytes
	allocs      map[uint64]*guestContext // context of the device memory at an address
	attached    map[uint64]attachment    // device segments, by address
	commons     *commons                 // nil if the device cannot share memory
	slept       bool                     // the last call of idle slept
	ahead       callbuf.Packet           // the packet read from the ring during a wait for admission
	behind      []held                   // deferred packets, read ahead during such waits
	behindBytes int                      // in their payloads
	costs       costs
	uncounted   uint64 // served calls not yet added to the gate page

	// The work that is being submitted.
	asking struct {
		b *submission
		w accel.Work
	}
	launch  accel.Launch
	copying accel.Copy
	filling accel.Fill

	guestSpins bool
	held       bool // the held flag, visible to the guest, is set
	reply      [callbuf.MaxReplyData]byte

	flow      flow
	early     early
	callbacks callbacks
	waits     atomic.Int32 // streams that wait for a memory word
	ending    ending
}

// newSession returns a session without a device, which can be ended but not served.
func newSession(h *callbuf.Host, m *gate.Member, log *slog.Logger) *session {
	s := &session{host: h, gate: m, log: log, allocs: make(map[uint64]*guestContext), attached: make(map[uint64]attachment), ranges: make(map[uint64]struct{})}
	s.modules.init()
	s.streams.init()
	s.events.init()
	s.arrays.init()
	s.textures.init()
	s.memories.init()
	s.graphs.init()
	s.flow.init()
	s.callbacks.init()
	h.TakeReports()
	h.TakeLong()
	return s
}

// use sets the session's device. The caller calls it before poll.
func (s *session) use(d accel.Device) {
	s.device = d
	s.total = d.Snapshot().TotalMem
	s.can = d.Capabilities()
	s.spin = s.can.Coordination
	s.letGuestSpin(true)
	s.predictor = s.can.Prediction
	if c := s.can.Control; c != nil {
		s.queue = c
	}
}

// answer writes a reply. If a call's context is destroyed because the session ends, the reply has the session's result.
func (s *session) answer(c cuda.Call, r cuda.Result, data []byte) {
	if r == cuda.ErrorContextIsDestroyed && s.ending.now.Load() {
		r = s.ending.result
	}
	if err := s.host.Reply(c.ReplySlot, c.ReplyTag, int32(r), data); err != nil {
		s.log.Error("answer a call", "op", c.Op, "err", err)
	}
}
