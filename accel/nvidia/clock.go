//go:build cgo

package nvidia

import (
	"sync"

	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// timeline is a context's time, in nanoseconds since its creation, as the device measures it. The driver returns only
// differences, in milliseconds as float32, which are exact to the microsecond for some seconds: so a new base is
// recorded at intervals, and its position is measured from the previous one.
//
// The offset from the host's clock is bounded as follows: no work has begun before it was submitted, nor ended after
// its end was observed. So differences between the clocks' rates don't add up, and no extra measurement is needed.
type timeline struct {
	current *base
	offset  int64 // of the host's clock; guarded by the device's mutex
	origin  int64 // offset at the beginning; events' times are added to it
}

// base is an event with a position in time, which settle determines.
type base struct {
	event  driver.Event
	made   int64 // host's time
	before *base // the base that at is relative to, until settle
	once   sync.Once
	at     int64
	users  int // operations and bases; guarded by the device's mutex
}

// baseLasts is for how long times are measured from a base, in ns: float32 has a resolution of 0.25 µs then.
const baseLasts = 4_000_000_000

func (t *timeline) begin(c *Context) cuda.Result {
	b, r := c.newBase(nil)
	if r == cuda.Success {
		r = driver.SyncStream(c.ctx, c.aside)
	}
	if r != cuda.Success {
		return r
	}
	t.offset = c.dev.clock()
	t.current, t.origin, b.made = b, t.offset, t.offset
	return cuda.Success
}

func (c *Context) newBase(before *base) (*base, cuda.Result) {
	e, r := c.events.take()
	if r != cuda.Success {
		return nil, r
	}
	if r := driver.Record(c.ctx, e, c.aside); r != cuda.Success {
		c.events.keep(e)
		return nil, r
	}
	return &base{event: e, before: before, made: c.dev.clock()}, cuda.Success
}

// now returns the base for work that is submitted now.
func (t *timeline) now(c *Context, now int64) (*base, cuda.Result) {
	d := c.dev
	if now-t.current.made > baseLasts {
		next, r := c.newBase(t.current)
		if r != cuda.Success {
			return nil, r
		}
		d.mu.Lock()
		t.current.users++
		t.current = next
		d.mu.Unlock()
	}
	d.mu.Lock()
	t.current.users++
	d.mu.Unlock()
	return t.current, cuda.Success
}

// release drops one use of a base.
func (t *timeline) release(c *Context, b *base) {
	if b == nil {
		return
	}
	d := c.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if b.users--; b.users == 0 && b != t.current && b.before == nil {
		c.events.spare = append(c.events.spare, b.event)
	}
}

// settle determines the position of a base.
func (b *base) settle(c *Context) {
	b.once.Do(func() {
		before := b.before
		if before == nil {
			return
		}
		before.settle(c)
		_, ms, r := driver.Await(c.ctx, before.event, nil, b.event)
		if r != cuda.Success { // all later work fails, too
			ms = 0
		}
		b.at = before.at + ns(ms)
		c.dev.mu.Lock()
		b.before = nil
		c.dev.mu.Unlock()
		c.time.release(c, before)
	})
}

func ns(ms float32) int64 { return int64(float64(ms) * 1e6) }

// await waits until an operation has ended, and returns when it was executed, by the host's clock.
func (t *timeline) await(p *inflightOp) (began, ended int64, r cuda.Result) {
	c, b := p.ctx, p.base
	if b == nil {
		_, _, r = driver.Await(c.ctx, nil, nil, p.end)
		return 0, 0, r
	}
	b.settle(c)
	from, to, r := driver.Await(c.ctx, b.event, p.begin, p.end)
	t.release(c, b)
	if r != cuda.Success {
		return 0, 0, r
	}
	began, ended = b.at+ns(from), b.at+ns(to)
	switch {
	case p.follows != nil:
		began = p.follows.ended
	case p.begin == nil:
		began = ended
	}
	p.ended = ended
	d := c.dev
	now := d.clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.timed && p.follows == nil {
		t.offset = max(t.offset, p.submitted-began)
	}
	t.offset = min(t.offset, now-ended)
	began, ended = began+t.offset, max(began, ended)+t.offset
	if p.follows != nil {
		began = min(max(began, p.submitted), ended)
	}
	return began, ended, cuda.Success
}
