//go:build cgo

package nvidia

import (
	"time"

	"pegasus/accel"
	"pegasus/accel/internal/frame"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Context is a context of the guest. Fields are guarded by the device's mutex unless stated otherwise.
type Context struct {
	dev *Device
	ctx driver.Context
	frame.Sticky
	legacy *Stream
	aside  driver.Stream // for the worker's own operations; waits for no other stream
	time   timeline

	live      int                  // operations that have not ended
	active    map[*Stream]struct{} // streams with such
	streams   int                  // of the guest
	events    events
	words     words
	buffers   buffers
	arrays    uint64 // bytes that the arrays are accounted with
	kept      uint64 // bytes that could not be freed; guarded by the device's mutex
	extra     extra
	freeing   int         // pending frees
	text      contextText // guarded by the device's text's mutex
	destroyed frame.Destruction
}

// Flags of contexts (CUctx_flags). The guest's library handles the others: the wait policy of calls.
const (
	schedBlockingSync = 0x4 // CU_CTX_SCHED_BLOCKING_SYNC
	mapHost           = 0x8
	resizeToMax       = 0x10
	contextFlags      = mapHost | resizeToMax // passed to the driver
	flagsMask         = 0xff
)

// maxStreams bounds the streams of a context: each with work has a waiting thread.
const maxStreams = 256

func newContext(d *Device, flags uint32) (*Context, cuda.Result) {
	if q := d.config.Quota; q != nil && d.config.Context > 0 && !q(int64(d.config.Context)) {
		return nil, cuda.ErrorOutOfMemory
	}
	began := d.clock()
	// For any wait policy of the guest: no thread may spin here.
	ctx, r := driver.NewContext(d.index, flags&contextFlags|schedBlockingSync)
	if r != cuda.Success {
		d.uncharge()
		return nil, r
	}
	c := &Context{dev: d, ctx: ctx, active: map[*Stream]struct{}{}}
	c.events.ctx, c.words.ctx, c.buffers.ctx = c, c, c
	c.legacy = &Stream{ctx: c, blocking: true, legacy: true}
	if c.aside, r = driver.NewStream(ctx, streamNonBlocking, 0); r == cuda.Success {
		r = c.time.begin(c)
	}
	if r != cuda.Success {
		driver.DestroyContext(ctx)
		d.uncharge()
		return nil, r
	}
	created := d.clock()
	c.pin()
	d.log.Debug("context created", "create", time.Duration(created-began), "pin", time.Duration(d.clock()-created))
	return c, cuda.Success
}

// uncharge subtracts the context's own memory from the quota.
func (d *Device) uncharge() {
	if q := d.config.Quota; q != nil && d.config.Context > 0 {
		q(-int64(d.config.Context))
	}
}

// pin registers the arena with the driver, once for all contexts.
func (c *Context) pin() {
	d := c.dev
	d.mu.Lock()
	wanted := len(d.pinned) != 0 && d.pinner == nil
	if wanted {
		d.pinner = c
	}
	d.mu.Unlock()
	if !wanted {
		return
	}
	at, r := driver.Register(c.ctx, d.pinned)
	if r == cuda.Success && at != driver.Address(d.pinned) {
		driver.Unregister(c.ctx, d.pinned)
		r = cuda.ErrorNotSupported
	}
	if r != cuda.Success {
		d.log.Warn("pin the arena: refused by the driver; copies are staged, and kernels cannot access the arena", "bytes", len(d.pinned), "err", r)
		d.mu.Lock()
		d.pinner = nil
		d.mu.Unlock()
	}
}

// failIfSticky makes a sticky result of the driver the context's error.
func (c *Context) failIfSticky(r cuda.Result) cuda.Result {
	if r.Sticky() {
		c.Fail(r)
	}
	return r
}

const streamNonBlocking = 1 // CU_STREAM_NON_BLOCKING

// NewStream creates a stream.
func (c *Context) NewStream(flags uint32, priority int32) (accel.Stream, cuda.Result) {
	if flags&^streamNonBlocking != 0 {
		return nil, cuda.ErrorInvalidValue
	}
	if r := c.Err(); r != cuda.Success {
		return nil, r
	}
	if c.streams >= maxStreams {
		return nil, cuda.ErrorOutOfMemory
	}
	h, r := driver.NewStream(c.ctx, flags, priority)
	if r != cuda.Success {
		return nil, c.failIfSticky(r)
	}
	c.streams++
	return &Stream{ctx: c, h: h, blocking: flags&streamNonBlocking == 0}, cuda.Success
}

// DefaultStream returns the legacy default stream.
func (c *Context) DefaultStream() accel.Stream { return c.legacy }

// NewEvent creates an event. The driver's own events are created when it is recorded.
func (c *Context) NewEvent(flags uint32) (accel.Event, cuda.Result) { return &Event{ctx: c}, c.Err() }

// Submit queues work to a stream. It blocks while evicted allocations of this process are restored, or others of it are
// evicted: see swap.
func (c *Context) Submit(to accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	s, ok := to.(*Stream)
	if !ok || s.ctx != c || s.destroyed {
		return cuda.ErrorInvalidHandle
	}
	if r := c.Err(); r != cuda.Success {
		return r
	}
	return c.failIfSticky(s.submit(w, done))
}

// Synchronize calls done when everything submitted to the context so far has ended.
func (c *Context) Synchronize(done func(cuda.Result)) { c.afterAll(done) }

// afterAll calls then when all work submitted so far has ended: at once if there is none.
func (c *Context) afterAll(then func(cuda.Result)) {
	c.dev.mu.Lock()
	last := make([]*inflightOp, 0, len(c.active))
	for s := range c.active {
		last = append(last, s.last)
	}
	c.after(last, then)
}

// Destroy waits for submitted work, then frees everything and calls done.
func (c *Context) Destroy(done func()) {
	d := c.dev
	d.mu.Lock()
	if first, over := c.destroyed.Begin(done); !first {
		d.mu.Unlock()
		if over {
			done()
		}
		return
	}
	c.Fail(cuda.ErrorContextIsDestroyed)
	c.letGo()
	d.mu.Unlock()
	go c.dissolve()
}

// dissolve frees all objects of the context, once none of its work runs any more.
func (c *Context) dissolve() {
	d := c.dev
	d.mu.Lock()
	for c.live > 0 || c.freeing > 0 {
		if c.satisfy(); c.live > 0 || c.freeing > 0 {
			d.changed.Wait()
		}
	}
	left := d.spans.remove(c)
	pinner := d.pinner == c
	d.mu.Unlock()
	for _, a := range left {
		switch a.kind {
		case allocation:
			d.giveBack(c, a)
		case borrowed:
			d.handBack(a)
		case communal:
			d.segments.leave(c, a)
		}
	}
	if pinner {
		driver.Unregister(c.ctx, d.pinned)
	}
	over := d.beginOther() // any context may be used to move allocations
	if r := driver.DestroyContext(c.ctx); r != cuda.Success && !r.Sticky() {
		d.log.Error("destroy a context", "err", r)
	}
	over()
	d.mu.Lock()
	owned := c.arrays + c.extra.bytes + c.kept
	d.mu.Unlock()
	if q := d.config.Quota; q != nil && owned > 0 {
		q(-int64(owned))
	}
	d.uncharge()
	d.mu.Lock()
	delete(d.contexts, c)
	var heir *Context
	if pinner {
		d.pinner = nil
		for heir = range d.contexts {
			break
		}
	}
	all := c.destroyed.End()
	d.mu.Unlock()
	d.text.forget(c)
	if heir != nil && heir.Err() == cuda.Success {
		heir.pin()
	}
	for _, done := range all {
		done()
	}
}
