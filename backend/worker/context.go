package worker

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// guestContext is a context of the guest. The poller owns it, but for its
// errors, which callbacks of the device report.
type guestContext struct {
	s      *session
	id     uint32
	ctx    accel.Context
	owed   atomic.Int32 // first error of queued work that nobody was told of yet
	sticky atomic.Int32
	gone   atomic.Bool
	ended  accel.Done // end of this context, made once
}

// end ends work that nobody waits for.
func (g *guestContext) end(r cuda.Result, _ accel.Usage) {
	g.fail(r)
	g.s.ended()
}

// fail keeps the error of work that nobody waits for: for ever if it is sticky,
// else for the next call that synchronises. A nil context keeps nothing.
func (g *guestContext) fail(r cuda.Result) {
	if g == nil || r == cuda.Success || g.gone.Load() {
		return
	}
	if !r.Sticky() {
		if g.owed.CompareAndSwap(0, int32(r)) {
			g.s.host.Owe(g.id, true)
		}
		return
	}
	if g.sticky.CompareAndSwap(0, int32(r)) {
		g.s.host.PoisonContext(g.id, int32(r))
	}
	if r == cuda.ErrorLaunchTimeout {
		g.s.end(r, "a kernel ran for longer than its timeout")
	}
}

// report is what a caller is told of result r: a sticky error also ends the context.
func (g *guestContext) report(r cuda.Result) cuda.Result {
	if r.Sticky() {
		g.fail(r)
	}
	return r
}

// synced is what a synchronising call answers: its own error, or the one owed.
func (g *guestContext) synced(r cuda.Result) cuda.Result {
	if r == cuda.Success {
		g.s.host.Owe(g.id, false) // first, lest it undo what an error that comes now says
		return cuda.Result(g.owed.Swap(0))
	}
	return g.report(r)
}

// context finds the context that a call names.
func (s *session) context(c cuda.Call) (*guestContext, cuda.Result) {
	if c.Context >= callbuf.MaxContexts || s.contexts[c.Context] == nil {
		return nil, cuda.ErrorInvalidContext
	}
	return s.contexts[c.Context], cuda.Success
}

// roomyContext is context for a call that leaves something queued.
func (s *session) roomyContext(c cuda.Call) (*guestContext, cuda.Result) {
	g, r := s.context(c)
	if r == cuda.Success {
		r = s.room()
	}
	return g, r
}

// peek is context without complaint.
func (s *session) peek(c cuda.Call) *guestContext {
	g, _ := s.context(c)
	return g
}

func (s *session) Nop(cuda.Call) cuda.Result { return cuda.Success }

func (s *session) ContextCreate(c cuda.Call, a cuda.ContextCreateArgs) cuda.Result {
	switch {
	case c.Context == 0 || c.Context >= callbuf.MaxContexts:
		return cuda.ErrorInvalidValue
	case s.contexts[c.Context] != nil:
		return cuda.ErrorInvalidContext
	case a.Device != 0:
		return cuda.ErrorInvalidDevice
	}
	ctx, r := s.device.NewContext(a.Flags)
	if r != cuda.Success {
		return r
	}
	g := &guestContext{s: s, id: c.Context, ctx: ctx}
	g.ended = g.end
	s.contexts[c.Context] = g
	s.host.PoisonContext(c.Context, 0)
	s.host.Owe(c.Context, false)
	g.hear()
	return cuda.Success
}

func (s *session) ContextDestroy(c cuda.Call) cuda.Result {
	g, r := s.context(c)
	if r != cuda.Success {
		return r
	}
	s.begin()
	s.forget(g, func() {
		s.answer(c, cuda.Success, nil)
		s.ended()
	})
	return cuda.Deferred
}

// forget drops a context with all that it owns, and calls done when it is gone.
func (s *session) forget(g *guestContext, done func()) {
	s.going.Add(1)
	g.gone.Store(true)
	s.contexts[g.id] = nil
	s.modules.drop(func(m *module) bool {
		if m.g == g {
			s.imageBytes -= m.bytes
		}
		return m.g == g
	})
	s.streams.drop(func(t *stream) bool { return t.g == g })
	s.events.drop(func(e *event) bool {
		if e.g == g {
			e.retire()
		}
		return e.g == g
	})
	s.arrays.drop(func(a *array) bool { return a.g == g })
	s.textures.drop(func(t *texture) bool { return t.g == g })
	s.graphs.drop(func(gr *graph) bool {
		if gr.g == g {
			s.destroyGraph(gr)
		}
		return gr.g == g
	})
	for addr, owner := range s.allocs {
		if owner == g {
			delete(s.allocs, addr)
		}
	}
	s.callbacks.drop(g)
	giveBack := s.takeAttachments(g)
	g.ctx.Destroy(func() {
		giveBack()
		done()
		s.going.Done()
	})
}

func (s *session) ContextSynchronize(c cuda.Call) cuda.Result {
	g, r := s.roomyContext(c)
	if r != cuda.Success {
		return r
	}
	return s.whenSynced(c, g, g.ctx.Synchronize)
}

func (s *session) ContextSetLimit(c cuda.Call, a cuda.ContextSetLimitArgs) (cuda.ContextSetLimitResult, cuda.Result) {
	g, r := s.context(c)
	if r != cuda.Success {
		return cuda.ContextSetLimitResult{}, r
	}
	v, r := g.ctx.SetLimit(a.Limit, a.Value)
	return cuda.ContextSetLimitResult{Value: v}, r
}

// Goodbye ends the session. Whatever the guest still needs it has waited for.
func (s *session) Goodbye(cuda.Call) cuda.Result {
	s.end(cuda.ErrorDeinitialized, "")
	return cuda.Success
}
