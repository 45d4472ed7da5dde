package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"pegasus/accel"
	"pegasus/cuda"
)

// A guest that queues without end waits, as on any device, instead of filling
// the host's memory.
const (
	// maxOutstanding bounds the calls of a guest process that the device has not
	// answered yet.
	maxOutstanding = 8192
	// maxQueued bounds what the device says that it keeps for them: pieces of work,
	// and waits of one for another. KiB of packets count too.
	maxQueued = 64 << 10
	// maxEarly is how many of them may be more, of writes that streams wait for.
	maxEarly = 256
	// roomPatience is how long a call waits for room where the report that would make
	// it can't reach us.
	roomPatience = 2 * time.Second
	// roomSlice is how often the poller looks for a callback's report at first, and
	// roomSlices how often once it has waited for long.
	roomSlice  = time.Millisecond
	roomSlices = 10 * time.Millisecond
)

// flow counts what the device has not answered yet.
type flow struct {
	n     atomic.Int64  // calls
	kept  atomic.Int64  // bytes of packets that queued copies and launches keep
	full  atomic.Bool   // the poller waits for room
	room  chan struct{} // has an element when there may be room
	stuck bool          // of the poller: waiting for room was in vain
}

func (f *flow) init() { f.room = make(chan struct{}, 1) }

func (s *session) full() bool {
	if s.flow.n.Load() >= maxOutstanding {
		return true
	}
	return s.queue != nil && s.queue.Queued()+int(s.flow.kept.Load()>>10) >= maxQueued
}

// room waits, and the ring with it, until the device can take more work. What is
// queued ends by itself, or when the guest has reported a host callback, which may
// take it any time: reports are looked for meanwhile, and a call lost in between
// would be lost without a word. Whoever never reports one holds up nobody but
// itself: what waits here has not been let in by the gate, and the session can be
// ended all the while.
//
// A guest that knows no place beside the ring for its reports can fill the ring, and
// what is read ahead of it, so that they don't get in. There calls fail after a
// while, until there is room again.
//
// What streams wait for may be a word that a call behind this one writes: see early.
func (s *session) room() cuda.Result {
	if !s.full() || s.early.serving {
		return cuda.Success
	}
	if s.early.writes && s.waits.Load() != 0 && s.roomForWrites() {
		return cuda.Success // nobody else may be there to make room
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

// atRest says that the device has nothing to do: then no callback runs or comes,
// and what needs no engine ends while it is submitted.
func (s *session) atRest() bool { return s.queue != nil && s.queue.Queued() == 0 }

// begin counts a call that the device is to answer. Every begin has its ended,
// also when nothing comes of it.
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

// submit gives work to the device that the gate has nothing to do with. done is
// the context's ended, or calls it.
func (s *session) submit(g *guestContext, st accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	s.begin()
	r := g.ctx.Submit(st, w, done)
	if r != cuda.Success {
		s.ended()
	}
	return g.report(r)
}

// whenSynced answers a call when something is done, with the error that the stream, or everyStream, owes by then.
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

// wait is a call that is answered when something is done. They are used again,
// since a guest may wait a million times a second.
type wait struct {
	s      *session
	c      cuda.Call
	g      *guestContext
	stream uint64            // whose debt it returns
	over   func(cuda.Result) // end of this wait
}

var waits sync.Pool

func (w *wait) end(r cuda.Result) {
	s := w.s
	s.answer(w.c, w.g.synced(w.stream, r), nil)
	w.s, w.g = nil, nil
	waits.Put(w)
	s.ended()
}
