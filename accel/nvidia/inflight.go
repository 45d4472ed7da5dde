//go:build cgo

package nvidia

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// inflightOp is one operation that was submitted to the driver, until its end was reported.
type inflightOp struct {
	ctx    *Context
	stream *Stream
	next   *inflightOp // in the stream

	behind []*inflightOp // of other streams; their ends are reported before this one's
	event  *Event        // that it records, or nil

	class   accel.Class
	key     uint64           // of the launch, for the history
	waits   *accel.WaitValue // that it is
	entered bool             // evictions are prevented until it has ended; see swap
	timing
	watched
	hostPart

	finish    func() // runs before the end is reported, if the operation succeeded
	settle    func() // runs in any case
	done      accel.Done
	followers []*barrier
	reporting bool // its callbacks are running, after its end
	reported  bool
}

// timing measures when the device executes an operation.
type timing struct {
	timed      bool         // the operation holds an engine
	begin, end driver.Event // recorded around it; nil if no wait or measurement is needed
	follows    *inflightOp  // in the stream; the operation began at its end unless it was submitted later: it has no event begin then
	base       *base        // the base that they are measured by
	submitted  int64
	delayed    int64 // time for which its submission waited for evictions
	ended      int64 // on the context's timeline
}

// watched describes the kernels of an operation to the watchdog.
type watched struct {
	kernel  string       // the kernel's name; "" if the operation is not a kernel
	kernels int64        // number of kernels, each of which may run for the time limit
	begun   atomic.Int64 // when the watchdog first saw that the operation had begun
}

// hostPart is a function that runs on the host while the operation's stream waits.
type hostPart struct {
	due     func(status cuda.Result, finished func()) // nil: the operation has none
	hold    *hold                                     // blocks the stream until finished is called
	past    driver.Event                              // recorded behind it
	release bool                                      // finished was called, or need not be called any more
	moves   bool                                      // due moves bytes
	depends bool                                      // the guest executes due
}

// barrier calls then once the ends of several operations were reported.
type barrier struct {
	n    int
	then func(cuda.Result)
}

// after calls then once the ends of all these operations were reported: at once if there are none. d.mu is held, and
// released.
func (c *Context) after(all []*inflightOp, then func(cuda.Result)) {
	d := c.dev
	if len(all) == 0 {
		d.mu.Unlock()
		then(c.Err())
		return
	}
	b := &barrier{n: len(all), then: then}
	for _, p := range all {
		p.followers = append(p.followers, b)
	}
	d.queued.Add(1 + int64(len(all)))
	d.mu.Unlock()
}

// append adds the operation just submitted to the driver to the stream's end.
func (s *Stream) append(p *inflightOp) {
	c := s.ctx
	d := c.dev
	p.ctx, p.stream = c, s
	d.mu.Lock()
	p.behind = append(p.behind, s.behind()...)
	if s.last != nil {
		s.last.next = p
	} else {
		s.first = p
	}
	s.last = p
	s.pending.Add(1)
	c.active[s] = struct{}{}
	c.live++
	d.queued.Add(1 + int64(len(p.behind)))
	if p.event != nil {
		p.event.pending = p
	}
	if p.hold != nil {
		d.held++
		if c.Err() == cuda.ErrorContextIsDestroyed { // since this was submitted
			p.letGo()
		}
	}
	start := !s.reporting
	s.reporting = true
	d.mu.Unlock()
	if start {
		go s.reportEnds()
	}
}

// reportEnds waits for the ends of the stream's operations and reports them, until no more have come for a while.
func (s *Stream) reportEnds() {
	for last := false; ; {
		p := s.head(last)
		switch {
		case p != nil:
			r, u := p.await()
			p.reportEnd(r, u)
			last = false
		case last:
			return
		default:
			s.linger()
			last = true
		}
	}
}

// head returns the stream's first operation, once the ends of all operations that it is behind were reported. last: the
// goroutine ends if there is none.
func (s *Stream) head(last bool) *inflightOp {
	d := s.ctx.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	p := s.first
	if p == nil {
		s.reporting = !last
		return nil
	}
	for _, b := range p.behind {
		for !b.reported {
			d.changed.Wait()
		}
	}
	return p
}

// await blocks until the operation has ended, and runs the actions of its end.
func (p *inflightOp) await() (cuda.Result, accel.Usage) {
	c := p.ctx
	u := accel.Usage{Class: p.class}
	if p.end != nil {
		p.lookFor()
		began, ended, r := c.time.await(p)
		c.waited(r)
		if r == cuda.Success && p.timed {
			u.Start, u.End = c.dev.charge(p.class, began, ended)
			u.Start -= p.delayed
		}
		if r == cuda.Success && p.key != 0 {
			c.dev.history.Learn(p.key, ended-began)
		}
	}
	p.exit()
	if p.due != nil {
		began := c.dev.clock()
		p.awaitHost()
		if p.moves {
			u.Start, u.End = c.dev.charge(p.class, began, c.dev.clock())
		}
	}
	if c.Err() == cuda.Success && p.finish != nil {
		p.finish()
	}
	if p.settle != nil {
		p.settle()
	}
	return c.Err(), u
}

// waited makes a failed wait the context's error: the end of later work can't be observed any more.
func (c *Context) waited(r cuda.Result) {
	if c.failIfSticky(r); r != cuda.Success && c.Err() == cuda.Success {
		c.dev.log.Error("wait for the device", "err", r)
		c.Fail(cuda.ErrorUnknown)
	}
}

