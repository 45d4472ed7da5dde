package worker

import (
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/cuda"
)

// stream is a stream of the guest, in its context.
type stream struct {
	g *guestContext
	s accel.Stream
}

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
func (e *event) complete(s *session, id, serial uint64) {
	e.mu.Lock()
	if !e.retired && serial >= e.last {
		e.last = serial
		s.host.CompleteEvent(id, serial)
	}
	e.mu.Unlock()
}

func (e *event) retire() {
	e.mu.Lock()
	e.retired = true
	e.mu.Unlock()
}

// stream returns the context and the stream that a call names, after a wait for room for more work.
func (s *session) stream(c cuda.Call) (*guestContext, accel.Stream, cuda.Result) {
	g, st, r := s.streamAsIs(c)
	if r == cuda.Success {
		r = s.room()
	}
	return g, st, r
}

// streamAsIs is stream without the wait for room.
func (s *session) streamAsIs(c cuda.Call) (*guestContext, accel.Stream, cuda.Result) {
	g, r := s.context(c)
	if r != cuda.Success {
		return nil, nil, r
	}
	if c.Stream == cuda.StreamNull || c.Stream == cuda.StreamLegacy {
		return g, g.ctx.DefaultStream(), cuda.Success
	}
	t, r := s.streams.get(c.Stream)
	if r != cuda.Success {
		return g, nil, r
	}
	if t.g != g {
		return g, nil, cuda.ErrorInvalidHandle
	}
	return g, t.s, cuda.Success
}

func (s *session) StreamCreate(c cuda.Call, a cuda.StreamCreateArgs) cuda.Result {
	g, r := s.context(c)
	if r != cuda.Success {
		return r
	}
	if a.Stream < cuda.FirstStream {
		return cuda.ErrorInvalidHandle
	}
	if r := s.streams.free(a.Stream); r != cuda.Success {
		return r
	}
	st, r := g.ctx.NewStream(a.Flags, a.Priority)
	if r != cuda.Success {
		return s.streams.poison(a.Stream, r)
	}
	s.streams.put(a.Stream, &stream{g, st})
	return cuda.Success
}

func (s *session) StreamDestroy(_ cuda.Call, a cuda.StreamDestroyArgs) cuda.Result {
	t, r := s.streams.take(a.Stream)
	if r == cuda.Success {
		t.s.Destroy()
		t.g.orphan(a.Stream)
	}
	return r
}

func (s *session) StreamSynchronize(c cuda.Call) cuda.Result {
	g, st, r := s.stream(c)
	if r != cuda.Success {
		return r
	}
	return s.whenSynced(c, g, c.Stream, st.Synchronize)
}

func (s *session) StreamQuery(c cuda.Call) cuda.Result {
	g, st, r := s.streamAsIs(c)
	if r != cuda.Success {
		return r
	}
	return g.report(st.Query())
}

// StreamMark completes the event's serial also when it fails, like EventRecord.
func (s *session) StreamMark(c cuda.Call, a cuda.StreamMarkArgs) cuda.Result {
	e, r := s.events.get(a.Event)
	if r != cuda.Success {
		s.host.CompleteEvent(a.Event, a.Serial)
		return r
	}
	g, st, r := s.streamAsIs(c)
	if r == cuda.Success {
		if q := st.Query(); q != cuda.ErrorNotReady {
			g.report(q) // before the guest can observe the completion
			e.complete(s, a.Event, a.Serial)
			return cuda.Success
		}
		r = s.room()
	}
	if r != cuda.Success {
		e.complete(s, a.Event, a.Serial)
		return r
	}
	s.begin()
	st.Ended(func(r cuda.Result) {
		g.report(r)
		e.complete(s, a.Event, a.Serial)
		s.ended()
	})
	return cuda.Success
}

// StreamWaitEvent also waits for an event of another context: a host function then blocks the stream until that event's
// present record completes.
func (s *session) StreamWaitEvent(c cuda.Call, a cuda.StreamWaitEventArgs) cuda.Result {
	g, st, r := s.stream(c)
	if r != cuda.Success {
		return r
	}
	e, r := s.events.get(a.Event)
	if r != cuda.Success {
		return r
	}
	if e.g == g {
		if s.atRest() {
			return g.report(g.ctx.Submit(st, e.wait, nil))
		}
		return s.submit(g, st, e.wait, g.ended)
	}
	return s.submit(g, st, waitElsewhere(e.e), g.ended)
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

func (s *session) EventCreate(c cuda.Call, a cuda.EventCreateArgs) cuda.Result {
	g, r := s.context(c)
	if r != cuda.Success {
		return r
	}
	if r := s.events.free(a.Event); r != cuda.Success {
		return r
	}
	e, r := g.ctx.NewEvent(a.Flags)
	if r != cuda.Success {
		return s.events.poison(a.Event, r)
	}
	s.events.put(a.Event, &event{g: g, e: e, record: accel.Record{Event: e}, wait: accel.WaitEvent{Event: e}})
	return cuda.Success
}

func (s *session) EventDestroy(_ cuda.Call, a cuda.EventDestroyArgs) cuda.Result {
	e, r := s.events.take(a.Event)
	if r == cuda.Success {
		e.retire()
		e.e.Destroy()
	}
	return r
}

// EventRecord stores the serial also when the record fails: a thread that polls the word must not do so for ever, and
// gets the error from the context.
func (s *session) EventRecord(c cuda.Call, a cuda.EventRecordArgs) cuda.Result {
	e, r := s.events.get(a.Event)
	if r != cuda.Success { // its creation failed, or it was destroyed; the next event with its word records later serials there
		s.host.CompleteEvent(a.Event, a.Serial)
		return r
	}
	g, st, r := s.stream(c)
	if r == cuda.Success && e.g != g {
		r = cuda.ErrorInvalidHandle
	}
	if r != cuda.Success {
		e.complete(s, a.Event, a.Serial)
		return r
	}
	e.stream = c.Stream
	if s.atRest() {
		if r = g.report(g.ctx.Submit(st, e.record, nil)); e.last <= a.Serial {
			e.last = a.Serial
			s.host.CompleteEvent(a.Event, a.Serial)
		}
		return r
	}
	rec := newRecording()
	rec.g, rec.e, rec.id, rec.serial, rec.stream = g, e, a.Event, a.Serial, c.Stream
	if r = s.submit(g, st, e.record, rec.ended); r != cuda.Success {
		e.complete(s, a.Event, a.Serial)
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
	r.e.complete(g.s, r.id, r.serial)
	r.g, r.e = nil, nil
	recordings.Put(r)
	g.s.ended()
}

func (s *session) EventSynchronize(c cuda.Call, a cuda.EventSynchronizeArgs) cuda.Result {
	e, r := s.events.get(a.Event)
	if r == cuda.Success {
		r = s.room()
	}
	if r != cuda.Success {
		return r
	}
	return s.whenSynced(c, e.g, e.stream, e.e.Synchronize)
}

func (s *session) EventElapsed(_ cuda.Call, a cuda.EventElapsedArgs) (out cuda.EventElapsedResult, r cuda.Result) {
	start, r := s.events.get(a.Start)
	if r != cuda.Success {
		return out, r
	}
	end, r := s.events.get(a.End)
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
