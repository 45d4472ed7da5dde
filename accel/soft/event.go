package soft

import (
	"pegasus/accel"
	"pegasus/cuda"
)

// Event marks a position in a stream.
type Event struct {
	ctx      *Context
	timed    bool
	recorded bool
	pending  *node // the latest record, until it completes
	at       int64
}

var _ accel.Event = (*Event)(nil)

// completed records that record n completed; a record before the latest is ignored. d.mu is held.
func (e *Event) completed(n *node, at int64) {
	if e.pending == n {
		e.pending, e.at = nil, at
	}
}

// record records the event in the stream.
func (c *Context) record(s *Stream, e *Event, done accel.Done) cuda.Result {
	d := c.dev
	d.mu.Lock()
	e.recorded = true
	if s.idle() {
		e.pending = nil
		if e.timed {
			e.at = d.clock()
		}
		d.mu.Unlock()
		ended(done)
		return cuda.Success
	}
	n := d.newNode(c, recordNode)
	n.event, n.done = e, done
	if e.timed {
		n.since = d.clock() // it isn't recorded before, even if its dependencies have ended by now
	}
	s.append(n)
	e.pending = n
	d.submit(n)
	return cuda.Success
}

// waitEvent holds the stream back until the event's latest record has completed.
func (c *Context) waitEvent(s *Stream, e *Event, done accel.Done) cuda.Result {
	d := c.dev
	d.mu.Lock()
	if e.pending == nil && (!s.legacy || s.idle()) { // anything in the legacy stream orders the other streams
		d.mu.Unlock()
		ended(done)
		return cuda.Success
	}
	n := d.newNode(c, waitNode)
	n.done = done
	s.append(n)
	n.after(e.pending)
	d.submit(n)
	return cuda.Success
}

// ended reports work that needed no engine and had no dependencies.
func ended(done accel.Done) {
	if done != nil {
		done(cuda.Success, accel.Usage{})
	}
}

// Synchronize calls done when the latest record has completed, at once if there was none.
func (e *Event) Synchronize(done func(cuda.Result)) {
	d := e.ctx.dev
	d.mu.Lock()
	if e.pending == nil {
		d.mu.Unlock()
		done(e.ctx.Err())
		return
	}
	n := d.newNode(e.ctx, actionNode)
	n.then = done
	n.after(e.pending)
	d.submit(n)
}

// Time returns when the latest record completed. The caller may have been notified of the completion before the record
// has ended here, which takes but a moment more.
func (e *Event) Time() (int64, cuda.Result) {
	d := e.ctx.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for e.pending != nil && e.pending.telling.Load() {
		d.reported.Wait()
	}
	switch {
	case e.ctx.Err() != cuda.Success:
		return 0, e.ctx.Err()
	case !e.recorded:
		return 0, cuda.ErrorInvalidHandle
	case e.pending != nil:
		return 0, cuda.ErrorNotReady
	}
	return e.at, cuda.Success
}

// Destroy releases the event; a pending record still completes.
func (e *Event) Destroy() {}
