//go:build cgo

package nvidia

import (
	"fmt"
	"hash/maphash"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Graph is an executable graph of the driver. It is built by capture: each operation is submitted to a stream as
// usual, after its dependencies were set.
type Graph struct {
	ctx       *Context
	exec      driver.GraphExec
	nodes     []accel.GraphNode
	class     accel.Class
	kernels   int
	prints    bool // a kernel may
	key       uint64
	last      *Event // the latest launch
	destroyed bool
}

// NewGraph makes a graph of work that is all between places that the device can reach. It may block as Submit does.
func (c *Context) NewGraph(nodes []accel.GraphNode, before accel.Graph) (accel.Graph, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return nil, r
	}
	if !driver.CanCapture() {
		return nil, cuda.ErrorNotSupported
	}
	g := &Graph{ctx: c, nodes: nodes, class: accel.CopyDevice, last: &Event{ctx: c}}
	g.key = maphash.Comparable(keySeed, g) | 1
	for i, n := range nodes {
		for _, a := range n.After {
			if int(a) >= i {
				return nil, cuda.ErrorInvalidValue
			}
		}
		if w, ok := n.Work.(*accel.Launch); ok {
			g.class = accel.Compute
			g.kernels++
			m, ok := w.Module.(*Module)
			g.prints = g.prints || ok && m.prints
		}
	}
	if r := g.check(); r != cuda.Success {
		return nil, r
	}
	if r := g.needStacks(); r != cuda.Success { // which others may have to make room for: nothing is kept where it is yet
		return nil, c.failIfSticky(r)
	}
	if r := c.withAll(g.make); r != cuda.Success {
		return nil, c.failIfSticky(r)
	}
	if old, ok := before.(*Graph); ok && old.ctx == c {
		g.last = old.last
		old.Destroy()
	}
	return g, cuda.Success
}

func (g *Graph) needStacks() cuda.Result {
	for i := range g.nodes {
		if w, ok := g.nodes[i].Work.(*accel.Launch); ok {
			f, r := g.ctx.function(w)
			if r == cuda.Success {
				r = f.needStack(g.ctx)
			}
			if r != cuda.Success {
				return r
			}
		}
	}
	return cuda.Success
}

// check reports whether all objects that the graph uses exist.
func (g *Graph) check() cuda.Result {
	for i := range g.nodes {
		if r := g.checkNode(g.nodes[i].Work); r != cuda.Success {
			return r
		}
	}
	return cuda.Success
}

func (g *Graph) checkNode(w accel.Work) cuda.Result {
	switch w := w.(type) {
	case *accel.Launch:
		_, r := g.ctx.function(w)
		return r
	case *accel.Copy:
		_, _, r := g.ends(w)
		return r
	case *accel.Fill:
		f, r := g.ctx.checkFill(w)
		if r == cuda.Success && f.arena {
			r = cuda.ErrorNotSupported
		}
		return r
	case nil:
		return cuda.Success
	}
	return cuda.ErrorNotSupported
}

// ends are those of a copy that the device can do by itself.
func (g *Graph) ends(w *accel.Copy) (dst, src side, r cuda.Result) {
	if w.Width == 0 || w.Height == 0 || w.Depth == 0 {
		return dst, src, cuda.Success
	}
	dst, ok := g.ctx.side(&w.Dst, w)
	src, ok2 := g.ctx.side(&w.Src, w)
	switch {
	case !ok || !ok2:
		return dst, src, cuda.ErrorInvalidValue
	case dst.host && (src.host || !dst.pinned), src.host && !src.pinned:
		return dst, src, cuda.ErrorNotSupported
	}
	return dst, src, cuda.Success
}

