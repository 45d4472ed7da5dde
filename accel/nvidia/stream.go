//go:build cgo

package nvidia

import (
	"slices"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Stream is a queue of work in order: the driver's stream, and the operations with an end that is yet to be reported.
type Stream struct {
	ctx       *Context
	h         driver.Stream
	blocking  bool // keeps order with the legacy default stream
	legacy    bool
	destroyed bool

	first, last *inflightOp  // that have not ended
	reporting   bool         // a goroutine waits for them
	pending     atomic.Int32 // how many there are
}

var _ accel.Stream = (*Stream)(nil)

// submit queues work. Context.Submit has checked the stream and the context.
func (s *Stream) submit(w accel.Work, done accel.Done) cuda.Result {
	c := s.ctx
	switch w := w.(type) {
	case *accel.Launch:
		return s.launch(w, done)
	case accel.Launch:
		return s.launch(&w, done)
	case *accel.Copy:
		return s.copy(w, done)
	case accel.Copy:
		return s.copy(&w, done)
	case *accel.Fill:
		return s.fill(w, done)
	case accel.Fill:
		return s.fill(&w, done)
	case accel.Record:
		if e, ok := w.Event.(*Event); ok && e.ctx == c {
			return s.record(e, done)
		}
	case accel.WaitEvent:
		if e, ok := w.Event.(*Event); ok && e.ctx.dev == c.dev {
			return s.waitEvent(e, done)
		}
	case accel.WriteValue:
		return s.writeValue(&w, done)
	case accel.WaitValue:
		return s.waitValue(&w, done)
	case accel.HostFunc:
		if w.Due == nil {
			return cuda.ErrorInvalidValue
		}
		return s.hostFunc(&inflightOp{hostPart: hostPart{due: w.Due, depends: true}, done: done})
	case accel.Replay:
		if g, ok := w.Graph.(*Graph); ok && g.ctx == c && !g.destroyed {
			return s.replay(g, done)
		}
	}
	return cuda.ErrorInvalidHandle
}

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

// covered returns the last operations of all work that Query covers. d.mu is held.
func (s *Stream) covered() (all []*inflightOp) {
	if s.legacy {
		all = s.behind()
	}
	if s.last != nil {
		all = append(all, s.last)
	}
	return all
}

// allTold reports whether the callbacks of all operations are running.
func allTold(all []*inflightOp) bool {
	return !slices.ContainsFunc(all, func(p *inflightOp) bool { return !p.reporting })
}

// Query returns cuda.Success when all work of the stream has ended, else cuda.ErrorNotReady: an idle stream is ready beside
// a busy legacy one. A call after the end was reported returns cuda.Success.
func (s *Stream) Query() cuda.Result {
	d := s.ctx.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	all := s.covered()
	for len(all) != 0 && allTold(all) {
		d.changed.Wait()
		all = s.covered()
	}
	return s.ctx.Query(len(all) == 0)
}

// Ended calls done when the work has ended that Query covers now.
func (s *Stream) Ended(done func(cuda.Result)) {
	s.ctx.dev.mu.Lock()
	s.ctx.after(s.covered(), done)
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
