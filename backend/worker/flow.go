package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// Backpressure: a guest that queues without end waits, as on any device, instead of filling the host's memory.
const (
	// maxOutstanding bounds the calls of a guest process that the device has not completed.
	maxOutstanding = 8192
	// maxQueued bounds the device's own count of queued entries for them: work, and dependencies between work. A KiB of
	// kept packets counts as one.
	maxQueued = 64 << 10
	// maxEarly is the number of additional calls allowed for writes for which streams wait.
	maxEarly = 256
	// roomPatience is how long a call waits for room when the report that would make room cannot reach the worker.
	roomPatience = 2 * time.Second
	// roomSlice is the poller's initial interval for checking callback reports, and roomSlices its interval after a
	// long wait.
	roomSlice  = time.Millisecond
	roomSlices = 10 * time.Millisecond
)

// flow counts the work that the device has not completed.
type flow struct {
	n     atomic.Int64  // calls
	kept  atomic.Int64  // bytes of packets kept for queued copies and launches
	full  atomic.Bool   // the poller waits for room
	room  chan struct{} // has an element when there may be room
	stuck bool          // of the poller: the last wait for room failed
}

func (f *flow) init() { f.room = make(chan struct{}, 1) }

func (s *session) full() bool {
	if s.flow.n.Load() >= maxOutstanding {
		return true
	}
	return s.queue != nil && s.queue.Queued()+int(s.flow.kept.Load()>>10) >= maxQueued
}

// room blocks the poller until the device's queue has room. Queued work completes on its own or when the guest reports
// a host callback as finished, which may take any time, so callback reports are still processed while room blocks, and
// other calls are deferred: a dropped call without a reply would be lost without an error. A guest that never reports a
// callback stalls only itself: its blocked work has not passed the gate, and its session can still be ended.
//
// A guest that cannot put reports beside the ring can fill the ring, and the deferred packets, so that its reports do
// not arrive. Its calls then fail after roomPatience, until there is room again.
//
// A stream may wait for a word that a call behind this one writes: see early.
func (s *session) room() cuda.Result {
	if !s.full() || s.early.serving {
		return cuda.Success
	}
	if s.early.writes && s.waits.Load() != 0 && s.roomForWrites() {
		return cuda.Success // possibly no other call makes room
	}
	f := &s.flow
	s.early.begin()
	defer s.early.end()
	f.full.Store(true)
	defer f.full.Store(false)
	defer s.hold(false)
	start, heard := time.Now(), time.Duration(0)
	for s.full() {
		if s.ending.now.Load() {
			return cuda.ErrorDeinitialized
		}
		s.whileHeld()
		s.serveEarly()
		waited := time.Since(start)
		if !s.farBehind() {
			heard = waited
		}
		inRing := s.callbacks.outstanding() && !s.host.Reports()
		if f.stuck = inRing && (f.stuck || waited-heard > roomPatience); f.stuck {
			return cuda.ErrorOutOfMemory
		}
		select {
		case <-f.room:
		case <-time.After(min(max(waited/16, roomSlice), roomSlices)):
		}
	}
	f.stuck = false
	return cuda.Success
}

// atRest reports whether the device has no work: then no callback runs or becomes due, and work without an engine
// completes during its submission.
func (s *session) atRest() bool { return s.queue != nil && s.queue.Queued() == 0 }

// begin counts a call that the device is to complete. Every begin has one ended, also after an error.
func (s *session) begin() { s.flow.n.Add(1) }

func (s *session) ended() {
	s.flow.n.Add(-1)
	if s.flow.full.Load() {
		select {
		case s.flow.room <- struct{}{}:
		default:
		}
	}
}

// submit submits work that needs no admission to the device. done is the context's ended, or calls it.
func (s *session) submit(g *guestContext, st accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	s.begin()
	r := g.ctx.Submit(st, w, done)
	if r != cuda.Success {
		s.ended()
	}
	return g.report(r)
}

// whenSynced replies to a call when synchronize completes, with the error that the stream, or everyStream, has by then.
func (s *session) whenSynced(c cuda.Call, g *guestContext, stream uint64, synchronize func(func(cuda.Result))) cuda.Result {
	s.begin()
	w, _ := waits.Get().(*wait)
	if w == nil {
		w = new(wait)
		w.over = w.end
	}
	w.s, w.c, w.g, w.stream = s, c, g, stream
	synchronize(w.over)
	return cuda.Deferred
}

// wait is a call with a deferred reply. Waits are pooled, since a guest may wait a million times a second.
type wait struct {
	s      *session
	c      cuda.Call
	g      *guestContext
	stream uint64            // whose pending error the reply returns
	over   func(cuda.Result) // the method value w.end
}

var waits sync.Pool

func (w *wait) end(r cuda.Result) {
	s := w.s
	s.answer(w.c, w.g.synced(w.stream, r), nil)
	w.s, w.g = nil, nil
	waits.Put(w)
	s.ended()
}
