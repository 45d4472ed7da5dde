package soft

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// kind selects the action of a node once its dependencies have ended.
type kind uint8

const (
	kernelNode kind = iota // the engines' work
	copyNode
	fillNode
	batchNode  // a brief graph's, one piece after the other
	recordNode // completes an event
	waitNode   // only holds back its followers
	hostNode   // waits for the guest's function
	actionNode // calls then
)

// node is one piece of work, from its submission until it has ended. Its followers wait for it; when waits is zero it
// goes to its engine's queue, or ends at once if it needs no engine. Ended nodes are reused.
type node struct {
	kind   kind
	engine engine.Token
	urgent bool // of a stream with high priority
	inline bool // executed by its submitter
	joined bool // it did not acquire the engine itself, but joined kernels that held it
	more   bool // it gave the engine back before it was complete
	ctx    *Context
	stream *Stream // nil: the node is in no stream
	next   *node   // in a queue, or spare

	dependencies
	engineTime

	// The work, by kind.
	launch launch
	copy   boxCopy
	fill   boxFill
	batch  []node // the work of a batch, in this order
	place  int    // of the batch's next piece

	// The event and the callbacks that its end concerns.
	event *Event
	due   func(cuda.Result, func())
	then  func(cuda.Result)
	done  accel.Done
}

// dependencies is a node's position between the nodes that it waits for and those that wait for it. The device's mutex
// guards it, except for telling.
type dependencies struct {
	waits     int
	since     int64 // when the latest of its dependencies ended; 0: it had none
	ended     int64 // when it ended, if not since; see endedAt
	followers []*node
	telling   atomic.Bool // its callbacks are running, after its end
}

// engineTime is the time for which engines were held for a node, and its report. The member that executes the node
// owns it; while a crew shares the engine, the lock of the executor's hold guards it.
type engineTime struct {
	class    accel.Class // of the engines
	tells    bool        // spent receives parts, and so must receive all of them
	begun    int64       // when an engine was first held, or 0
	held     int64       // the sum of the times
	computed int64       // processor time of a copy or fill, but for its first part
	spent    accel.Spent
}

// newNode returns an empty node of the context. d.mu is held.
func (d *Device) newNode(c *Context, k kind) *node {
	n := d.spare
	if n == nil {
		n = new(node)
	} else {
		d.spare = n.next
		n.next = nil
	}
	n.kind, n.ctx = k, c
	c.live++
	d.queued.Add(1)
	return n
}

// Upper bounds on the memory that a reused node keeps.
const (
	keptFollowers = 64
	keptParams    = 1024
)

// recycle keeps a node that has ended for reuse. d.mu is held.
func (d *Device) recycle(n *node) {
	followers, params := n.followers[:0], n.launch.params[:0]
	if cap(followers) > keptFollowers {
		followers = nil
	}
	if cap(params) > keptParams {
		params = nil
	}
	*n = node{} // in place: a literal with values would be copied
	n.followers, n.launch.params, n.next = followers, params, d.spare
	d.spare = n
}

// add records that an engine was held for a part of the work.
func (t *engineTime) add(u accel.Usage) {
	if t.begun == 0 {
		t.begun = u.Start
	}
	t.held += max(u.End-u.Start, 0)
}

// charge calls the spent callback for u, and for all later parts.
func (t *engineTime) charge(u accel.Usage) {
	t.add(u)
	if t.tells = true; t.spent != nil {
		t.spent(u)
	}
}

// usage returns the sum of all parts, as if they had followed one another.
func (t *engineTime) usage() accel.Usage {
	return accel.Usage{Class: t.class, Start: t.begun, End: t.begun + t.held}
}

// runsKernels reports whether kernels run while n is executed.
func (n *node) runsKernels() bool { return n.kind == kernelNode || n.kind == batchNode }

// after makes n wait for x, if that has not ended. d.mu is held.
func (n *node) after(x *node) {
	if x != nil && x != n {
		x.followers = append(x.followers, n)
		n.waits++
		n.ctx.dev.queued.Add(1)
	}
}

// nodeQueue is a list of nodes in order.
type nodeQueue struct{ head, tail *node }

func (q *nodeQueue) push(n *node) {
	if q.head == nil {
		q.head = n
	} else {
		q.tail.next = n
	}
	q.tail = n
}

func (q *nodeQueue) pop() *node {
	n := q.head
	if n != nil {
		q.head = n.next
		n.next = nil
	}
	return n
}

// submit starts a node after its dependencies are set. d.mu is held, and released.
func (d *Device) submit(n *node) {
	if n.waits > 0 {
		d.mu.Unlock()
		return
	}
	var ready nodeQueue
	d.ready(n, &ready)
	d.mu.Unlock()
	if ready.head != nil {
		d.settle(ready.pop(), &ready)
	}
}

// ready dispatches a node that waits for nothing: to its engine, or to ready. d.mu is held.
func (d *Device) ready(n *node, ready *nodeQueue) {
	if n.kind <= batchNode {
		d.executors[n.engine].enqueue(n)
		return
	}
	ready.push(n)
}

// settle ends n, which needs no engine, and all nodes that thereby become ready and need none.
func (d *Device) settle(n *node, ready *nodeQueue) {
	for n != nil {
		r := n.ctx.Err()
		if n.kind == hostNode && !d.callHost(n, r) {
			n = ready.pop() // it ends when the guest reports the end
			continue
		}
		d.end(n, r, accel.Usage{Class: n.class}, nil, ready)
		n = ready.pop()
	}
}

// finish ends a node that a member of an executor (or, with nil, a host function) has executed.
func (d *Device) finish(n *node, r cuda.Result, u accel.Usage, m *member) {
	var ready nodeQueue
	d.end(n, r, u, m, &ready)
	if ready.head != nil {
		d.settle(ready.pop(), &ready)
	}
}

// endedAt returns when n ended: for an engine's work, when it released the engine; for a node that only waited, when
// the last of its dependencies ended. So the times of events depend on the order of work, not on the scheduling of
// goroutines.
func (d *Device) endedAt(n *node) int64 {
	switch {
	case n.ended != 0:
		return n.ended
	case n.kind != hostNode && n.since != 0:
		return n.since
	}
	return d.clock()
}

// end runs the callbacks for the end of n, then releases its followers: so the end of a piece of work is reported after
// that of the earlier ones.
func (d *Device) end(n *node, r cuda.Result, u accel.Usage, m *member, ready *nodeQueue) {
	at := d.endedAt(n)
	n.telling.Store(true)
	if n.done != nil {
		n.done(r, u)
	}
	if n.then != nil {
		n.then(r)
	}
	d.mu.Lock()
	if m != nil {
		if m.e.active > 1 && n.ctx.Err() != cuda.Success {
			m.e.cancelContext(n.ctx)
		}
		m.e.ended(m)
	}
	if n.event != nil {
		n.event.completed(n, at)
	}
	if n.stream != nil && n.stream.last == n {
		n.stream.last = nil
		n.ctx.active.remove(n.stream)
	}
	for _, f := range n.followers {
		f.since = max(f.since, at)
		if f.waits--; f.waits == 0 {
			d.ready(f, ready)
		}
	}
	c := n.ctx
	d.queued.Add(-1 - int64(len(n.followers)))
	d.recycle(n)
	d.reported.Broadcast()
	c.live--
	last := c.live == 0 && c.destroyed.Begun
	d.mu.Unlock()
	if last {
		c.dissolve()
	}
}