// reportEnd runs the callbacks for the end of the operation.
func (p *inflightOp) reportEnd(r cuda.Result, u accel.Usage) {
	c, s := p.ctx, p.stream
	d := c.dev
	d.mu.Lock()
	p.reporting = true
	done := p.done
	p.done = nil
	d.mu.Unlock()
	if p.begun.Load() != 0 {
		d.watchdog.executes(0) // its time is charged now; the watchdog records other running work
	}
	if used := d.config.Used; used != nil && u.End > u.Start {
		used(u.Class, u.End-u.Start-p.delayed) // the engine held during the delay accounts for it
	}
	tellEnd(done, r, u)
	d.mu.Lock()
	p.reported = true
	s.pending.Add(-1)
	if s.first = p.next; s.first == nil {
		s.last = nil
		delete(c.active, s)
	}
	if e := p.event; e != nil && e.pending == p {
		e.pending, e.at = nil, p.ended
	}
	for _, e := range []driver.Event{p.begin, p.end, p.past} {
		if e != nil {
			c.events.spare = append(c.events.spare, e)
		}
	}
	var free []*barrier
	for _, b := range p.followers {
		if b.n--; b.n == 0 {
			free = append(free, b)
		}
	}
	if len(free) == 0 {
		c.live--
	}
	ended := int64(1 + len(p.behind) + len(p.followers))
	p.behind, p.followers, p.next, p.follows = nil, nil, nil, nil
	d.changed.Broadcast()
	d.mu.Unlock()
	if len(free) > 0 {
		for _, b := range free {
			b.then(c.Err())
		}
		d.mu.Lock()
		c.live-- // only now: the context is destroyed after all reports
		d.changed.Broadcast()
		d.mu.Unlock()
	}
	d.queued.Add(-ended - int64(len(free)))
}

// began returns when a running operation began, on the context's timeline.
func (p *inflightOp) began() (at int64, ok bool) {
	p.base.settle(p.ctx)
	if p.begin == nil {
		d := p.ctx.dev
		d.mu.Lock()
		defer d.mu.Unlock()
		if before := p.follows; before != nil && before.reporting {
			return before.ended, true
		}
		return p.base.at, true // its submission is later than that
	}
	_, ms, r := driver.Await(p.ctx.ctx, p.base.event, nil, p.begin)
	return p.base.at + ns(ms), r == cuda.Success
}

// hasBegun reports whether the operation has begun: whether the operations before it have ended.
func (p *inflightOp) hasBegun() bool {
	d := p.ctx.dev
	d.mu.Lock()
	e, before := p.begin, p.follows
	if before != nil {
		e = before.end // if its end is reported meanwhile, and its event is reused, the answer is too cautious once
		if before.reporting {
			e = nil
		}
	}
	d.mu.Unlock()
	return e == nil || driver.Query(p.ctx.ctx, e) == cuda.Success
}

// recorded returns an event just recorded in a stream.
func (s *Stream) recorded() (e driver.Event, r cuda.Result) {
	if e, r = s.ctx.events.take(); r != cuda.Success {
		return nil, r
	}
	if r = driver.Record(s.ctx.ctx, e, s.h); r != cuda.Success {
		s.ctx.events.keep(e)
		return nil, r
	}
	return e, cuda.Success
}

// perform submits work that holds an engine to the driver, between two events, and queues its operation.
func (s *Stream) perform(p *inflightOp, give func() cuda.Result) (r cuda.Result) {
	p.timed = true
	if r = s.ctx.enter(p); r != cuda.Success {
		return r
	}
	if r = s.prepare(p); r != cuda.Success {
		return s.ctx.forget(p, r)
	}
	if p.follows = s.predecessor(); p.follows == nil {
		if p.begin, r = s.recorded(); r != cuda.Success {
			return s.ctx.forget(p, r)
		}
	}
	if r = give(); r != cuda.Success {
		return s.ctx.forget(p, r)
	}
	if p.end, r = s.recorded(); r != cuda.Success {
		s.ctx.forget(p, r)
		if s.ctx.failIfSticky(r); s.ctx.Err() == cuda.Success {
			return r
		}
		// The driver accepted it, and it or earlier work has failed already: that is reported as its end.
		p.begin, p.end, p.base, p.follows, p.kernel, p.timed, p.key = nil, nil, nil, nil, "", false, 0
	}
	s.append(p)
	return cuda.Success
}

// predecessor returns the operation right before the next one, which begins at the event at that operation's end, and
// so needs no event of its own at the beginning; nil if there is none.
func (s *Stream) predecessor() *inflightOp {
	d := s.ctx.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	p := s.last
	if p == nil || p.reporting || !p.timed || p.end == nil || p.hold != nil || len(s.behind()) > 0 {
		return nil
	}
	return p
}

// prepare records when an operation is submitted.
func (s *Stream) prepare(p *inflightOp) (r cuda.Result) {
	p.submitted = s.ctx.dev.clock()
	p.base, r = s.ctx.time.now(s.ctx, p.submitted)
	return r
}

// forget drops an operation that the driver refused.
func (c *Context) forget(p *inflightOp, r cuda.Result) cuda.Result {
	p.exit()
	c.time.release(c, p.base)
	c.events.keep(p.begin, p.end)
	return r
}

// tellEnd calls done unless it is nil.
func tellEnd(done accel.Done, r cuda.Result, u accel.Usage) {
	if done != nil {
		done(r, u)
	}
}
