package session

import (
	"slices"
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/cuda"
)

// guestContext is a context of the guest. The poller owns it, except its errors, which callbacks of the device report.
type guestContext struct {
	work    *submitter
	id      uint32
	ctx     accel.Context
	can     accel.ContextCapabilities // of ctx
	pending pendingErrors
	sticky  atomic.Int32
	gone    atomic.Bool
	ended   accel.Done // the method value g.end, made once
}

// pendingErrors are the nonsticky errors of queued work that no call has returned yet: the first one of each stream.
type pendingErrors struct {
	mu  sync.Mutex
	all []pendingError
}

// pendingError is the pending error of one stream.
type pendingError struct {
	stream uint64
	r      cuda.Result
}

// maxPendingErrors bounds the streams for which a context keeps separate errors.
const maxPendingErrors = 1024

// noStream stands for the stream of work without one of its own: only calls that synchronise the context return its
// errors.
const noStream = ^uint64(0)

// end completes work without a reply.
func (g *guestContext) end(r cuda.Result, _ accel.Usage) {
	g.fail(noStream, r)
	g.work.ended()
}

// fail keeps the error of work without a reply: for ever if it is sticky, else for the next call that synchronises its
// stream. It does nothing for a nil context.
func (g *guestContext) fail(stream uint64, r cuda.Result) {
	if g == nil || r == cuda.Success || g.gone.Load() {
		return
	}
	if !r.Sticky() {
		g.keepError(stream, r)
		return
	}
	if g.sticky.CompareAndSwap(0, int32(r)) {
		g.work.host.PoisonContext(g.id, int32(r))
	}
	if r == cuda.ErrorLaunchTimeout {
		g.work.end(r, "a kernel ran for longer than its timeout")
	}
}

// keepError keeps the error of a stream without a pending one; for streams beyond maxPendingErrors, one for all calls
// that synchronise the context.
func (g *guestContext) keepError(stream uint64, r cuda.Result) {
	d := &g.pending
	d.mu.Lock()
	defer d.mu.Unlock()
	if stream = canonical(stream); len(d.all) >= maxPendingErrors {
		stream = noStream
	}
	if !d.has(stream) {
		d.all = append(d.all, pendingError{stream, r})
		g.work.host.Owe(g.id, true)
	}
}

// has reports whether a stream has a pending error. d.mu is held.
func (d *pendingErrors) has(stream uint64) bool {
	return slices.ContainsFunc(d.all, func(o pendingError) bool { return o.stream == stream })
}

// keepForContext moves the pending error of a destroyed stream to the context, unless the context has one already.
func (g *guestContext) keepForContext(stream uint64) {
	d := &g.pending
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.all, func(o pendingError) bool { return o.stream == stream })
	switch {
	case i < 0:
	case d.has(noStream):
		d.all = slices.Delete(d.all, i, i+1)
	default:
		d.all[i].stream = noStream
	}
}

// errorStream returns the stream under which the error of a call without a reply is kept: that of the call for work
// queued in a stream, else noStream.
func errorStream(c cuda.Call) uint64 {
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

// takeError returns and clears a stream's pending error; of everyStream, it returns the oldest one and clears all.
func (g *guestContext) takeError(stream uint64) (r cuda.Result) {
	stream = canonical(stream)
	d := &g.pending
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.all, func(o pendingError) bool { return o.stream == stream || stream == everyStream })
	if i < 0 {
		return cuda.Success
	}
	r = d.all[i].r
	if d.all = slices.Delete(d.all, i, i+1); stream == everyStream {
		d.all = nil
	}
	if len(d.all) == 0 {
		g.work.host.Owe(g.id, false)
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
		return g.takeError(stream)
	}
	return g.report(r)
}

// prepare compiles a kernel before its first launch. Admitted work holds its domain's turn: other domains wait for it,
// and should not wait for a compiler.
func (g *guestContext) prepare(w *accel.Launch) {
	if p := g.can.Preparation; p != nil {
		p.Prepare(w)
	}
}

// prepared reports whether prepare has nothing to do, so that a launch need not wait for a preparation slot.
func (g *guestContext) prepared(w *accel.Launch) bool {
	p := g.can.Preparation
	return p == nil || p.Prepared(w)
}
