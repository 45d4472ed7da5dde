package soft

import (
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/internal/frame"
	"pegasus/accel/soft/lane"
	"pegasus/accel/soft/memory"
	"pegasus/cuda"
)

// Context owns the objects that a guest creates on the device. Fields are guarded by the device's mutex unless stated
// otherwise.
type Context struct {
	dev *Device
	frame.Sticky
	legacy *Stream

	live      int        // nodes that have not ended
	active    streamList // streams with unfinished work
	calls     map[*hostCall]struct{}
	freeing   int // frees that wait for work
	destroyed frame.Destruction

	allocations map[uint64]uint64   // address to bytes accounted, also of modules and arrays
	owned       map[uint64]struct{} // those that the guest may free
	attached    map[uint64]struct{} // addresses of memory shared with other processes
	modules     map[*Module]struct{}
	limits      limits
	heap        atomic.Pointer[lane.Heap] // of kernels, from the first launch on that needs it
	text        text

	textureMu sync.RWMutex // taken after d.mu, if both
	textures  map[uint64]*Texture
	textureOf func(handle uint64) *lane.Texture // texture, made a value once
}

func newContext(d *Device) *Context {
	c := &Context{
		dev:         d,
		calls:       map[*hostCall]struct{}{},
		allocations: map[uint64]uint64{},
		owned:       map[uint64]struct{}{},
		attached:    map[uint64]struct{}{},
		modules:     map[*Module]struct{}{},
		textures:    map[uint64]*Texture{},
		limits:      defaultLimits,
	}
	c.textureOf = c.texture
	c.text.init()
	c.legacy = &Stream{ctx: c, blocking: true, legacy: true, place: -1}
	return c
}

const streamNonBlocking = 1 // CU_STREAM_NON_BLOCKING

// NewStream creates a stream.
func (c *Context) NewStream(flags uint32, priority int32) (accel.Stream, cuda.Result) {
	if flags&^streamNonBlocking != 0 {
		return nil, cuda.ErrorInvalidValue
	}
	return &Stream{ctx: c, blocking: flags&streamNonBlocking == 0, urgent: priority < 0, place: -1}, c.Err()
}

// DefaultStream returns the legacy default stream.
func (c *Context) DefaultStream() accel.Stream { return c.legacy }

// NewEvent creates an event.
func (c *Context) NewEvent(flags uint32) (accel.Event, cuda.Result) {
	return &Event{ctx: c, timed: flags&uint32(cuda.EventFlagDisableTiming) == 0}, c.Err()
}

// Submit queues work to a stream. Passing a pointer to a Launch, Copy or Fill
// saves an allocation; it is read during Submit only. done may be called before
// Submit returns.
func (c *Context) Submit(to accel.Stream, w accel.Work, done accel.Done) cuda.Result {
	s, ok := to.(*Stream)
	if !ok || s.ctx != c || s.destroyed {
		return cuda.ErrorInvalidHandle
	}
	if r := c.Err(); r != cuda.Success {
		return r
	}
	switch w := w.(type) {
	case *accel.Launch:
		return c.launch(s, w, done)
	case accel.Launch:
		return c.launch(s, &w, done)
	case *accel.Copy:
		return c.copy(s, w, done)
	case accel.Copy:
		return c.copy(s, &w, done)
	case *accel.Fill:
		return c.fill(s, w, done)
	case accel.Fill:
		return c.fill(s, &w, done)
	case accel.Record:
		if e, ok := w.Event.(*Event); ok && e.ctx == c {
			return c.record(s, e, done)
		}
	case accel.WaitEvent:
		if e, ok := w.Event.(*Event); ok && e.ctx.dev == c.dev {
			return c.waitEvent(s, e, done)
		}
	case accel.HostFunc:
		return c.hostFunc(s, &w, done)
	case accel.WriteValue:
		return c.writeValue(s, &w, done)
	case accel.WaitValue:
		return c.waitValue(s, &w, done)
	case accel.Replay:
		if g, ok := w.Graph.(*Graph); ok && g.ctx == c && !g.destroyed {
			return c.replay(s, g, w.Spent, done)
		}
	}
	return cuda.ErrorInvalidHandle
}

// Synchronize calls done when everything submitted to the context so far has ended.
func (c *Context) Synchronize(done func(cuda.Result)) { c.afterAll(done) }

// afterAll calls then when all work submitted so far has ended: at once if there is none.
func (c *Context) afterAll(then func(cuda.Result)) {
	d := c.dev
	d.mu.Lock()
	if len(c.active) == 0 {
		d.mu.Unlock()
		then(c.Err())
		return
	}
	n := d.newNode(c, actionNode)
	n.then = then
	for _, s := range c.active {
		n.after(s.last)
	}
	d.submit(n)
}

