package session

import (
	"sync"
	"sync/atomic"
	"time"

	"pegasus/cuda"
)

// Backpressure: a guest that queues without end waits, as on any device, instead of filling the host's memory.
const (
	// maxOutstanding bounds the calls of a guest process that the device has not completed.
	maxOutstanding = 8192
	// maxQueued bounds the device's own count of queued entries for them: work, and dependencies between work. A KiB of
	// kept packets counts as one.
	maxQueued = 64 << 10
	// maxReordered is the number of additional calls allowed for writes for which streams wait.
	maxReordered = 256
	// capacityPatience is how long a call waits for capacity when the report that would free some cannot reach the worker.
	capacityPatience = 2 * time.Second
	// capacitySlice is the poller's initial interval for checking callback reports, and maxCapacitySlice its interval
	// after a long wait.
	capacitySlice    = time.Millisecond
	maxCapacitySlice = 10 * time.Millisecond
)

// backpressure counts the work that the device has not completed.
type backpressure struct {
	outstanding atomic.Int64  // calls
	kept        atomic.Int64  // bytes of packets kept for queued copies and launches
	full        atomic.Bool   // the poller waits for capacity
	freed       chan struct{} // has an element when work has ended meanwhile
	stuck       bool          // of the poller: the last wait failed
}

func (f *backpressure) init() { f.freed = make(chan struct{}, 1) }

// full reports whether the device has as much work of the guest process as it may.
func (q *submitter) full() bool {
	if q.load.outstanding.Load() >= maxOutstanding {
		return true
	}
	return q.queue != nil && q.queue.Queued()+int(q.load.kept.Load()>>10) >= maxQueued
}

// awaitCapacity blocks the poller until the device's queue has capacity. Queued work completes on its own or when the guest
// reports a host callback as finished, which may take any time, so callback reports are still processed while
// awaitCapacity blocks, and other calls are deferred: a dropped call without a reply would be lost without an error. A
// guest that never reports a callback stalls only itself: its blocked work has not passed the gate, and its session can
// still be ended.
//
// A guest that cannot put reports beside the ring can fill the ring, and the deferred packets, so that its reports do
// not arrive. Its calls then fail after capacityPatience, until there is capacity again.
//
// A stream may wait for a word that a call behind this one writes: see reorder.
func (q *submitter) awaitCapacity() cuda.Result {
	if !q.full() || q.poller.reorder.serving {
		return cuda.Success
	}
	if q.poller.reorder.writes && q.waits.Load() != 0 && q.capacityForWrites() {
		return cuda.Success // possibly no other call frees capacity
	}
	q.gate.Rest() // other workers' calls are handled meanwhile
	f := &q.load
	q.poller.reorder.begin()
	defer q.poller.reorder.end()
	f.full.Store(true)
	defer f.full.Store(false)
	defer q.showWaiting(false)
	start, readAt := time.Now(), time.Duration(0)
	for q.full() {
		if q.over() {
			return cuda.ErrorDeinitialized
		}
		q.poller.whileWaiting()
		q.poller.serveReordered()
		waited := time.Since(start)
		if !q.poller.lookahead.full() {
			readAt = waited
		}
		inRing := q.callbacks.outstanding() && !q.host.Reports()
		if f.stuck = inRing && (f.stuck || waited-readAt > capacityPatience); f.stuck {
			return cuda.ErrorOutOfMemory
		}
		select {
		case <-f.freed:
		case <-time.After(min(max(waited/16, capacitySlice), maxCapacitySlice)):
		}
	}
	f.stuck = false
	return cuda.Success
}

// atRest reports whether the device has no work: then no callback runs or becomes due, and work without an engine
// completes during its submission.
func (q *submitter) atRest() bool { return q.queue != nil && q.queue.Queued() == 0 }

// begin counts a call that the device is to complete. Every begin has one ended, also after an error.
func (q *submitter) begin() { q.load.outstanding.Add(1) }

// ended counts a call that the device has completed. Any goroutine may call it.
func (q *submitter) ended() {
	q.load.outstanding.Add(-1)
	if q.load.full.Load() {
		select {
		case q.load.freed <- struct{}{}:
		default:
		}
	}
}

// whenSynced replies to a call when synchronize completes, with the error that the stream, or everyStream, has by then.
func (q *submitter) whenSynced(c cuda.Call, g *guestContext, stream uint64, synchronize func(func(cuda.Result))) cuda.Result {
	q.begin()
	w, _ := waits.Get().(*wait)
	if w == nil {
		w = new(wait)
		w.over = w.end
	}
	w.q, w.c, w.g, w.stream = q, c, g, stream
	synchronize(w.over)
	return cuda.Deferred
}

// wait is a call with a deferred reply. Waits are pooled, since a guest may wait a million times a second.
type wait struct {
	q      *submitter
	c      cuda.Call
	g      *guestContext
	stream uint64            // whose pending error the reply returns
	over   func(cuda.Result) // the method value w.end
}

var waits sync.Pool

func (w *wait) end(r cuda.Result) {
	q := w.q
	q.answer(w.c, w.g.synced(w.stream, r), nil)
	w.q, w.g = nil, nil
	waits.Put(w)
	q.ended()
}

// capacityForWrites reports whether one more write may be executed although the queue is full.
func (q *submitter) capacityForWrites() bool {
	return q.load.outstanding.Load() < maxOutstanding+maxReordered
}

// dependent reports whether work in flight may depend on the guest: on the report of a callback, or on the write of a
// word, possibly by a call later in the ring.
func (q *submitter) dependent() bool { return q.callbacks.any() || q.waits.Load() != 0 }

// polling reports whether a kernel in flight only waits, possibly for work later in the ring.
func (q *submitter) polling() bool { return q.kernels != nil && q.kernels.Polling() }
