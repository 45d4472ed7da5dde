package soft

import (
	"sync"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// Graph is work that is queued together, each piece behind its dependencies: independent pieces may run on different
// engines at the same time.
type Graph struct {
	ctx       *Context
	nodes     []graphNode
	ends      []int // nodes without followers
	class     accel.Class
	made      []*node // of the replay that is being queued
	last      *Event  // the latest replay
	batch     []node  // of the latest replay, if it was a batch
	destroyed bool
}

// graphNode is a node with its work resolved by the check of the replay that is being queued.
type graphNode struct {
	accel.GraphNode
	function *function
	copy     boxCopy
	fill     boxFill
	class    accel.Class
	engine   engine.Token
}

// NewGraph creates a graph.
func (c *Context) NewGraph(nodes []accel.GraphNode, before accel.Graph) (accel.Graph, cuda.Result) {
	g := &Graph{ctx: c, nodes: make([]graphNode, len(nodes)), class: accel.CopyDevice, last: &Event{ctx: c}}
	followed := make([]bool, len(nodes))
	for i, n := range nodes {
		g.nodes[i].GraphNode = n
		switch n.Work.(type) {
		case *accel.Launch:
			g.class = accel.Compute
		case *accel.Copy, *accel.Fill, accel.HostFunc, nil:
		default:
			return nil, cuda.ErrorNotSupported
		}
		for _, a := range n.After {
			if int(a) >= i {
				return nil, cuda.ErrorInvalidValue
			}
			followed[a] = true
		}
	}
	for i := range nodes {
		if !followed[i] {
			g.ends = append(g.ends, i)
		}
	}
	if r := g.check(); r != cuda.Success {
		return nil, r
	}
	if old, ok := before.(*Graph); ok && old.ctx == c {
		g.last = old.last
		old.Destroy()
	}
	return g, c.Err()
}

// Destroy releases the graph. Queued replays have all data that they need.
func (g *Graph) Destroy() { g.destroyed, g.nodes = true, nil }

// check resolves all work again: an object that it uses may have been destroyed since.
func (g *Graph) check() cuda.Result {
	for i := range g.nodes {
		if r := g.nodes[i].check(g.ctx); r != cuda.Success {
			return r
		}
	}
	return cuda.Success
}

func (n *graphNode) check(c *Context) (r cuda.Result) {
	switch w := n.Work.(type) {
	case *accel.Launch:
		n.function, r = c.checkLaunch(w)
	case *accel.Copy:
		if w.Width == 0 || w.Height == 0 || w.Depth == 0 {
			n.copy = boxCopy{}
			return cuda.Success
		}
		n.copy, n.class, n.engine, r = c.checkCopy(w)
	case *accel.Fill:
		n.fill, r = c.checkFill(w)
	case accel.HostFunc:
		if w.Due == nil {
			return cuda.ErrorInvalidValue
		}
	}
	return r
}

// replaying is one replay, while its nodes end.
type replaying struct {
	class accel.Class
	spent accel.Spent
	done  accel.Done

	mu          sync.Mutex // nodes hold several engines at a time
	begun, held int64      // as of a node
}

func (p *replaying) spend(u accel.Usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.begun == 0 {
		p.begun = u.Start
	}
	p.held += max(u.End-u.Start, 0)
	if p.spent != nil {
		p.spent(u)
	}
}

func (p *replaying) end(r cuda.Result, _ accel.Usage) {
	if p.done != nil {
		p.done(r, accel.Usage{Class: p.class, Start: p.begun, End: p.begun + p.held})
	}
}

// replay queues a graph: as one node if it is brief, else as one node for each piece.
func (c *Context) replay(s *Stream, g *Graph, spent accel.Spent, done accel.Done) cuda.Result {
	if r := g.check(); r != cuda.Success {
		return r
	}
	d := c.dev
	d.mu.Lock()
	if g.brief() {
		c.replayBatch(s, g, spent, done)
	} else {
		c.replayNodes(s, g, spent, done)
	}
	return cuda.Success
}

// briefGraphNs is the limit of the expected time up to which the goroutine that has the compute engine executes a graph
// in one sequence: scheduling each node would take longer than most nodes run.
const briefGraphNs = 8 * briefNs

// brief reports whether a graph is expected to take less than briefGraphNs, uses one engine, and ends without other
// work.
func (g *Graph) brief() bool {
	d, ns, bytes := g.ctx.dev, int64(0), uint64(0)
	for i := range g.nodes {
		switch n := &g.nodes[i]; w := n.Work.(type) {
		case *accel.Launch:
			l := launch{function: n.function, grid: w.Grid, block: w.Block, shared: w.SharedBytes}
			l.key = l.shape().key()
			if !d.brief(&l) {
				return false
			}
			ns += d.history.Find(l.key)
		case *accel.Copy:
			if n.copy.width != 0 && n.engine != engine.Compute {
				return false
			}
			bytes += w.Width * w.Height * w.Depth
		case *accel.Fill:
			bytes += uint64(len(n.fill.mem))
		case accel.HostFunc:
			return false
		}
	}
	return len(g.nodes) > 0 && ns <= briefGraphNs && bytes <= inlineBytes
}

// replayBatch queues a brief graph. d.mu is held, and released.
func (c *Context) replayBatch(s *Stream, g *Graph, spent accel.Spent, done accel.Done) {
	d := c.dev
	if g.last.pending != nil || len(g.batch) != len(g.nodes) {
		g.batch = make([]node, len(g.nodes)) // a running replay keeps its own
	}
	for i := range g.nodes {
		g.nodes[i].describe(c, &g.batch[i])
	}
	n := d.newNode(c, batchNode)
	n.class, n.engine, n.batch, n.event, n.spent, n.done = g.class, engine.Compute, g.batch, g.last, spent, done
	s.append(n)
	n.after(g.last.pending)
	g.last.pending = n
	if !d.executors[engine.Compute].inline(n) {
		d.submit(n)
	}
}

// describe sets n to the work of a node of a checked graph.
func (g *graphNode) describe(c *Context, n *node) {
	n.ctx, n.kind = c, waitNode
	switch w := g.Work.(type) {
	case *accel.Launch:
		n.becomeKernel(g.function, w)
	case *accel.Copy:
		if g.copy.width != 0 {
			n.kind, n.copy = copyNode, g.copy
		}
	case *accel.Fill:
		if g.fill.mem != nil {
			n.kind, n.fill = fillNode, g.fill
		}
	}
}

const (
	// batchTurnNs is after how long a batch releases the engine before its next piece: the predicted time of its
	// kernels may be wrong.
	batchTurnNs = 4 * briefGraphNs
	// batchLook is the number of pieces other than kernels between two readings of the clock.
	batchLook = 64
)

// carryOutAll executes a batch from n.place on, until a piece fails or the batch has held the engine for batchTurnNs.
func (e *executor) carryOutAll(m *member, n *node, since int64) (r cuda.Result) {
	begun, first := since, n.place
	for n.place < len(n.batch) {
		piece := &n.batch[n.place]
		piece.inline = n.inline
		if n.place > first && (piece.kind == kernelNode || n.place%batchLook == 0) {
			if since = e.dev.clock(); since-begun > batchTurnNs {
				break
			}
		}
		if r = e.carryOut(m, piece, since); r != cuda.Success || piece.more {
			break
		}
		n.place++
	}
	n.more = n.place < len(n.batch)
	return r
}

// replayNodes queues a graph: a node before all of them keeps its place in the stream, and one behind them.
// d.mu is held, and released.
func (c *Context) replayNodes(s *Stream, g *Graph, spent accel.Spent, done accel.Done) {
	d := c.dev
	p := &replaying{class: g.class, spent: spent, done: done}
	spend := accel.Spent(p.spend)
	before := d.newNode(c, waitNode)
	s.append(before)
	before.after(g.last.pending)
	g.made = g.made[:0]
	for i := range g.nodes {
		n := d.newPiece(c, &g.nodes[i])
		n.urgent, n.spent, n.tells = s.urgent, spend, true
		for _, a := range g.nodes[i].After {
			n.after(g.made[a])
		}
		if n.waits == 0 {
			n.after(before)
		}
		g.made = append(g.made, n)
	}
	behind := d.newNode(c, recordNode)
	behind.event, behind.done = g.last, p.end
	s.append(behind)
	for _, i := range g.ends {
		behind.after(g.made[i])
	}
	g.last.pending = behind
	clear(g.made)
	d.submit(before)
}

// newPiece returns a node for a graph's work that was checked. d.mu is held.
func (d *Device) newPiece(c *Context, g *graphNode) *node {
	switch w := g.Work.(type) {
	case *accel.Launch:
		return d.newKernel(c, g.function, w)
	case *accel.Copy:
		if g.copy.width != 0 {
			n := d.newNode(c, copyNode)
			n.copy, n.class, n.engine = g.copy, g.class, g.engine
			return n
		}
	case *accel.Fill:
		if g.fill.mem != nil {
			n := d.newNode(c, fillNode)
			n.fill, n.class, n.engine = g.fill, accel.CopyDevice, engine.Compute
			return n
		}
	case accel.HostFunc:
		n := d.newNode(c, hostNode)
		n.due = w.Due
		d.hostFuncs++
		return n
	}
	return d.newNode(c, waitNode)
}