// Destroy cancels work that has not started, ends running work, frees everything, then calls done.
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
	for _, e := range d.executors {
		e.cancelContext(c)
	}
	calls := make([]*hostCall, 0, len(c.calls))
	for call := range c.calls {
		if !call.telling {
			calls = append(calls, call)
		}
	}
	c.live++ // the context must not be dissolved before the calls below have ended
	d.mu.Unlock()
	for _, call := range calls {
		c.returned(call, c.Err())
	}
	d.mu.Lock()
	c.live--
	last := c.live == 0
	d.mu.Unlock()
	if last {
		c.dissolve()
	}
}

// dissolve frees all objects of the context. None of its work runs any more.
func (c *Context) dissolve() {
	d := c.dev
	d.mu.Lock()
	if c.allocations == nil {
		d.mu.Unlock()
		return
	}
	owned := c.allocations
	c.allocations, c.owned = nil, nil
	d.mu.Unlock()
	c.text.close()
	for addr, n := range owned {
		d.giveBack(addr, n)
	}
	for addr := range c.attached {
		d.detachShared(addr)
	}
	d.mu.Lock()
	delete(d.contexts, c)
	all := c.destroyed.End()
	d.mu.Unlock()
	for _, done := range all {
		done()
	}
}

// Alloc returns the address of zeroed device memory. If there is no memory, but frees wait for pending work, it waits
// for them.
func (c *Context) Alloc(size uint64) (uint64, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return 0, r
	}
	if size == 0 {
		return 0, cuda.ErrorInvalidValue
	}
	addr, r := c.take(size, ordinary)
	if r == cuda.Success {
		c.dev.mu.Lock()
		c.owned[addr] = struct{}{}
		c.dev.mu.Unlock()
	}
	return addr, r
}

// allocKind is the kind of use of an allocation.
type allocKind uint8

const (
	ordinary allocKind = iota // kernels and copies, by its address
	variable                  // those too, and the device itself while it loads a module
	opaque                    // textures and copies, by handles
	internal                  // the device itself, at any time
)

// visible reports whether kernels can use it by its address, fixed whether it has to stay on the device.
func (s allocKind) visible() bool { return s <= variable }
func (s allocKind) fixed() bool   { return s == variable || s == internal }

// take allocates memory that the context frees with drop.
func (c *Context) take(size uint64, of allocKind) (uint64, cuda.Result) {
	d := c.dev
	if size > d.size {
		return 0, cuda.ErrorOutOfMemory
	}
	for {
		addr, r := d.tryTake(size, of)
		if r == cuda.Success {
			return addr, c.keep(addr, memory.RoundUp(size))
		}
		if !c.awaitFree() || c.Err() != cuda.Success {
			return 0, r
		}
	}
}

// keep records an allocation, or frees it if the context was destroyed meanwhile.
func (c *Context) keep(addr, n uint64) cuda.Result {
	c.dev.mu.Lock()
	gone := c.destroyed.Begun
	if !gone {
		c.allocations[addr] = n
	}
	c.dev.mu.Unlock()
	if gone {
		c.dev.giveBack(addr, n)
		return cuda.ErrorContextIsDestroyed
	}
	return cuda.Success
}

// awaitFree blocks until one of the pending frees completes. It returns false if there is none, or if that could depend
// on the guest, which in turn may be waiting for the caller.
func (c *Context) awaitFree() bool {
	d := c.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	before := c.freeing
	for c.freeing > 0 && c.freeing == before && d.hostFuncs == 0 {
		d.freed.Wait()
	}
	return c.freeing < before
}

// Free releases an allocation of Alloc once all work submitted earlier has ended, then calls done (which may be nil).
func (c *Context) Free(addr uint64, done func()) cuda.Result {
	d := c.dev
	d.mu.Lock()
	if _, ok := c.owned[addr]; !ok {
		d.mu.Unlock()
		return cuda.ErrorInvalidValue
	}
	delete(c.owned, addr)
	d.mu.Unlock()
	c.drop(addr, done)
	return cuda.Success
}

// drop frees memory of the context once all work submitted before has ended.
func (c *Context) drop(addr uint64, done func()) {
	d := c.dev
	d.mu.Lock()
	c.freeing++
	d.mu.Unlock()
	p, _ := drops.Get().(*dropping)
	if p == nil {
		p = new(dropping)
		p.due = p.carryOut
	}
	p.c, p.addr, p.done = c, addr, done
	c.afterAll(p.due)
}

// dropping is memory that is to be freed. The structs are reused: programs allocate and free frequently.
type dropping struct {
	c    *Context
	addr uint64
	done func()
	due  func(cuda.Result) // method value of carryOut of this one
}

var drops sync.Pool

func (p *dropping) carryOut(cuda.Result) {
	c, addr, done := p.c, p.addr, p.done
	p.c, p.done = nil, nil
	drops.Put(p)
	d := c.dev
	d.mu.Lock()
	n, ok := c.allocations[addr]
	delete(c.allocations, addr)
	d.mu.Unlock()
	if ok {
		d.giveBack(addr, n)
	}
	d.mu.Lock()
	c.freeing--
	d.freed.Broadcast()
	d.mu.Unlock()
	if done != nil {
		done()
	}
}
