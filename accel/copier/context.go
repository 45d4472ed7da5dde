package copier

import (
	"slices"

	"pegasus/accel"
	"pegasus/cuda"
)

// context implements accel.Context.
type context struct {
	dev    *Device
	legacy *stream

	// Guarded by the device's mutex.
	err       cuda.Result
	pending   []*operation // that have not ended, in the order of their submission
	destroyed []func()     // the callbacks of Destroy
	gone      bool         // they were called
}

// Capabilities implements accel.Context: all groups are nil.
func (c *context) Capabilities() accel.ContextCapabilities { return accel.ContextCapabilities{} }

// Err implements accel.Context.
func (c *context) Err() cuda.Result {
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	return c.err
}

// NewStream implements accel.Context.
func (c *context) NewStream(flags uint32, _ int32) (accel.Stream, cuda.Result) {
	const nonBlocking = 1 // CU_STREAM_NON_BLOCKING
	if flags&^nonBlocking != 0 {
		return nil, cuda.ErrorInvalidValue
	}
	return &stream{ctx: c, blocking: flags == 0}, c.Err()
}

// DefaultStream implements accel.Context.
func (c *context) DefaultStream() accel.Stream { return c.legacy }

// NewEvent implements accel.Context.
func (c *context) NewEvent(uint32) (accel.Event, cuda.Result) { return &event{ctx: c}, c.Err() }

// The objects that this accelerator does not have, and the limits of kernels.

func (c *context) LoadModule(image []byte) (accel.Module, string, cuda.Result) {
	_, log, r := c.dev.Inspect(image)
	return nil, log, r
}

func (c *context) NewArray(accel.ArrayDesc) (accel.Array, cuda.Result) {
	return nil, cuda.ErrorNotSupported
}

func (c *context) NewTexture(uint64, accel.TextureDesc) (accel.Texture, cuda.Result) {
	return nil, cuda.ErrorNotSupported
}

func (c *context) SetLimit(uint32, uint64) (uint64, cuda.Result) {
	return 0, cuda.ErrorUnsupportedLimit
}

// Submit implements accel.Context. It checks the work and looks up its memory, so that a later Free does not affect it.
func (c *context) Submit(to accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	s, ok := to.(*stream)
	if !ok || s.ctx != c || s.destroyed {
		return cuda.ErrorInvalidHandle
	}
	if r := c.Err(); r != cuda.Success {
		return r
	}
	o := &operation{stream: s, done: done}
	r := cuda.ErrorNotSupported // a Launch, a Replay, a WaitValue or a WriteValue
	switch w := w.(type) {
	case *accel.Copy:
		r = o.copies(c.dev, w)
	case accel.Copy:
		r = o.copies(c.dev, &w)
	case *accel.Fill:
		r = o.fills(c.dev, w)
	case accel.Fill:
		r = o.fills(c.dev, &w)
	case accel.Record:
		r = o.records(w.Event)
	case accel.WaitEvent:
		r = o.awaits(w.Event)
	case accel.HostFunc:
		if o.due, r = w.Due, cuda.Success; w.Due == nil {
			r = cuda.ErrorInvalidValue
		}
	}
	if r == cuda.Success {
		c.submit(o)
	}
	return r
}

// Synchronize implements accel.Context.
func (c *context) Synchronize(done func(cuda.Result)) {
	c.submit(&operation{everything: true, done: func(r cuda.Result, _ accel.Usage) { done(r) }})
}

// Destroy implements accel.Context.
func (c *context) Destroy(done func()) {
	c.cancel()
	c.dev.mu.Lock()
	if c.gone {
		c.dev.mu.Unlock()
		done()
		return
	}
	c.destroyed = append(c.destroyed, done)
	c.dev.mu.Unlock()
	c.dissolve()
}

// cancel makes all work that has not been executed end with an error. Host functions that the guest has not finished
// are finished on its behalf.
func (c *context) cancel() {
	c.dev.mu.Lock()
	if c.err == cuda.Success {
		c.err = cuda.ErrorContextIsDestroyed
	}
	all := slices.Clone(c.pending)
	c.dev.mu.Unlock()
	for _, o := range all {
		if o.due != nil {
			o.finish(c)
		}
	}
}

// dissolve frees the memory of a destroyed context once all of its work has ended.
func (c *context) dissolve() {
	d := c.dev
	d.mu.Lock()
	if len(c.destroyed) == 0 || len(c.pending) != 0 || c.gone {
		d.mu.Unlock()
		return
	}
	c.gone = true
	delete(d.contexts, c)
	var left []uint64
	for addr, b := range d.blocks {
		if b.ctx == c {
			left = append(left, addr)
		}
	}
	all := c.destroyed
	d.mu.Unlock()
	for _, addr := range left {
		d.free(addr)
	}
	for _, done := range all {
		done()
	}
}

// stream implements accel.Stream.
type stream struct {
	ctx       *context
	blocking  bool // keeps order with the legacy default stream
	legacy    bool
	destroyed bool
}

// Query implements accel.Stream. An operation has ended when its end is being reported.
func (s *stream) Query() cuda.Result {
	c := s.ctx
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	if c.err != cuda.Success {
		return c.err
	}
	next := &operation{stream: s, own: true}
	if slices.ContainsFunc(c.pending, func(o *operation) bool { return !o.ended && next.follows(o) }) {
		return cuda.ErrorNotReady
	}
	return cuda.Success
}

// Ended implements accel.Stream.
func (s *stream) Ended(done func(cuda.Result)) {
	s.ctx.submit(&operation{stream: s, own: true, done: func(r cuda.Result, _ accel.Usage) { done(r) }, aside: true})
}

// Synchronize implements accel.Stream.
func (s *stream) Synchronize(done func(cuda.Result)) {
	s.ctx.submit(&operation{stream: s, done: func(r cuda.Result, _ accel.Usage) { done(r) }, aside: true})
}

// Destroy implements accel.Stream.
func (s *stream) Destroy() { s.destroyed = !s.legacy }

// event implements accel.Event.
type event struct {
	ctx      *context
	recorded bool
	pending  *operation // the latest record, until it ends
	at       int64      // when it ended
}

// Synchronize implements accel.Event.
func (e *event) Synchronize(done func(cuda.Result)) {
	e.ctx.submit(&operation{waitsFor: e, done: func(r cuda.Result, _ accel.Usage) { done(r) }, aside: true})
}

// Time implements accel.Event.
func (e *event) Time() (int64, cuda.Result) {
	e.ctx.dev.mu.Lock()
	defer e.ctx.dev.mu.Unlock()
	switch {
	case e.ctx.err != cuda.Success:
		return 0, e.ctx.err
	case !e.recorded:
		return 0, cuda.ErrorInvalidHandle
	case e.pending != nil:
		return 0, cuda.ErrorNotReady
	}
	return e.at, cuda.Success
}

// Destroy implements accel.Event.
func (e *event) Destroy() {}
