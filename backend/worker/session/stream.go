package session

import (
	"pegasus/accel"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

// stream is a stream of the guest, in its context.
type stream struct {
	g *guestContext
	s accel.Stream
}

// streams owns the streams of the guest process, by their ids, and handles the calls about them. The poller owns it.
type streams struct {
	base
	table handles.Table[*stream]
}

// forWork is of for a call that queues work: it blocks until the device has capacity.
func (h *streams) forWork(c cuda.Call) (*guestContext, accel.Stream, cuda.Result) {
	g, st, r := h.of(c)
	if r == cuda.Success {
		r = h.work.awaitCapacity()
	}
	return g, st, r
}

// of returns the context and the stream that a call names.
func (h *streams) of(c cuda.Call) (*guestContext, accel.Stream, cuda.Result) {
	g, r := h.contexts.of(c)
	if r != cuda.Success {
		return nil, nil, r
	}
	if c.Stream == cuda.StreamNull || c.Stream == cuda.StreamLegacy {
		return g, g.ctx.DefaultStream(), cuda.Success
	}
	t, r := h.table.Get(c.Stream)
	if r != cuda.Success {
		return g, nil, r
	}
	if t.g != g {
		return g, nil, cuda.ErrorInvalidHandle
	}
	return g, t.s, cuda.Success
}

func (h *streams) StreamCreate(c cuda.Call, a cuda.StreamCreateArgs) cuda.Result {
	g, r := h.contexts.of(c)
	if r != cuda.Success {
		return r
	}
	if a.Stream < cuda.FirstStream {
		return cuda.ErrorInvalidHandle
	}
	if r := h.table.Available(a.Stream); r != cuda.Success {
		return r
	}
	st, r := g.ctx.NewStream(a.Flags, a.Priority)
	if r != cuda.Success {
		return h.table.Fail(a.Stream, r)
	}
	h.table.Put(a.Stream, &stream{g, st})
	return cuda.Success
}

func (h *streams) StreamDestroy(_ cuda.Call, a cuda.StreamDestroyArgs) cuda.Result {
	t, r := h.table.Take(a.Stream)
	if r == cuda.Success {
		t.s.Destroy()
		t.g.keepForContext(a.Stream)
	}
	return r
}

func (h *streams) StreamSynchronize(c cuda.Call) cuda.Result {
	g, st, r := h.forWork(c)
	if r != cuda.Success {
		return r
	}
	return h.work.whenSynced(c, g, c.Stream, st.Synchronize)
}

func (h *streams) StreamQuery(c cuda.Call) cuda.Result {
	g, st, r := h.of(c)
	if r != cuda.Success {
		return r
	}
	return g.report(st.Query())
}

func (h *streams) dropContext(g *guestContext) {
	h.table.DeleteFunc(func(t *stream) bool { return t.g == g })
}
