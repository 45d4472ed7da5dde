package soft

import (
	"runtime/debug"
	"sync"
	"sync/atomic"

	"pegasus/accel/soft/engine"
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

// executor executes the work of one engine: one piece after the other, but a crew of kernels at the same time. Its
// members execute; each piece of work either leads, when no member executes, and acquires the engine, or joins the
// kernels that hold it.
type executor struct {
	dev    *Device
	token  engine.Token
	most   int         // bound on the pieces that are executed at a time
	work   sync.Cond   // with d.mu: the queue is not empty, or the device is closing
	waited atomic.Bool // the next node could not join the crew

	overdue  func() bool // the slice of a copy or fill is over
	sliceEnd int64
	tile     []byte // of a fill's pattern

	hold

	// guarded by d.mu
	urgent, queue nodeQueue
	members       []*member // the first one executes on the goroutines of submitters
	active        int       // members that have a node
	idle, awake   int       // members without a node: those that sleep, and those that are about to check the queue
}

// member executes one node after the other on a goroutine, and has the resources of the node that it executes.
type member struct {
	e       *executor
	cancel  atomic.Bool // ends the node
	timely  atomic.Bool // false: the watchdog has set cancel
	stopped func() bool // the node is cancelled

	kernelRun run
	growth    lane.Growth // of a kernel that joined with fewer cores than it can use
	watched   watched
	paused    int64 // for how long the kernel has been interrupted
	ran       int64 // its run time, 0 until it has run
	cores     int   // number of cores when the kernel joined others

	node *node // guarded by d.mu; in the crew it stays

	// guarded by e.mu
	began  int64 // when it joined
	stands bool  // its kernel's cores have stopped
	coreShare
}

func newExecutor(d *Device, k engine.Token) *executor {
	e := &executor{dev: d, token: k, most: 1}
	if k == engine.Compute && d.config.Cores > 1 {
		e.most = max(d.config.Cores, mostKernels)
	}
	e.work.L, e.changed.L = &d.mu, &e.mu
	e.overdue = func() bool { return d.clock() >= e.sliceEnd }
	e.newMember()
	return e
}

func (e *executor) newMember() *member {
	d := e.dev
	m := &member{e: e}
	m.stopped = func() bool { return m.cancel.Load() || d.closing.Load() || d.aborted.Load() }
	if d.config.Turn != nil || e.most > 1 {
		m.kernelRun.Yield, m.kernelRun.Resume = m.yield, m.resume
	}
	if e.most > 1 {
		m.kernelRun.Cede, m.kernelRun.Left = m.offer, m.coreLeft
	}
	m.kernelRun.Cancel, m.kernelRun.Meter = &m.cancel, &m.watched.meter
	e.members = append(e.members, m)
	return m
}

// start adds a member with a goroutine of its own. d.mu is held, or the device is being opened.
func (e *executor) start() {
	m := e.newMember()
	e.awake++
	e.dev.running.Go(func() { e.run(m) })
}

// inlined returns the member that executes on submitters' goroutines.
func (e *executor) inlined() *member { return e.members[0] }

// enqueue adds a node that waits for nothing. d.mu is held.
func (e *executor) enqueue(n *node) {
	if n.urgent {
		e.urgent.push(n)
	} else {
		e.queue.push(n)
	}
	e.rouse()
}

// head returns the queue that the next node comes from.
func (e *executor) head() *nodeQueue {
	if e.urgent.head != nil {
		return &e.urgent
	}
	return &e.queue
}

// rouse wakes a member to check the queue if the next node can begin and no member is about to check. d.mu is held.
func (e *executor) rouse() {
	n := e.head().head
	if n == nil || e.awake > 0 || e.active > 0 && !e.joinable(n) {
		return
	}
	switch {
	case e.idle > 0:
		e.idle--
		e.awake++
		e.work.Signal()
	case len(e.members) <= e.most:
		e.start()
	}
}

// take returns the next node for a member if it can begin, as the leader or in the crew. d.mu is held.
func (e *executor) take(m *member) *node {
	q := e.head()
	n := q.head
	if n == nil || e.active > 0 && !e.join(m, n) {
		return nil
	}
	q.pop()
	e.awake--
	e.begin(m, n)
	if e.most > 1 {
		e.rouse()
		e.spread()
	}
	return n
}

// begin makes n the node that a member executes. d.mu is held.
func (e *executor) begin(m *member, n *node) {
	m.node, m.ran = n, 0
	e.active++
	if !m.timely.Load() { // a store takes longer than a load
		m.timely.Store(true)
	}
	if ends := n.ctx.destroyed.Begun || e.dev.aborted.Load(); m.cancel.Load() != ends {
		m.cancel.Store(ends)
	}
}

// run executes until the device is closed.
func (e *executor) run(m *member) {
	debug.SetPanicOnFault(true)
	for n := e.next(m); n != nil; n = e.next(m) {
		e.over(m, n, e.execute(m, n))
	}
}

// over ends a member's node, or queues it for another turn if there is more to do.
func (e *executor) over(m *member, n *node, r cuda.Result) {
	if r != cuda.Success || !n.more {
		e.dev.finish(n, r, n.usage(), m)
		return
	}
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	n.inline, n.more = false, false
	e.ended(m)
	e.enqueue(n)
}

// next blocks until there is a node for a member to execute. It returns nil when the device is closed.
func (e *executor) next(m *member) *node {
	d := e.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	for {
		if n := e.take(m); n != nil {
			return n
		}
		if d.closing.Load() && len(d.contexts) == 0 {
			return nil
		}
		e.awake--
		e.idle++
		e.spread()
		e.work.Wait() // the signalling goroutine keeps the counts
	}
}

// close makes all members check whether the device is closed. d.mu is held.
func (e *executor) close() {
	e.awake += e.idle
	e.idle = 0
	e.work.Broadcast()
}

// ended records that a member has no node any more. d.mu is held.
func (e *executor) ended(m *member) {
	m.node = nil
	e.active--
	if m != e.inlined() {
		e.awake++
	}
	e.rouse()
}

// inline executes a small piece of work on the submitter's goroutine if the
// engine is idle and its token free. d.mu is held; if inline returns true, it was released.
func (e *executor) inline(n *node) bool {
	d := e.dev
	if n.waits > 0 || e.active > 0 || e.queue.head != nil || e.urgent.head != nil {
		return false
	}
	m := e.inlined()
	if !e.tryAcquire(m, n) {
		return false
	}
	n.inline = true
	e.begin(m, n)
	d.mu.Unlock()
	old := debug.SetPanicOnFault(true)
	r := e.perform(m, n)
	e.leave(m, n)
	debug.SetPanicOnFault(old)
	e.over(m, n, r)
	return true
}

// execute runs n, which has joined the crew or leads it, unless its context has failed.
func (e *executor) execute(m *member, n *node) cuda.Result {
	if !n.joined {
		if r := n.ctx.Err(); r != cuda.Success {
			return r
		}
		if !e.lead(m, n) {
			n.ctx.Fail(cuda.ErrorUnknown)
			return n.ctx.Err()
		}
	}
	r := n.ctx.Err() // it may have failed meanwhile
	if r == cuda.Success {
		r = e.perform(m, n)
	}
	e.leave(m, n)
	return r
}

// perform executes n, or a part of it. A fault of the machine (memory of another context that was freed meanwhile, no
// memory left) becomes the context's error, like a kernel's.
func (e *executor) perform(m *member, n *node) (r cuda.Result) {
	defer func() {
		if p := recover(); p != nil {
			r = e.recovered(n, p)
		}
	}()
	if !n.joined {
		if r := e.enter(m, n); r != cuda.Success {
			return r
		}
		e.admit(n)
	}
	return e.carryOut(m, n, m.began)
}

// carryOut executes n, with its memory resident and the engine held since then.
func (e *executor) carryOut(m *member, n *node, since int64) cuda.Result {
	switch n.kind {
	case batchNode:
		return e.carryOutAll(m, n, since)
	case kernelNode:
		return e.kernel(m, n, since)
	case copyNode, fillNode:
		e.move(m, n, since)
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
	e.dev.log.Warn("fault", "work", n.describe(), "address", hex(uint64(fault.Addr())), "err", fault)
	n.ctx.Fail(cuda.ErrorIllegalAddress)
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

// cancelContext ends the nodes of a context that members execute; nil: of all contexts. d.mu is held.
func (e *executor) cancelContext(c *Context) {
	for _, m := range e.members {
		if m.node != nil && (c == nil || m.node.ctx == c) {
			m.cancel.Store(true)
		}
	}
	e.alert()
}
