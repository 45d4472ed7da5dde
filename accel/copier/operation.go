package copier

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/cuda"
)

// operation is a piece of submitted work, or a wait for such work.
type operation struct {
	stream     *stream // nil for a wait for an event, or for everything
	everything bool    // waits for all earlier work of the context
	waitsFor   *event  // waits for the latest record of an event
	record     *event  // records an event
	aside      bool    // later work does not wait for it

	class accel.Class
	run   func()                                    // executes a copy or a fill
	due   func(status cuda.Result, finished func()) // of a host function
	done  accel.Done                                // may be nil

	finished atomic.Bool // of a host function
	// Guarded by the device's mutex.
	waits  int          // earlier operations that it waits for
	behind []*operation // later operations that wait for it
	own    bool         // it follows its stream's own work, not that of the legacy stream
	ended  bool         // its end is being reported
}

// follows reports whether an operation that is submitted now is ordered after an earlier one. The device's mutex is
// held.
func (o *operation) follows(before *operation) bool {
	a, b := o.stream, before.stream
	switch {
	case o.everything || o.waitsFor != nil && o.waitsFor.pending == before:
		return true
	case a == nil || b == nil || before.aside:
		return false
	}
	return a == b || a.legacy && b.blocking || b.legacy && a.blocking && !o.own
}

// submit executes an operation, or queues it behind the pending ones that it follows.
func (c *context) submit(o *operation) {
	d := c.dev
	d.mu.Lock()
	for _, before := range c.pending {
		if o.follows(before) {
			o.waits++
			before.behind = append(before.behind, o)
		}
	}
	if e := o.record; e != nil {
		e.recorded, e.pending = true, o
	}
	c.pending = append(c.pending, o)
	d.queued++
	ready := o.waits == 0
	d.mu.Unlock()
	if ready {
		c.execute(o)
	}
}

// execute executes an operation that waits for nothing.
func (c *context) execute(o *operation) {
	r := c.Err()
	switch {
	case o.due != nil && r == cuda.Success:
		o.due(r, func() { o.finish(c) })
		return
	case o.due != nil:
		o.finish(c)
		return
	}
	u := accel.Usage{Class: o.class}
	if o.run != nil && r == cuda.Success {
		u.Start = now()
		o.run()
		u.End = now()
	}
	c.end(o, r, u)
}

// finish ends a host function, in the first call only.
func (o *operation) finish(c *context) {
	c.dev.mu.Lock()
	early := o.waits > 0 // it is cancelled, and ends at its turn
	c.dev.mu.Unlock()
	if !early && !o.finished.Swap(true) {
		c.end(o, c.Err(), accel.Usage{})
	}
}

// end reports the end of an operation, and then executes those that wait for nothing any more.
func (c *context) end(o *operation, r cuda.Result, u accel.Usage) {
	d := c.dev
	d.mu.Lock()
	o.ended = true
	if e := o.record; e != nil && e.pending == o {
		e.pending, e.at = nil, now()
	}
	d.mu.Unlock()
	if o.done != nil {
		o.done(r, u)
	}
	d.mu.Lock()
	for i, p := range c.pending {
		if p == o {
			c.pending = append(c.pending[:i], c.pending[i+1:]...)
			break
		}
	}
	d.queued--
	var ready []*operation
	for _, next := range o.behind {
		if next.waits--; next.waits == 0 {
			ready = append(ready, next)
		}
	}
	d.mu.Unlock()
	for _, next := range ready {
		c.execute(next)
	}
	c.dissolve()
}

// records makes o a record of an event.
func (o *operation) records(e accel.Event) cuda.Result {
	of, ok := e.(*event)
	if !ok || of.ctx != o.stream.ctx {
		return cuda.ErrorInvalidHandle
	}
	o.record = of
	return cuda.Success
}

// awaits makes o a wait for an event of its context; accelerators with kernels take those of any context of the device.
func (o *operation) awaits(e accel.Event) cuda.Result {
	of, ok := e.(*event)
	if !ok || of.ctx != o.stream.ctx {
		return cuda.ErrorInvalidHandle
	}
	o.waitsFor = of
	return cuda.Success
}

// now returns the time on the clock of accel.Usage.
func now() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
