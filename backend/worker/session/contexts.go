package session

import (
	"sync"

	"pegasus/callbuf"
	"pegasus/cuda"
)

// contexts owns the contexts of the guest process, and handles the calls about them. The poller owns it.
type contexts struct {
	*core
	work       *submitter
	all        [callbuf.MaxContexts]*guestContext
	owners     []objectOwner
	segments   *segments
	destroying sync.WaitGroup // contexts that are being destroyed
}

// objectOwner is a group of calls about objects that belong to contexts.
type objectOwner interface {
	// dropContext removes the objects of a context that is being destroyed.
	dropContext(*guestContext)
}

// of returns the context that a call names.
func (h *contexts) of(c cuda.Call) (*guestContext, cuda.Result) {
	if c.Context >= callbuf.MaxContexts || h.all[c.Context] == nil {
		return nil, cuda.ErrorInvalidContext
	}
	return h.all[c.Context], cuda.Success
}

// forWork is of for a call that queues work: it blocks until the device has capacity.
func (h *contexts) forWork(c cuda.Call) (*guestContext, cuda.Result) {
	g, r := h.of(c)
	if r == cuda.Success {
		r = h.work.awaitCapacity()
	}
	return g, r
}

// peek is of without an error: it returns nil for none.
func (h *contexts) peek(c cuda.Call) *guestContext {
	g, _ := h.of(c)
	return g
}

func (h *contexts) Nop(cuda.Call) cuda.Result { return cuda.Success }

func (h *contexts) ContextCreate(c cuda.Call, a cuda.ContextCreateArgs) cuda.Result {
	switch {
	case c.Context == 0 || c.Context >= callbuf.MaxContexts:
		return cuda.ErrorInvalidValue
	case h.all[c.Context] != nil:
		return cuda.ErrorInvalidContext
	case a.Device != 0:
		return cuda.ErrorInvalidDevice
	}
	ctx, r := h.device.NewContext(a.Flags)
	if r != cuda.Success {
		return r
	}
	g := &guestContext{work: h.work, id: c.Context, ctx: ctx, can: ctx.Capabilities()}
	g.ended = g.end
	h.all[c.Context] = g
	h.host.PoisonContext(c.Context, 0)
	h.host.Owe(c.Context, false)
	g.publishText()
	return cuda.Success
}

func (h *contexts) ContextDestroy(c cuda.Call) cuda.Result {
	g, r := h.of(c)
	if r != cuda.Success {
		return r
	}
	h.work.begin()
	h.forget(g, func() {
		h.answer(c, cuda.Success, nil)
		h.work.ended()
	})
	return cuda.Deferred
}

// forget removes a context with all its objects, and calls done after its destruction.
func (h *contexts) forget(g *guestContext, done func()) {
	h.destroying.Add(1)
	g.gone.Store(true)
	h.all[g.id] = nil
	for _, o := range h.owners {
		o.dropContext(g)
	}
	release := h.segments.take(g)
	g.ctx.Destroy(func() {
		release()
		done()
		h.destroying.Done()
	})
}

// forgetAll removes all contexts, and returns after their destruction.
func (h *contexts) forgetAll() {
	for _, g := range h.all {
		if g != nil {
			h.forget(g, func() {})
		}
	}
	h.destroying.Wait()
}

func (h *contexts) ContextSynchronize(c cuda.Call) cuda.Result {
	g, r := h.forWork(c)
	if r != cuda.Success {
		return r
	}
	return h.work.whenSynced(c, g, everyStream, g.ctx.Synchronize)
}

func (h *contexts) ContextSetLimit(c cuda.Call, a cuda.ContextSetLimitArgs) (cuda.ContextSetLimitResult, cuda.Result) {
	g, r := h.of(c)
	if r != cuda.Success {
		return cuda.ContextSetLimitResult{}, r
	}
	v, r := g.ctx.SetLimit(a.Limit, a.Value)
	return cuda.ContextSetLimitResult{Value: v}, r
}

// Goodbye ends the session. The guest has waited for all results that it needs.
func (h *contexts) Goodbye(cuda.Call) cuda.Result {
	h.end(cuda.ErrorDeinitialized, "")
	return cuda.Success
}

// TensorMap serves devices with kernels that copy tiles of tensors.
func (h *contexts) TensorMap(c cuda.Call, a cuda.TensorMapArgs) (out cuda.TensorMapResult, r cuda.Result) {
	g, r := h.of(c)
	if r != cuda.Success {
		return out, r
	}
	m := g.can.Tensors
	if m == nil {
		return out, cuda.ErrorNotSupported
	}
	out.Map, r = m.TensorMap(&a)
	return out, g.report(r)
}
