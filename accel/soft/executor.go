package soft

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"pegasus/accel"
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

	stopped   func() bool // what is being executed is wanted no more
	kernelRun run         // of the kernel that is being executed

	// guarded by d.mu
	urgent, queue nodeQueue
	current       *node // being executed, by run or on the submitter's goroutine
	idle          bool  // run sleeps
}

func newExecutor(d *Device, k engine.Token) *executor {
	e := &executor{dev: d, token: k}
	e.work.L = &d.mu
	e.stopped = func() bool { return e.cancel.Load() || d.closing.Load() || d.aborted.Load() }
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
		r, u := e.execute(n)
		e.over(n, r, u)
	}
}

// over ends what had the engine, or, if that is a batch with more to do, has it wait for another turn.
func (e *executor) over(n *node, r cuda.Result, u accel.Usage) {
	if r != cuda.Success || n.place == len(n.batch) {
		if n.begun != 0 {
			u.Start, u.End = n.begun, n.begun+n.held+(u.End-u.Start)
		}
		e.dev.finish(n, r, u, e)
		return
	}
	n.spend(u)
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	n.inline = false
	e.current = nil
	e.enqueue(n)
}

// spend notes that an engine was held for a part of a batch.
func (n *node) spend(u accel.Usage) {
	if n.begun == 0 {
		n.begun = u.Start
	}
	n.held += u.End - u.Start
	if n.spent != nil {
		n.spent(u)
	}
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
	since, ok := d.worker.TryAcquire(e.token)
	if !ok {
		return false
	}
	if !e.mayEnter(n) {
		d.worker.Release(e.token)
		return false
	}
	n.inline = true
	e.begin(n)
	d.mu.Unlock()
	old := debug.SetPanicOnFault(true)
	r := e.perform(n, since)
	u := accel.Usage{Class: n.class, Start: since, End: d.worker.Release(e.token)}
	debug.SetPanicOnFault(old)
	e.over(n, r, u)
	return true
}

// execute takes the token and does n, unless its context has failed.
func (e *executor) execute(n *node) (cuda.Result, accel.Usage) {
	u := accel.Usage{Class: n.class}
	if r := n.ctx.Err(); r != cuda.Success {
		return r, u
	}
	if turn := e.dev.config.Turn; turn != nil {
		turn(n.class, e.stopped)
	}
	since, ok := e.dev.worker.Acquire(e.token, &e.dev.closing)
	if !ok {
		n.ctx.fail(cuda.ErrorUnknown)
		return n.ctx.Err(), u
	}
	r := n.ctx.Err() // it may have failed while we waited
	if r == cuda.Success {
		r = e.perform(n, since)
	}
	u.Start, u.End = since, e.dev.worker.Release(e.token)
	return r, u
}

// perform does n. A fault of the machine (memory of another context that was
// freed meanwhile, no memory left) is the context's error, like a kernel's.
func (e *executor) perform(n *node, since int64) (r cuda.Result) {
	defer func() {
		if p := recover(); p != nil {
			r = e.recovered(n, p)
		}
	}()
	if r := e.enter(n); r != cuda.Success {
		return r
	}
	defer e.exit(n)
	return e.carryOut(n, since)
}

// carryOut does n, whose memory is where it looks for it.
func (e *executor) carryOut(n *node, since int64) cuda.Result {
	switch n.kind {
	case batchNode:
		return e.carryOutAll(n, since)
	case kernelNode:
		return e.kernel(n, since)
	case copyNode:
		n.copy.dst.mem, n.copy.src.mem = e.dev.home(n.copy.dst.mem), e.dev.home(n.copy.src.mem)
		n.copy.run(&e.cancel)
	case fillNode:
		n.fill.mem = e.dev.home(n.fill.mem)
		n.fill.run(&e.cancel)
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
