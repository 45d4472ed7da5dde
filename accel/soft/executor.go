package soft

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// executor does the work of one engine, one piece after the other.
type executor struct {
	dev    *Device
	token  engine.Token
	work   sync.Cond   // with d.mu: the queue is not empty, or the device is closing
	cancel atomic.Bool // ends what is being executed
	timely atomic.Bool // false: the watchdog has set cancel

	stopped  func() bool // the work that executes is wanted no more
	due      func() bool // the slice of a copy or fill is over
	sliceEnd int64
	tile     []byte // of a fill's pattern

	hold
	kernelRun run         // of the kernel that is being executed
	mayYield  func() bool // yield and resume; nil if it is always the device's turn
	mayResume func()

	// guarded by d.mu
	urgent, queue nodeQueue
	current       *node // being executed, by run or on the submitter's goroutine
	idle          bool  // run sleeps
}

func newExecutor(d *Device, k engine.Token) *executor {
	e := &executor{dev: d, token: k}
	e.work.L = &d.mu
	e.stopped = func() bool { return e.cancel.Load() || d.closing.Load() || d.aborted.Load() }
	e.due = func() bool { return d.clock() >= e.sliceEnd }
	if d.config.Turn != nil {
		e.mayYield, e.mayResume = e.yield, e.resume
	}
	return e
}

// enqueue adds a node that waits for nothing. d.mu is held.
func (e *executor) enqueue(n *node) {
	if n.urgent {
		e.urgent.push(n)
	} else {
		e.queue.push(n)
	}
	if e.idle && e.current == nil {
		e.idle = false
		e.work.Signal()
	}
}

// take returns the next node to execute, or nil. d.mu is held.
func (e *executor) take() *node {
	n := e.urgent.pop()
	if n == nil {
		n = e.queue.pop()
	}
	if n != nil {
		e.begin(n)
	}
	return n
}

// begin makes n the node that is executed. d.mu is held.
func (e *executor) begin(n *node) {
	e.current = n
	e.timely.Store(true)
	e.cancel.Store(n.ctx.destroyed != nil || e.dev.aborted.Load())
}

// run executes until the device is closed.
func (e *executor) run() {
	debug.SetPanicOnFault(true)
	for n := e.next(); n != nil; n = e.next() {
		e.over(n, e.execute(n))
	}
}

// over ends what had the engine, or queues it for another turn if there is more to do.
func (e *executor) over(n *node, r cuda.Result) {
	if r != cuda.Success || !n.more {
		e.dev.finish(n, r, n.usage(), e)
		return
	}
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	n.inline, n.more = false, false
	e.current = nil
	e.enqueue(n)
}

// next waits for a node to execute. It returns nil when the device is closed.
func (e *executor) next() *node {
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if e.current == nil {
			if n := e.take(); n != nil {
				return n
			}
		}
		if d.closing.Load() && len(d.contexts) == 0 {
			return nil
		}
		e.idle = true
		e.work.Wait()
		e.idle = false
	}
}

// ended notes that nothing is being executed. d.mu is held.
func (e *executor) ended() {
	e.current = nil
	if e.idle && (e.queue.head != nil || e.urgent.head != nil) {
		e.idle = false
		e.work.Signal()
	}
}

// inline executes a small piece of work on the submitter's goroutine if the
// engine is idle and its token free. d.mu is held; if inline returns true, it was released.
func (e *executor) inline(n *node) bool {
	d := e.dev
	if n.waits > 0 || e.current != nil || e.queue.head != nil || e.urgent.head != nil {
		return false
	}
	if !e.tryAcquire(n) {
		return false
	}
	n.inline = true
	e.begin(n)
	d.mu.Unlock()
	old := debug.SetPanicOnFault(true)
	r := e.perform(n)
	e.release(n)
	debug.SetPanicOnFault(old)
	e.over(n, r)
	return true
}

// execute takes the token and does n, unless its context has failed.
func (e *executor) execute(n *node) cuda.Result {
	if r := n.ctx.Err(); r != cuda.Success {
		return r
	}
	if !e.acquire(n) {
		n.ctx.fail(cuda.ErrorUnknown)
		return n.ctx.Err()
	}
	r := n.ctx.Err() // it may have failed meanwhile
	if r == cuda.Success {
		r = e.perform(n)
	}
	e.release(n)
	return r
}

// perform does n, or a part of it. A fault of the machine (memory of another context that was
// freed meanwhile, no memory left) is the context's error, like a kernel's.
func (e *executor) perform(n *node) (r cuda.Result) {
	defer func() {
		if p := recover(); p != nil {
			r = e.recovered(n, p)
		}
	}()
	if r := e.enter(n); r != cuda.Success {
		return r
	}
	defer e.exit(n)
	return e.carryOut(n, e.since)
}

// carryOut does n, whose memory is where it looks for it, with the engine held since then.
func (e *executor) carryOut(n *node, since int64) cuda.Result {
	switch n.kind {
	case batchNode:
		return e.carryOutAll(n, since)
	case kernelNode:
		return e.kernel(n, since)
	case copyNode, fillNode:
		e.move(n, since)
	}
	return n.ctx.Err()
}

func (e *executor) recovered(n *node, p any) cuda.Result {
	fault, ok := p.(interface {
		error
		Addr() uintptr
	})
	if !ok {
		panic(p)
	}
	e.dev.log.Warn("fault", "work", n.describe(), "address", hex(uint64(fault.Addr())), "error", fault)
	n.ctx.fail(cuda.ErrorIllegalAddress)
	return n.ctx.Err()
}

// describe names a node for the log.
func (n *node) describe() string {
	switch n.kind {
	case kernelNode:
		return "kernel " + n.launch.function.layout.Name
	case copyNode:
		return "copy"
	case fillNode:
		return "fill"
	case batchNode:
		return "graph"
	}
	return "work"
}

// cancelContext ends what is being executed if it belongs to c. d.mu is held.
func (e *executor) cancelContext(c *Context) {
	if e.current != nil && e.current.ctx == c {
		e.cancel.Store(true)
	}
}
