package worker

import (
	"slices"
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/callbuf"
	"pegasus/cuda"
)

// guestContext is a context of the guest. The poller owns it, except its errors, which callbacks of the device report.
type guestContext struct {
	s      *session
	id     uint32
	ctx    accel.Context
	can    accel.ContextCapabilities // of ctx
	debts  debts
	sticky atomic.Int32
	gone   atomic.Bool
	ended  accel.Done // the method value g.end, made once
}

// debts are the nonsticky errors of queued work that no call has returned yet: the first one of each stream.
type debts struct {
	mu  sync.Mutex
	all []debt
}

// debt is the pending error of one stream.
type debt struct {
	stream uint64
	r      cuda.Result
}

// maxDebts bounds the streams whose errors a context keeps separately.
const maxDebts = 1024

// noStream stands for the stream of work without one of its own: only calls that synchronise the context return its
// errors.
const noStream = ^uint64(0)

// end completes work without a reply.
func (g *guestContext) end(r cuda.Result, _ accel.Usage) {
	g.fail(noStream, r)
	g.s.ended()
}

// fail keeps the error of work without a reply: for ever if it is sticky, else for the next call that synchronises its
// stream. It does nothing for a nil context.
func (g *guestContext) fail(stream uint64, r cuda.Result) {
	if g == nil || r == cuda.Success || g.gone.Load() {
		return
	}
	if !r.Sticky() {
		g.owe(stream, r)
		return
	}
	if g.sticky.CompareAndSwap(0, int32(r)) {
		g.s.host.PoisonContext(g.id, int32(r))
	}
	if r == cuda.ErrorLaunchTimeout {
		g.s.end(r, "a kernel ran for longer than its timeout")
	}
}

// owe keeps the error of a stream without a pending one; for streams beyond maxDebts, one for all calls that
// synchronise the context.
func (g *guestContext) owe(stream uint64, r cuda.Result) {
	d := &g.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	if stream = canonical(stream); len(d.all) >= maxDebts {
		stream = noStream
	}
	if !d.has(stream) {
		d.all = append(d.all, debt{stream, r})
		g.s.host.Owe(g.id, true)
	}
}

// has reports whether a stream has a pending error. d.mu is held.
func (d *debts) has(stream uint64) bool {
	return slices.ContainsFunc(d.all, func(o debt) bool { return o.stream == stream })
}

// orphan moves the pending error of a destroyed stream to the context, unless the context has one already.
func (g *guestContext) orphan(stream uint64) {
	d := &g.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.all, func(o debt) bool { return o.stream == stream })
	switch {
	case i < 0:
	case d.has(noStream):
		d.all = slices.Delete(d.all, i, i+1)
	default:
		d.all[i].stream = noStream
	}
}

// debtor returns the stream under which the error of a call without a reply is kept: that of the call for work queued in
// a stream, else noStream.
func debtor(c cuda.Call) uint64 {
	switch c.Op {
	case cuda.OpLaunch, cuda.OpGraphLaunch, cuda.OpCopy, cuda.OpCopyLinear, cuda.OpFill, cuda.OpHostCallback,
		cuda.OpEventRecord, cuda.OpStreamWaitEvent, cuda.OpStreamValue, cuda.OpStreamMark:
		return c.Stream
	}
	return noStream
}

// canonical returns the number under which a stream's errors are kept: the default stream has two names.
func canonical(stream uint64) uint64 {
	if stream == cuda.StreamNull {
		return cuda.StreamLegacy
	}
	return stream
}

// settle returns and clears a stream's pending error; of everyStream, it returns the oldest one and clears all.
func (g *guestContext) settle(stream uint64) (r cuda.Result) {
	stream = canonical(stream)
	d := &g.debts
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.all, func(o debt) bool { return o.stream == stream || stream == everyStream })
	if i < 0 {
		return cuda.Success
	}
	r = d.all[i].r
	if d.all = slices.Delete(d.all, i, i+1); stream == everyStream {
		d.all = nil
	}
	if len(d.all) == 0 {
		g.s.host.Owe(g.id, false)
	}
	return r
}

// everyStream stands for all streams of a context.
const everyStream = noStream - 1

// report returns r for the caller; a sticky error also ends the context.
func (g *guestContext) report(r cuda.Result) cuda.Result {
	if r.Sticky() {
		g.fail(noStream, r)
	}
	return r
}

// synced returns the result of a call that synchronises a stream, or everyStream: the call's own error, or the pending
// one.
func (g *guestContext) synced(stream uint64, r cuda.Result) cuda.Result {
	if r == cuda.Success {
		return g.settle(stream)
	}
	return g.report(r)
}

// context returns the context that a call names.
func (s *session) context(c cuda.Call) (*guestContext, cuda.Result) {
	if c.Context >= callbuf.MaxContexts || s.contexts[c.Context] == nil {
		return nil, cuda.ErrorInvalidContext
	}
	return s.contexts[c.Context], cuda.Success
}

// roomyContext is context for a call that queues work.
func (s *session) roomyContext(c cuda.Call) (*guestContext, cuda.Result) {
	g, r := s.context(c)
	if r == cuda.Success {
		r = s.room()
	}
	return g, r
}

// peek is context without an error: it returns nil for none.
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
	g := &guestContext{s: s, id: c.Context, ctx: ctx, can: ctx.Capabilities()}
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

// forget removes a context with all its objects, and calls done after its destruction.
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
	return s.whenSynced(c, g, everyStream, g.ctx.Synchronize)
}

func (s *session) ContextSetLimit(c cuda.Call, a cuda.ContextSetLimitArgs) (cuda.ContextSetLimitResult, cuda.Result) {
	g, r := s.context(c)
	if r != cuda.Success {
		return cuda.ContextSetLimitResult{}, r
	}
	v, r := g.ctx.SetLimit(a.Limit, a.Value)
	return cuda.ContextSetLimitResult{Value: v}, r
}

// Goodbye ends the session. The guest has waited for all results that it needs.
func (s *session) Goodbye(cuda.Call) cuda.Result {
	s.end(cuda.ErrorDeinitialized, "")
	return cuda.Success
}
