package soft

import (
	"pegasus/accel"
	"pegasus/cuda"
)

// Stream is a queue of work in order. It refers to its last unfinished node only; dependencies order the earlier ones.
type Stream struct {
	ctx       *Context
	blocking  bool // keeps order with the legacy default stream
	legacy    bool
	urgent    bool
	destroyed bool
	last      *node
	place     int // in the context's list of active streams, -1 if idle
}

// streamList holds the streams with unfinished work, in no order.
type streamList []*Stream

func (l *streamList) add(s *Stream) {
	if s.place < 0 {
		s.place = len(*l)
		*l = append(*l, s)
	}
}

func (l *streamList) remove(s *Stream) {
	end := len(*l) - 1
	moved := (*l)[end]
	(*l)[s.place], moved.place = moved, s.place
	(*l)[end] = nil
	*l = (*l)[:end]
	s.place = -1
}

// append puts n at the stream's end. d.mu is held.
func (s *Stream) append(n *node) {
	n.stream, n.urgent = s, s.urgent
	s.order(n)
	s.last = n
	s.ctx.active.add(s)
}

// order makes n wait for all that work submitted to the stream now must wait for. d.mu is held.
func (s *Stream) order(n *node) {
	if !s.legacy {
		n.after(s.last)
		if s.blocking {
			n.after(s.ctx.legacy.last)
		}
		return
	}
	for _, other := range s.ctx.active {
		if other.blocking {
			n.after(other.last)
		}
	}
}

// idle reports whether work submitted now would wait for nothing. d.mu is held.
func (s *Stream) idle() bool {
	return s.behind(isNone)
}

// ended reports whether so holds for the last nodes of all work that Query covers. d.mu is held.
func (s *Stream) ended(so func(*node) bool) bool {
	if s.legacy {
		return s.behind(so)
	}
	return so(s.last)
}

// isNone reports whether there is no node, isTold whether there is none or its callback is running.
func isNone(n *node) bool { return n == nil }
func isTold(n *node) bool { return n == nil || n.telling.Load() }

// behind reports whether so holds for all nodes that work submitted now would wait for. d.mu is held.
func (s *Stream) behind(so func(*node) bool) bool {
	if !s.legacy {
		return so(s.last) && (!s.blocking || so(s.ctx.legacy.last))
	}
	for _, other := range s.ctx.active {
		if other.blocking && !so(other.last) {
			return false
		}
	}
	return true
}

// Query returns cuda.Success when all work of the stream has ended, else cuda.ErrorNotReady: an idle stream is ready beside
// a busy legacy one. As for Event.Time, a call after the end was reported returns cuda.Success.
func (s *Stream) Query() cuda.Result {
	d := s.ctx.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for !s.ended(isNone) && s.ended(isTold) {
		d.reported.Wait()
	}
	return s.ctx.Query(s.ended(isNone))
}

// Ended calls done when the work has ended that Query covers now.
func (s *Stream) Ended(done func(cuda.Result)) {
	if s.legacy {
		s.Synchronize(done)
		return
	}
	d := s.ctx.dev
	d.mu.Lock()
	if s.last == nil {
		d.mu.Unlock()
		done(s.ctx.Err())
		return
	}
	n := d.newNode(s.ctx, actionNode)
	n.then = done
	n.after(s.last)
	d.submit(n)
}

// Synchronize calls done when everything submitted to the stream so far has ended.
func (s *Stream) Synchronize(done func(cuda.Result)) {
	d := s.ctx.dev
	d.mu.Lock()
	if s.idle() {
		d.mu.Unlock()
		done(s.ctx.Err())
		return
	}
	n := d.newNode(s.ctx, actionNode)
	n.then = done
	s.order(n)
	d.submit(n)
}

// Destroy releases the stream once its work has ended.
func (s *Stream) Destroy() {
	if !s.legacy {
		s.ctx.dev.mu.Lock()
		s.destroyed = true
		s.ctx.dev.mu.Unlock()
	}
}

var _ accel.Stream = (*Stream)(nil)
