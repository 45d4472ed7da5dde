//go:build cgo

package nvidia

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Stream is a queue of work in order: the driver's stream, and the operations whose end is yet to be reported.
type Stream struct {
	ctx       *Context
	h         driver.Stream
	blocking  bool // keeps order with the legacy default stream
	legacy    bool
	destroyed bool

	first, last *inflightOp  // that have not ended
	telling     bool         // a goroutine waits for them
	pending     atomic.Int32 // how many there are
}

var _ accel.Stream = (*Stream)(nil)

// behind returns the last operations of other streams that work submitted now depends on. d.mu is held.
func (s *Stream) behind() (all []*inflightOp) {
	c := s.ctx
	if !s.legacy {
		if s.blocking && c.legacy.last != nil {
			all = append(all, c.legacy.last)
		}
		return all
	}
	for other := range c.active {
		if other.blocking && other != s {
			all = append(all, other.last)
		}
	}
	return all
}

// idle reports whether work submitted now would wait for nothing. d.mu is held.
func (s *Stream) idle() bool { return s.last == nil && len(s.behind()) == 0 }

// ending reports whether the stream would be idle but for operations whose callbacks are running. d.mu is held.
func (s *Stream) ending() bool {
	for _, p := range append(s.behind(), s.last) {
		if p != nil && !p.telling {
			return false
		}
	}
	return true
}

// Query returns cuda.Success when all work of the stream has ended, else cuda.ErrorNotReady. A call after the end was
// reported returns cuda.Success.
func (s *Stream) Query() cuda.Result {
	d := s.ctx.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for !s.idle() && s.ending() {
		d.changed.Wait()
	}
	return s.ctx.Query(s.idle())
}

// Synchronize calls done when everything submitted to the stream so far has ended.
func (s *Stream) Synchronize(done func(cuda.Result)) {
	s.ctx.dev.mu.Lock()
	all := s.behind()
	if s.last != nil {
		all = append(all, s.last)
	}
	s.ctx.after(all, done)
}

// Destroy releases the stream once its work has ended.
func (s *Stream) Destroy() {
	if s.legacy || s.destroyed {
		return
	}
	s.destroyed = true
	s.ctx.streams--
	driver.DestroyStream(s.ctx.ctx, s.h) // the driver frees the stream when it is empty
}
