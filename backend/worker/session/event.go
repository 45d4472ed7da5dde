package session

import (
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/backend/worker/handles"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// event is an event of the guest. Completions come from other goroutines; mu keeps them from writing the event's word
// after a new event has taken it over.
type event struct {
	g *guestContext
	e accel.Event

	record, wait accel.Work // on e
	stream       uint64     // of the latest record

	mu      sync.Mutex
	retired bool
	last    uint64
}

// complete stores the serial of a completed record.
func (e *event) complete(host *callbuf.Host, id, serial uint64) {
	e.mu.Lock()
	if !e.retired && serial >= e.last {
		e.last = serial
		host.CompleteEvent(id, serial)
	}
	e.mu.Unlock()
}

func (e *event) retire() {
	e.mu.Lock()
	e.retired = true
	e.mu.Unlock()
}

// events owns the events of the guest process, by their ids, and handles the calls about them. The poller owns it.
type events struct {
	base
	streams *streams
	table   handles.Table[*event]
}

func (h *events) dropContext(g *guestContext) {
	h.table.DeleteFunc(func(e *event) bool {
		if e.g == g {
			e.retire()
		}
		return e.g == g
	})
}

func (h *events) EventCreate(c cuda.Call, a cuda.EventCreateArgs) cuda.Result {
	g, r := h.contexts.of(c)
	if r != cuda.Success {
		return r
	}
	if r := h.table.Available(a.Event); r != cuda.Success {
		return r
	}
	e, r := g.ctx.NewEvent(a.Flags)
	if r != cuda.Success {
		return h.table.Fail(a.Event, r)
	}
	h.table.Put(a.Event, &event{g: g, e: e, record: accel.Record{Event: e}, wait: accel.WaitEvent{Event: e}})
	return cuda.Success
}

func (h *events) EventDestroy(_ cuda.Call, a cuda.EventDestroyArgs) cuda.Result {
	e, r := h.table.Take(a.Event)
	if r == cuda.Success {
		e.retire()
		e.e.Destroy()
	}
	return r
}

// EventRecord stores the serial also when the record fails: a thread that polls the word must not do so for ever, and
// gets the error from the context.
func (h *events) EventRecord(c cuda.Call, a cuda.EventRecordArgs) cuda.Result {
	e, r := h.table.Get(a.Event)
	if r != cuda.Success { // its creation failed, or it was destroyed; the next event with its word records later serials there
		h.host.CompleteEvent(a.Event, a.Serial)
		return r
	}
	g, st, r := h.streams.forWork(c)
	if r == cuda.Success && e.g != g {
		r = cuda.ErrorInvalidHandle
	}
	if r != cuda.Success {
		e.complete(h.host, a.Event, a.Serial)
		return r
	}
	e.stream = c.Stream
	if h.work.atRest() {
		if r = g.report(g.ctx.Submit(st, e.record, nil)); e.last <= a.Serial {
			e.last = a.Serial
			h.host.CompleteEvent(a.Event, a.Serial)
		}
		return r
	}
	rec := newRecording()
	rec.g, rec.e, rec.id, rec.serial, rec.stream = g, e, a.Event, a.Serial, c.Stream
	if r = h.work.submit(g, st, e.record, rec.ended); r != cuda.Success {
		e.complete(h.host, a.Event, a.Serial)
	}
	return r
}

// recording is a submitted record. Recordings are pooled, since a guest may record millions of events a second.
type recording struct {
	g          *guestContext
	e          *event
	id, serial uint64
	stream     uint64
	ended      accel.Done // the method value r.end
}

var recordings sync.Pool

func newRecording() *recording {
	r, _ := recordings.Get().(*recording)
	if r == nil {
		r = new(recording)
		r.ended = r.end
	}
	return r
}

func (r *recording) end(result cuda.Result, _ accel.Usage) {
	g := r.g
	g.fail(r.stream, result)
	r.e.complete(g.work.host, r.id, r.serial)
	r.g, r.e = nil, nil
	recordings.Put(r)
	g.work.ended()
}

func (h *events) EventSynchronize(c cuda.Call, a cuda.EventSynchronizeArgs) cuda.Result {
	e, r := h.table.Get(a.Event)
	if r == cuda.Success {
		r = h.work.awaitCapacity()
	}
	if r != cuda.Success {
		return r
	}
	return h.work.whenSynced(c, e.g, e.stream, e.e.Synchronize)
}

func (h *events) EventElapsed(_ cuda.Call, a cuda.EventElapsedArgs) (out cuda.EventElapsedResult, r cuda.Result) {
	start, r := h.table.Get(a.Start)
	if r != cuda.Success {
		return out, r
	}
	end, r := h.table.Get(a.End)
	if r != cuda.Success {
		return out, r
	}
	from, r := start.e.Time()
	if r != cuda.Success {
		return out, r
	}
	to, r := end.e.Time()
	if r != cuda.Success {
		return out, r
	}
	return cuda.EventElapsedResult{Nanoseconds: to - from}, cuda.Success
}

// StreamMark completes the event's serial also when it fails, like EventRecord.
func (h *events) StreamMark(c cuda.Call, a cuda.StreamMarkArgs) cuda.Result {
	e, r := h.table.Get(a.Event)
	if r != cuda.Success {
		h.host.CompleteEvent(a.Event, a.Serial)
		return r
	}
	g, st, r := h.streams.of(c)
	if r == cuda.Success {
		if q := st.Query(); q != cuda.ErrorNotReady {
			g.report(q) // before the guest can observe the completion
			e.complete(h.host, a.Event, a.Serial)
			return cuda.Success
		}
		r = h.work.awaitCapacity()
	}
	if r != cuda.Success {
		e.complete(h.host, a.Event, a.Serial)
		return r
	}
	h.work.begin()
	st.Ended(func(r cuda.Result) {
		g.report(r)
		e.complete(h.host, a.Event, a.Serial)
		h.work.ended()
	})
	return cuda.Success
}

// StreamWaitEvent also waits for an event of another context: a host function then blocks the stream until that event's
// present record completes.
func (h *events) StreamWaitEvent(c cuda.Call, a cuda.StreamWaitEventArgs) cuda.Result {
	g, st, r := h.streams.forWork(c)
	if r != cuda.Success {
		return r
	}
	e, r := h.table.Get(a.Event)
	if r != cuda.Success {
		return r
	}
	if e.g == g {
		if h.work.atRest() {
			return g.report(g.ctx.Submit(st, e.wait, nil))
		}
		return h.work.submit(g, st, e.wait, g.ended)
	}
	return h.work.submit(g, st, waitElsewhere(e.e), g.ended)
}

// waitElsewhere returns work that blocks a stream until the present record of an event completes. The second of the
// stream's turn and the event's completion unblocks it.
func waitElsewhere(e accel.Event) accel.HostFunc {
	var steps atomic.Int32
	var finish atomic.Value
	step := func() {
		if steps.Add(1) == 2 {
			finish.Load().(func())()
		}
	}
	e.Synchronize(func(cuda.Result) { step() })
	return accel.HostFunc{Due: func(_ cuda.Result, finished func()) {
		finish.Store(finished)
		step()
	}}
}

// completeRecord stores the serial of a record that will not be made, or that has lost its event.
func (h *events) completeRecord(id, serial uint64) {
	if e, r := h.table.Get(id); r == cuda.Success {
		e.complete(h.host, id, serial)
	} else {
		h.host.CompleteEvent(id, serial)
	}
}