// make captures the graph and makes it executable.
func (g *Graph) make() cuda.Result {
	c := g.ctx
	h, r := driver.NewStream(c.ctx, streamNonBlocking, 0)
	if r != cuda.Success {
		return r
	}
	defer driver.DestroyStream(c.ctx, h)
	if r = driver.BeginCapture(c.ctx, h); r != cuda.Success {
		return r
	}
	r = g.capture(&Stream{ctx: c, h: h})
	whole, ended := driver.EndCapture(c.ctx, h)
	if r == cuda.Success {
		r = ended
	}
	if ended != cuda.Success {
		return r
	}
	defer driver.DestroyGraph(c.ctx, whole)
	if r == cuda.Success {
		g.exec, r = driver.Instantiate(c.ctx, whole)
	}
	return r
}

func (g *Graph) capture(s *Stream) cuda.Result {
	c := g.ctx
	whole, _, r := driver.Captured(c.ctx, s.h)
	made := make([]driver.GraphNode, len(g.nodes))
	var after []driver.GraphNode
	for i := 0; r == cuda.Success && i < len(g.nodes); i++ {
		after = after[:0]
		for _, a := range g.nodes[i].After {
			after = append(after, made[a])
		}
		if !moves(g.nodes[i].Work) {
			made[i], r = driver.AddEmpty(c.ctx, whole, after)
			continue
		}
		if r = driver.CaptureAfter(c.ctx, s.h, after); r != cuda.Success {
			break
		}
		if r = g.give(s, g.nodes[i].Work); r == cuda.Success {
			_, made[i], r = driver.Captured(c.ctx, s.h)
		}
	}
	return r
}

// moves reports whether the work is not empty.
func moves(w accel.Work) bool {
	switch w := w.(type) {
	case *accel.Copy:
		return w.Width != 0 && w.Height != 0 && w.Depth != 0
	case *accel.Fill:
		return w.Width != 0 && w.Height != 0
	}
	return w != nil
}

// give gives the driver an operation that was checked.
func (g *Graph) give(s *Stream, w accel.Work) cuda.Result {
	c := g.ctx
	switch w := w.(type) {
	case *accel.Launch:
		f, r := c.function(w)
		if r != cuda.Success {
			return r
		}
		if r = f.allow(c, w); r != cuda.Success {
			return r
		}
		l := f.launch(w)
		return l.Run(c.ctx, s.h)
	case *accel.Copy:
		dst, src, r := g.ends(w)
		if r != cuda.Success {
			return r
		}
		return s.giveCopy(&dst, &src, box{w.Width, w.Height, w.Depth})
	case *accel.Fill:
		f, r := c.checkFill(w)
		if r != cuda.Success {
			return r
		}
		return s.giveFill(w, f.pitch)
	}
	return cuda.ErrorNotSupported
}

// replay launches the graph, behind its launch before.
func (s *Stream) replay(g *Graph, done accel.Done) cuda.Result {
	c := s.ctx
	if r := g.check(); r != cuda.Success {
		return r
	}
	p := &inflightOp{class: g.class, key: g.key, event: g.last, done: done}
	if g.kernels > 0 {
		p.kernel, p.kernels = fmt.Sprintf("a graph of %d kernels", g.kernels), int64(g.kernels)
	}
	if g.prints {
		c.mayPrint(p)
	}
	c.dev.mu.Lock()
	before := g.last.pending
	c.dev.mu.Unlock()
	if before != nil && before.stream != s { // its end may have been reported meanwhile, without harm: see waitEvent
		if before.end != nil {
			if r := driver.Wait(c.ctx, s.h, before.end); r != cuda.Success {
				return r
			}
		}
		p.behind = append(p.behind, before)
	}
	if r := s.perform(p, func() cuda.Result { return driver.LaunchGraph(c.ctx, g.exec, s.h) }); r != cuda.Success {
		return r
	}
	if g.kernels > 0 {
		c.dev.watchdog.arm()
	}
	return cuda.Success
}

// Destroy releases the graph; a running launch still ends.
func (g *Graph) Destroy() {
	if !g.destroyed && !g.ctx.isGone() {
		driver.DestroyExec(g.ctx.ctx, g.exec)
	}
	g.destroyed = true
}
