package session

import (
	"slices"
	"sync"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/backend/worker/handles"
	"pegasus/cuda"
)

// callbacks are the host functions that the guest's own threads run. A stream with a due callback is blocked until the
// guest reports the callback as done. It handles the calls about them.
type callbacks struct {
	base
	streams *streams

	count atomic.Int32 // len(queued)+expected, readable without mu
	given atomic.Int32 // len(queued)

	mu       sync.Mutex
	expected int                  // host callback nodes of launched graphs
	queued   map[uint64]*callback // from HostCallback until reported done
	due      []uint64             // not yet passed to the guest, in order
	waiting  []cuda.Call          // CallbackWait calls without a due callback
}

// callback is one host function. The callbacks' mu guards it; finished unblocks its stream.
type callback struct {
	g        *guestContext
	status   cuda.Result
	passed   bool // to the guest
	finished func()
}

// maxCallbackThreads bounds the calls that wait for a callback.
const maxCallbackThreads = 64

// any reports whether work in flight depends on the guest or may come to.
func (b *callbacks) any() bool { return b.count.Load() != 0 }

// outstanding is any without the callbacks of graphs that are not due yet: work before those completes on its own.
func (b *callbacks) outstanding() bool { return b.given.Load() != 0 }

func (b *callbacks) add(id uint64, g *guestContext) (*callback, cuda.Result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id == 0 || b.queued[id] != nil {
		return nil, cuda.ErrorInvalidHandle
	}
	if len(b.queued) >= handles.Max {
		return nil, cuda.ErrorOutOfMemory
	}
	if g != nil && g.gone.Load() {
		return nil, cuda.ErrorContextIsDestroyed
	}
	k := &callback{g: g}
	b.queued[id] = k
	b.counted()
	return k, cuda.Success
}

// remove drops a callback that its stream has passed: the guest reported it, or it will never be due. Its id may belong
// to another callback by now.
func (b *callbacks) remove(id uint64, k *callback) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queued[id] == k {
		delete(b.queued, id)
		b.counted()
	}
}

func (b *callbacks) counted() {
	b.count.Store(int32(len(b.queued) + b.expected))
	b.given.Store(int32(len(b.queued)))
}

// expect adds n to the number of expected callbacks; n may be negative.
func (b *callbacks) expect(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected += n
	b.counted()
}

// next takes the callback that the guest is to run now.
func (b *callbacks) next() (out cuda.CallbackWaitResult, ok bool) {
	for len(b.due) != 0 {
		id := b.due[0]
		b.due = b.due[1:]
		if k := b.queued[id]; k != nil {
			k.passed = true
			return cuda.CallbackWaitResult{Callback: id, Status: int32(k.status)}, true
		}
	}
	return out, false
}

// dropContext also unblocks the streams of the context.
func (b *callbacks) dropContext(g *guestContext) {
	var blocked []func()
	b.mu.Lock()
	for id, k := range b.queued {
		if k.g != g {
			continue
		}
		delete(b.queued, id)
		if k.finished != nil {
			blocked = append(blocked, k.finished)
		}
	}
	b.counted()
	b.due = slices.DeleteFunc(b.due, func(id uint64) bool { return b.queued[id] == nil })
	b.mu.Unlock()
	for _, finished := range blocked {
		finished()
	}
}

func (b *callbacks) HostCallback(c cuda.Call, a cuda.HostCallbackArgs) cuda.Result {
	g, st, r := b.streams.forWork(c)
	if r != cuda.Success {
		return r
	}
	k, r := b.add(a.Callback, g)
	if r != cuda.Success {
		return r
	}
	due := func(status cuda.Result, finished func()) { b.deliver(a.Callback, k, status, finished) }
	ended := func(r cuda.Result, u accel.Usage) {
		b.remove(a.Callback, k)
		g.end(r, u)
	}
	if r = b.work.submit(g, st, accel.HostFunc{Due: due}, ended); r != cuda.Success {
		b.remove(a.Callback, k)
	}
	return r
}

// deliver passes a callback to a waiting guest thread, or keeps it for the next one.
func (b *callbacks) deliver(id uint64, k *callback, status cuda.Result, finished func()) {
	b.mu.Lock()
	if b.queued[id] != k {
		b.mu.Unlock()
		finished() // its context is being destroyed
		return
	}
	k.status, k.finished = status, finished
	b.due = append(b.due, id)
	if len(b.waiting) == 0 {
		b.mu.Unlock()
		return
	}
	c := b.waiting[0]
	b.waiting = slices.Delete(b.waiting, 0, 1)
	out, _ := b.next()
	b.mu.Unlock()
	b.answer(c, cuda.Success, out.Append(nil))
}

func (b *callbacks) CallbackWait(c cuda.Call, a cuda.CallbackWaitArgs) (out cuda.CallbackWaitResult, r cuda.Result) {
	b.mu.Lock()
	var finished func()
	if k := b.queued[a.Done]; k != nil && k.passed {
		finished = k.finished
		delete(b.queued, a.Done)
		b.counted()
	}
	out, ok := b.next()
	if !ok {
		if len(b.waiting) >= maxCallbackThreads {
			r = cuda.ErrorInvalidValue
		} else {
			b.waiting = append(b.waiting, c)
			r = cuda.Deferred
		}
	}
	b.mu.Unlock()
	if finished != nil {
		finished()
	}
	return out, r
}
