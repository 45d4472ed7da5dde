package soft

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// Graph is work that is queued at once, each piece behind those that it comes after:
// what doesn't depend on one another may run on different engines at the same time.
type Graph struct {
	ctx       *Context
	nodes     []graphNode
	ends      []int // nodes that none comes after
	class     accel.Class
	made      []*node // of the replay that is being queued
	last      *Event  // the latest replay
	destroyed bool
}

// graphNode is a node with what was made of its work when the replay that is being queued was checked.
type graphNode struct {
	accel.GraphNode
	function *function
	copy     boxCopy
	fill     boxFill
	class    accel.Class
	engine   engine.Token
}

var _ accel.Grapher = (*Context)(nil)

// NewGraph takes a graph.
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

// Destroy releases the graph. Queued replays have all that they need.
func (g *Graph) Destroy() { g.destroyed, g.nodes = true, nil }

// check resolves all work anew: what it uses may be gone since.
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
	begun atomic.Int64 // when the first engine was held, or 0
	held  atomic.Int64 // for how long engines were, in sum
	done  accel.Done
}

func (p *replaying) node(_ cuda.Result, u accel.Usage) {
	if u.End > u.Start {
		p.begun.CompareAndSwap(0, u.Start)
		p.held.Add(u.End - u.Start)
	}
}

func (p *replaying) end(r cuda.Result, _ accel.Usage) {
	if p.done != nil {
		from := p.begun.Load()
		p.done(r, accel.Usage{Class: p.class, Start: from, End: from + p.held.Load()})
	}
}

// replay queues a graph: a node before all of them keeps its place in the stream, and one behind them.
func (c *Context) replay(s *Stream, g *Graph, done accel.Done) cuda.Result {
	if r := g.check(); r != cuda.Success {
		return r
	}
	d := c.dev
	p := &replaying{class: g.class, done: done}
	nodeDone := p.node
	d.mu.Lock()
	before := d.newNode(c, waitNode)
	s.append(before)
	before.after(g.last.pending)
	g.made = g.made[:0]
	for i := range g.nodes {
		n := d.newPiece(c, &g.nodes[i])
		n.urgent, n.done = s.urgent, nodeDone
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
	return cuda.Success
}

// newPiece is a node for a graph's work that was checked. d.mu is held.
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
