// Package worker serves one guest process: it takes the calls out of the
// process's segment, checks them, waits for the gate, gives the work to an
// accelerator and answers. It runs as a process of its own, started by the daemon
// and independent of it afterwards, so that whatever a guest process brings down
// is what it would have brought down on a machine of its own.
//
// Who calls it: cmd/pegasusd, with the function that opens a device. The daemon
// speaks to it over one socket (job.go).
//
// Whom it trusts: the daemon, the device, and nobody in the guest. All that comes
// out of the segment is copied into private memory once, checked there and used
// from there; sizes and places are known privately. What a guest process made
// hangs on its contexts and goes with them.
//
// One goroutine, the poller, takes the packets in their order and calls the
// device. What takes time ends in callbacks of the device, on other goroutines;
// they answer the guest, return what was reserved at the gate and keep errors for
// later. What both touch is atomic or has a mutex above it, and no lock is held
// across a call of the device. A call that the gate holds back holds back those
// behind it; only reports of finished host callbacks are looked for behind it,
// since work in flight may be waiting for them.
//
// A segment whose guest breaks the protocol is dropped: its calls all return
// CUDA_ERROR_LAUNCH_FAILED from then on. After a kernel ran past its timeout that
// is CUDA_ERROR_LAUNCH_TIMEOUT, and after a bug of ours CUDA_ERROR_UNKNOWN.
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

// Spinner is what a device may offer besides accel.Device: seats for those who
// poll instead of sleeping, counted for the whole host.
type Spinner interface {
	// TrySpin asks for a seat; who got one gives it back with EndSpin.
	TrySpin() bool
	EndSpin()
	// Saturated says that every core is computing: nobody should poll.
	Saturated() bool
}

// Versioned is what a device may offer besides accel.Device: to say which CUDA it
// does, if that is less than what calls are carried out here.
type Versioned interface {
	// Version is 1000*major + 10*minor.
	Version() uint32
}

// Habitual is what a device may offer besides accel.Device: to say which of cuda's habits it has.
type Habitual interface {
	Habits() int32
}

// Sharing is what a device may offer besides accel.Device: to keep what domains
// were promised of its memory.
type Sharing interface {
	// SetShare changes what the worker's domain was promised. Any goroutine may call it.
	SetShare(Share)
}

const (
	// parkSlice bounds the poller's sleeps, against lost wake-ups.
	parkSlice = 500 * time.Millisecond
	// maxObjects bounds the live objects of each kind in a guest process.
	maxObjects = 65536
	// maxImages bounds the images of all modules of a guest process together. What
	// the accelerator makes of them is some twenty times as large.
	maxImages = 128 << 20
	// maxMachineCode is that where they are machine code, which is taken as it is: libraries for GPUs have a lot of it.
	maxMachineCode = 4 << 30
	// endGrace is how long the contexts of a guest process that ended may take to go.
	endGrace = 700 * time.Millisecond
	// keptGrace is that once what they share with others was stored.
	keptGrace = 200 * time.Millisecond
)

// session is a guest process that is being served.
type session struct {
	host   *callbuf.Host
	gate   *gate.Member
	device accel.Device
	total  uint64  // the device's memory
	spin   Spinner // nil if the device counts no seats

	// spinTime is how long the poller looks at an empty ring, and a guest thread
	// at its reply slot, before it sleeps.
	spinTime time.Duration

	predictor accel.Predictor // nil if it predicts nothing
	queue     accel.Queue     // nil if it counts nothing
	log       *slog.Logger

	// Of the poller.
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
	graphBytes  uint64                   // that they count as
	allocs      map[uint64]*guestContext // who holds the device memory at an address
	attached    map[uint64]attachment    // device segments, by address
	commons     *commons                 // nil if the device can't share memory
	slept       bool                     // since the poller last had nothing to do
	ahead       callbuf.Packet           // that is taken from the ring while the gate holds one back
	behind      []held                   // such packets
	behindBytes int                      // in their payloads
	costs       costs
	uncounted   uint64 // calls served that the gate page does not count yet

	// What is being submitted.
	asking struct {
		b *submission
		w accel.Work
	}
	launch  accel.Launch
	copying accel.Copy
	filling accel.Fill

	guestSpins bool
	held       bool // the guest was told that a call is held back
	reply      [callbuf.MaxReplyData]byte

	flow      flow
	early     early
	callbacks callbacks
	waits     atomic.Int32 // streams that wait for a word
	ending    ending
}

// newSession is a session without a device, which can be ended but not served.
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

// use gives the session its device, before it polls.
func (s *session) use(d accel.Device) {
	s.device = d
	s.total = d.Snapshot().TotalMem
	s.spin, _ = d.(Spinner)
	s.letGuestSpin(true)
	s.predictor, _ = d.(accel.Predictor)
	s.queue, _ = d.(accel.Queue)
}

// answer writes a reply. A call whose context goes because the session ends is
// told why that does.
func (s *session) answer(c cuda.Call, r cuda.Result, data []byte) {
	if r == cuda.ErrorContextIsDestroyed && s.ending.now.Load() {
		r = s.ending.result
	}
	if err := s.host.Reply(c.ReplySlot, c.ReplyTag, int32(r), data); err != nil {
		s.log.Error("answer a call", "op", c.Op, "err", err)
	}
}
