package soft

import (
	"math/bits"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

const (
	inlineBytes = 1 << 20   // up to this size the submitter does the work if the engine is idle: waking the executor would take longer
	copyStep    = 256 << 10 // the Go scheduler and a cancellation can intervene between steps
)

// plane is one end of a box: its memory from the first byte on, and the distances of rows and slices.
type plane struct {
	mem          []byte
	pitch, slice uint64
}

// boxCopy is a checked copy.
type boxCopy struct {
	dst, src            plane
	width, rows, slices uint64
	x, y, z             uint64 // the position reached
}

// run copies between the current memories of the planes. It returns true when the copy is complete or cancelled, and
// false when due returned true before: the next call continues.
func (b *boxCopy) run(dst, src []byte, cancel *atomic.Bool, due func() bool) (done bool) {
	width, rows := b.width, b.rows
	if width == b.dst.pitch && width == b.src.pitch {
		width, rows = width*rows, 1
	}
	work := work{cancel: cancel, due: due}
	for ; b.z < b.slices; b.z++ {
		for ; b.y < rows; b.y++ {
			to, from := b.z*b.dst.slice+b.y*b.dst.pitch, b.z*b.src.slice+b.y*b.src.pitch
			for b.x < width {
				n := min(width-b.x, copyStep)
				move(dst[to+b.x:to+b.x+n], src[from+b.x:from+b.x+n])
				b.x += n
				if over, cancelled := work.did(n); over {
					return cancelled
				}
			}
			b.x = 0
		}
		b.y = 0
	}
	return true
}

// work determines when copies and fills check for cancellation and due.
type work struct {
	cancel *atomic.Bool
	due    func() bool
	bytes  uint64 // since the last check
}

const (
	lookBytes = 256 << 10 // take some ten microseconds
	rowBytes  = 64        // are copied in the time that a row takes however short it is
)

// did counts a stretch of n bytes. It reports whether the work is over for now, and whether it is cancelled.
func (w *work) did(n uint64) (over, cancelled bool) {
	if w.bytes += n + rowBytes; w.bytes < lookBytes {
		return false, false
	}
	w.bytes = 0
	if w.cancel.Load() {
		return true, true
	}
	return w.due(), false
}

// copy queues a copy.
func (c *Context) copy(s *Stream, w *accel.Copy, done accel.Done) cuda.Result {
	if w.Width == 0 || w.Height == 0 || w.Depth == 0 {
		return c.nothing(s, done)
	}
	b, class, token, r := c.checkCopy(w)
	if r != cuda.Success {
		return r
	}
	d := c.dev
	d.mu.Lock()
	n := d.newNode(c, copyNode)
	n.copy, n.class, n.engine, n.spent, n.done = b, class, token, w.Spent, done
	s.append(n)
	if w.Width*w.Height*w.Depth > inlineBytes || !d.executors[token].inline(n) {
		d.submit(n)
	}
	return cuda.Success
}

// checkCopy resolves a non-empty copy.
func (c *Context) checkCopy(w *accel.Copy) (b boxCopy, class accel.Class, token engine.Token, r cuda.Result) {
	dst, dstHost, ok := c.plane(&w.Dst, w)
	src, srcHost, ok2 := c.plane(&w.Src, w)
	if !ok || !ok2 {
		return b, 0, 0, cuda.ErrorInvalidValue
	}
	b = boxCopy{dst: dst, src: src, width: w.Width, rows: w.Height, slices: w.Depth}
	if w.Height == 1 { // one row per slice: the pitch is unused
		b.dst.pitch, b.src.pitch = w.Width, w.Width
	}
	class, token = copyClass(dstHost, srcHost)
	return b, class, token, cuda.Success
}

// copyClass returns the engine that a copy uses. Copies between host memory use the engine for copies in.
func copyClass(dstHost, srcHost bool) (accel.Class, engine.Token) {
	switch {
	case srcHost:
		return accel.CopyIn, engine.CopyIn
	case dstHost:
		return accel.CopyOut, engine.CopyOut
	}
	return accel.CopyDevice, engine.Compute
}

// nothing queues empty work, which keeps its place in the stream.
func (c *Context) nothing(s *Stream, done accel.Done) cuda.Result {
	d := c.dev
	d.mu.Lock()
	if s.idle() {
		d.mu.Unlock()
		ended(done)
		return cuda.Success
	}
	n := d.newNode(c, waitNode)
	n.done = done
	s.append(n)
	d.submit(n)
	return cuda.Success
}

// plane resolves one end of a copy to accessible memory. ok is false if the box is not inside it.
func (c *Context) plane(e *accel.End, w *accel.Copy) (p plane, host, ok bool) {
	if e.Array != nil {
		a, isOurs := e.Array.(*Array)
		if !isOurs || a.ctx != c || a.freed {
			return p, false, false
		}
		p, ok = a.box(e, w)
		return p, false, ok
	}
	p.pitch, p.slice, ok = strides(e, w)
	if !ok {
		return p, false, false
	}
	n, ok := extent(w.Width, w.Height, w.Depth, p.pitch, p.slice)
	if !ok {
		return p, false, false
	}
	if e.Host != nil {
		if uint64(len(e.Host)) < n {
			return p, true, false
		}
		p.mem = e.Host[:n]
		return p, true, true
	}
	p.mem = c.dev.space.Slice(e.Address, n)
	return p, c.dev.space.IsHost(e.Address), p.mem != nil
}

// strides returns the distances of rows and slices at a linear end.
func strides(e *accel.End, w *accel.Copy) (pitch, slice uint64, ok bool) {
	pitch = e.Pitch
	if w.Height == 1 && w.Depth == 1 || pitch == 0 && w.Height == 1 {
		pitch = max(pitch, w.Width)
	}
	rows := e.Height
	if rows == 0 {
		rows = w.Height
	}
	if pitch < w.Width || w.Depth > 1 && rows < w.Height {
		return 0, 0, false
	}
	hi, slice := bits.Mul64(pitch, rows)
	return pitch, slice, hi == 0 || w.Depth == 1
}

// extent returns the distance from the first byte of a box to behind its last.
func extent(width, rows, slices, pitch, slice uint64) (n uint64, ok bool) {
	h1, a := bits.Mul64(rows-1, pitch)
	h2, b := bits.Mul64(slices-1, slice)
	if h1 != 0 || h2 != 0 {
		return 0, false
	}
	n, c1 := bits.Add64(a, b, 0)
	n, c2 := bits.Add64(n, width, 0)
	return n, c1 == 0 && c2 == 0
}
