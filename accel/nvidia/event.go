//go:build cgo

package nvidia

import (
	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Event marks a position in a stream. Each record has a driver event of its own, so that recording an event again
// affects no wait for an earlier record.
type Event struct {
	ctx      *Context
	recorded bool
	pending  *inflightOp // the latest record, until its end was reported
	at       int64       // on the context's timeline, once it was

	// For a record that had nothing to wait for: its time is read when a caller needs it.
	late driver.Event
	base *base
}

var _ accel.Event = (*Event)(nil)

// record records the event in the stream.
func (s *Stream) record(e *Event, done accel.Done) cuda.Result {
	c := s.ctx
	p := &inflightOp{event: e, done: done}
	r := s.prepare(p)
	if r != cuda.Success {
		return r
	}
	if p.end, r = s.recorded(); r != cuda.Success {
		return c.forget(p, r)
	}
	e.forgetLate()
	e.recorded = true
	c.dev.mu.Lock()
	idle := s.idle()
	if idle {
		e.pending, e.late, e.base = nil, p.end, p.base
	}
	c.dev.mu.Unlock()
	if !idle {
		s.append(p)
		return cuda.Success
	}
	if done != nil {
		done(cuda.Success, accel.Usage{})
	}
	return cuda.Success
}

// forgetLate releases the driver's event that measures the latest record.
func (e *Event) forgetLate() {
	if e.late == nil {
		return
	}
	e.ctx.time.release(e.ctx, e.base)
	e.ctx.events.keep(e.late)
	e.late, e.base = nil, nil
}

// waitEvent holds the stream back until the event's latest record has completed.
func (s *Stream) waitEvent(e *Event, done accel.Done) cuda.Result {
	c := s.ctx
	d := c.dev
	d.mu.Lock()
	on := e.pending
	nothing := on == nil && (!s.legacy || s.idle()) // anything in the legacy stream orders the other streams
	d.mu.Unlock()
	if nothing {
		if done != nil {
			done(cuda.Success, accel.Usage{})
		}
		return cuda.Success
	}
	p := &inflightOp{done: done}
	if on != nil {
		// The end of that record may have been reported meanwhile, without harm: only this goroutine records, so on.end
		// is unchanged.
		if r := driver.Wait(c.ctx, s.h, on.end); r != cuda.Success {
			return r
		}
		p.behind = append(p.behind, on)
	}
	s.append(p)
	return cuda.Success
}

// Synchronize calls done when the latest record has completed, at once if there was none.
func (e *Event) Synchronize(done func(cuda.Result)) {
	e.ctx.dev.mu.Lock()
	var all []*inflightOp
	if e.pending != nil {
		all = []*inflightOp{e.pending}
	}
	e.ctx.after(all, done)
}

// Time returns when the latest record completed. The caller may have been notified of the completion before the record
// has ended here, which takes but a moment more.
func (e *Event) Time() (int64, cuda.Result) {
	c := e.ctx
	d := c.dev
	d.mu.Lock()
	for e.pending != nil && e.pending.reporting {
		d.changed.Wait()
	}
	pending := e.pending != nil
	d.mu.Unlock()
	switch {
	case c.Err() != cuda.Success:
		return 0, c.Err()
	case !e.recorded:
		return 0, cuda.ErrorInvalidHandle
	case pending:
		return 0, cuda.ErrorNotReady
	case e.late != nil:
		e.base.settle(c)
		_, ms, r := driver.Await(c.ctx, e.base.event, nil, e.late)
		if r != cuda.Success {
			return 0, c.failIfSticky(r)
		}
		e.at = e.base.at + ns(ms)
		e.forgetLate()
	}
	return c.time.origin + e.at, cuda.Success
}

// Destroy releases the event; a pending record still completes.
func (e *Event) Destroy() {
	if !e.ctx.isGone() {
		e.forgetLate()
	}
}

// events are the unused events of the driver in a context. The device's mutex guards them.
type events struct {
	ctx   *Context
	spare []driver.Event
}

// take returns an unused event of the driver.
func (l *events) take() (driver.Event, cuda.Result) {
	c := l.ctx
	c.dev.mu.Lock()
	if n := len(l.spare); n > 0 {
		e := l.spare[n-1]
		l.spare = l.spare[:n-1]
		c.dev.mu.Unlock()
		return e, cuda.Success
	}
	c.dev.mu.Unlock()
	return driver.NewEvent(c.ctx)
}

// keep keeps unused events for later.
func (l *events) keep(all ...driver.Event) {
	c := l.ctx
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	for _, e := range all {
		if e != nil {
			l.spare = append(l.spare, e)
		}
	}
}

// isGone reports whether the driver's context is destroyed, or about to be.
func (c *Context) isGone() bool {
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	return c.destroyed.Begun
}
