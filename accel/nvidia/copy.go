//go:build cgo

package nvidia

import (
	"math/bits"
	"unsafe"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// side is one end of a checked copy.
type side struct {
	end    driver.End
	mem    []byte // of host memory, the whole extent that the box may access
	host   bool
	pinned bool // the device can access it
	arena  bool // its bytes are the guest's, which may change them until the copy runs
}

// box is the shape of a copy.
type box struct{ width, height, depth uint64 }

// copy queues a copy.
func (s *Stream) copy(w *accel.Copy, done accel.Done) cuda.Result {
	c := s.ctx
	b := box{w.Width, w.Height, w.Depth}
	if b.width == 0 || b.height == 0 || b.depth == 0 {
		return s.nothing(done)
	}
	dst, ok := c.side(&w.Dst, w)
	src, ok2 := c.side(&w.Src, w)
	if !ok || !ok2 {
		return cuda.ErrorInvalidValue
	}
	switch {
	case dst.host && src.host:
		return s.move(&inflightOp{class: accel.CopyIn, hostPart: hostPart{moves: true}, done: done}, &dst, &src, b)
	case src.host:
		return s.copyIn(&dst, &src, b, done)
	case dst.host:
		return s.copyOut(&dst, &src, b, done)
	}
	p := &inflightOp{class: accel.CopyDevice, done: done}
	return s.perform(p, func() cuda.Result { return s.giveCopy(&dst, &src, b) })
}

// copyIn copies from host memory to the device.
func (s *Stream) copyIn(dst, src *side, b box, done accel.Done) cuda.Result {
	c := s.ctx
	p := &inflightOp{class: accel.CopyIn, done: done}
	if src.pinned {
		return s.perform(p, func() cuda.Result { return s.giveCopy(dst, src, b) })
	}
	mem, r := c.buffers.take(uint64(len(src.mem)))
	if r != cuda.Success {
		return r
	}
	p.settle = func() { c.buffers.give(mem) }
	by := *src
	by.mem, by.end.Host = mem, mem
	if !src.arena {
		by.fill(src, b)
	} else if r = s.move(new(inflightOp), &by, src, b); r != cuda.Success {
		c.buffers.give(mem)
		return r
	}
	if r = s.perform(p, func() cuda.Result { return s.giveCopy(dst, &by, b) }); r != cuda.Success {
		c.afterAll(func(cuda.Result) { c.buffers.give(mem) })
	}
	return r
}

// copyOut copies from the device to host memory.
func (s *Stream) copyOut(dst, src *side, b box, done accel.Done) cuda.Result {
	c := s.ctx
	p := &inflightOp{class: accel.CopyOut, done: done}
	if dst.pinned {
		return s.perform(p, func() cuda.Result { return s.giveCopy(dst, src, b) })
	}
	mem, r := c.buffers.take(uint64(len(dst.mem)))
	if r != cuda.Success {
		return r
	}
	by := *dst
	by.mem, by.end.Host = mem, mem
	if !dst.arena { // it is not read before done is called
		p.finish = func() { dst.fill(&by, b) }
		p.settle = func() { c.buffers.give(mem) }
		if r = s.perform(p, func() cuda.Result { return s.giveCopy(&by, src, b) }); r != cuda.Success {
			c.afterAll(func(cuda.Result) { c.buffers.give(mem) })
		}
		return r
	}
	out := &inflightOp{class: accel.CopyOut}
	var held accel.Usage
	out.done = func(_ cuda.Result, u accel.Usage) { held = u }
	if r = s.perform(out, func() cuda.Result { return s.giveCopy(&by, src, b) }); r == cuda.Success {
		// The charge is the device's work; that was reported before this is.
		last := &inflightOp{settle: func() { c.buffers.give(mem) }}
		last.done = func(r cuda.Result, _ accel.Usage) { tellEnd(done, r, held) }
		r = s.move(last, dst, &by, b)
	}
	if r != cuda.Success {
		c.afterAll(func(cuda.Result) { c.buffers.give(mem) })
	}
	return r
}

// giveCopy submits a copy to the driver. Neither end is unpinned host memory.
func (s *Stream) giveCopy(dst, src *side, b box) cuda.Result {
	c := s.ctx
	n := b.width * b.height * b.depth
	if dst.end.Array != nil || src.end.Array != nil || !dst.dense(b) || !src.dense(b) {
		return driver.CopyBox(c.ctx, &dst.end, &src.end, b.width, b.height, b.depth, s.h)
	}
	switch {
	case src.host:
		return driver.CopyIn(c.ctx, dst.end.Address, src.mem[:n], s.h)
	case dst.host:
		return driver.CopyOut(c.ctx, dst.mem[:n], src.end.Address, s.h)
	}
	return driver.CopyWithin(c.ctx, dst.end.Address, src.end.Address, n, s.h)
}

// dense reports whether a box has no gaps at this end.
func (e *side) dense(b box) bool {
	return (b.height == 1 && b.depth == 1) || e.end.Pitch == b.width && (b.depth == 1 || e.end.Height == b.height)
}

// move copies between host memories in the stream's order; the stream waits meanwhile.
func (s *Stream) move(p *inflightOp, dst, src *side, b box) cuda.Result {
	to, from := *dst, *src
	p.due = func(r cuda.Result, finished func()) {
		if r == cuda.Success {
			to.fill(&from, b)
		}
		finished()
	}
	return s.hostFunc(p)
}

// fill copies a box of host memory on the CPU.
func (e *side) fill(from *side, b box) {
	slice, fromSlice := e.end.Pitch*e.end.Height, from.end.Pitch*from.end.Height
	for z := range b.depth {
		for y := range b.height {
			to, at := z*slice+y*e.end.Pitch, z*fromSlice+y*from.end.Pitch
			copy(e.mem[to:to+b.width], from.mem[at:at+b.width])
		}
	}
}

// nothing queues empty work, which keeps its place in the stream.
func (s *Stream) nothing(done accel.Done) cuda.Result {
	c := s.ctx
	c.dev.mu.Lock()
	idle := s.idle()
	c.dev.mu.Unlock()
	if !idle {
		s.append(&inflightOp{done: done})
	} else if done != nil {
		done(cuda.Success, accel.Usage{})
	}
	return cuda.Success
}

// side checks one end of a copy: all memory of the box there has to be accessible to the guest.
func (c *Context) side(e *accel.End, w *accel.Copy) (s side, ok bool) {
	if e.Array != nil {
		a, isOurs := e.Array.(*Array)
		if !isOurs || a.ctx != c || a.freed || !a.holds(e, w) {
			return s, false
		}
		s.end = driver.End{Array: a.h, X: e.X, Y: e.Y, Z: e.Z}
		return s, true
	}
	pitch, height, n, ok := extent(e, w)
	if !ok {
		return s, false
	}
	s.end.Pitch, s.end.Height = pitch, height
	switch {
	case e.Host != nil:
		if uint64(len(e.Host)) < n {
			return s, false
		}
		s.host, s.mem = true, e.Host[:n]
		if at, ok := offset(c.dev.config.Shared, s.mem); ok {
			c.inArena(&s, at, n)
		}
	case c.dev.inArena(e.Address, n):
		s.host, s.arena = true, true
		c.inArena(&s, e.Address-c.dev.config.ArenaBase, n)
	default:
		c.dev.mu.Lock()
		ok = c.dev.spans.hold(e.Address, n)
		c.dev.mu.Unlock()
		s.end.Address = e.Address
		return s, ok
	}
	s.end.Host = s.mem
	return s, true
}

// inArena makes a side n bytes of the arena.
func (c *Context) inArena(s *side, at, n uint64) {
	d := c.dev
	s.arena = true
	if d.config.ArenaBase != 0 {
		s.mem = d.config.Arena[at : at+n]
	}
	d.mu.Lock()
	s.pinned = d.pinner != nil
	d.mu.Unlock()
}

func (d *Device) inArena(at, n uint64) bool {
	base, bytes := d.config.ArenaBase, uint64(len(d.config.Arena))
	return base != 0 && at >= base && at-base <= bytes && n <= bytes-(at-base)
}

// offset returns the position of part in whole, if it lies there. Only addresses are compared, of memory that doesn't
// move.
func offset(whole, part []byte) (uint64, bool) {
	if len(whole) == 0 || len(part) == 0 {
		return 0, false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(whole)))
	return uint64(at), uint64(at) < uint64(len(whole)) && uint64(len(part)) <= uint64(len(whole))-uint64(at)
}

// extent returns the distances of rows and slices at a linear end, and the number of bytes from the box's first to its
// last.
func extent(e *accel.End, w *accel.Copy) (pitch, height, n uint64, ok bool) {
	pitch, height = e.Pitch, e.Height
	if w.Height == 1 && (pitch == 0 || w.Depth == 1) {
		pitch = max(pitch, w.Width)
	}
	if height == 0 {
		height = w.Height
	}
	if pitch < w.Width || w.Depth > 1 && height < w.Height {
		return 0, 0, 0, false
	}
	height = max(height, w.Height)
	hi, slice := bits.Mul64(pitch, height)
	if hi != 0 && w.Depth > 1 {
		return 0, 0, 0, false
	}
	h1, a := bits.Mul64(w.Height-1, pitch)
	h2, b := bits.Mul64(w.Depth-1, slice)
	n, c1 := bits.Add64(a, b, 0)
	n, c2 := bits.Add64(n, w.Width, 0)
	return pitch, height, n, h1|h2|c1|c2 == 0
}

// fill queues a fill.
func (s *Stream) fill(w *accel.Fill, done accel.Done) cuda.Result {
	c := s.ctx
	f, r := c.checkFill(w)
	switch {
	case r != cuda.Success:
		return r
	case f.width == 0:
		return s.nothing(done)
	case f.arena:
		return s.fillArena(w, f.pitch, f.width, done)
	}
	p := &inflightOp{class: accel.CopyDevice, done: done}
	return s.perform(p, func() cuda.Result { return s.giveFill(w, f.pitch) })
}

// giveFill submits a fill of device memory to the driver.
func (s *Stream) giveFill(w *accel.Fill, pitch uint64) cuda.Result {
	c := s.ctx
	return driver.Fill(c.ctx, w.Address, pitch, w.Value, w.ElementSize, w.Width, w.Height, s.h)
}

// filling is the shape of a checked fill.
type filling struct {
	pitch, width uint64 // bytes; no width: an empty fill
	arena        bool   // it is host memory
}

func (c *Context) checkFill(w *accel.Fill) (f filling, r cuda.Result) {
	size := uint64(w.ElementSize)
	if size != 1 && size != 2 && size != 4 || w.Address%size != 0 {
		return f, cuda.ErrorInvalidValue
	}
	if w.Width == 0 || w.Height == 0 {
		return f, cuda.Success
	}
	hi, width := bits.Mul64(w.Width, size)
	e := accel.End{Address: w.Address, Pitch: w.Pitch}
	pitch, _, n, ok := extent(&e, &accel.Copy{Width: width, Height: w.Height, Depth: 1})
	if hi != 0 || !ok || pitch%size != 0 && w.Height > 1 {
		return f, cuda.ErrorInvalidValue
	}
	f = filling{pitch: pitch, width: width, arena: c.dev.inArena(w.Address, n)}
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	if !f.arena && !c.dev.spans.hold(w.Address, n) {
		return f, cuda.ErrorInvalidValue
	}
	return f, cuda.Success
}

// fillArena fills host memory: on the CPU, in the stream's order.
func (s *Stream) fillArena(w *accel.Fill, pitch, width uint64, done accel.Done) cuda.Result {
	c := s.ctx
	mem := c.dev.config.Arena[w.Address-c.dev.config.ArenaBase:]
	rows, value, size := w.Height, w.Value, uint64(w.ElementSize)
	p := &inflightOp{class: accel.CopyDevice, hostPart: hostPart{moves: true}, done: done}
	p.due = func(r cuda.Result, finished func()) {
		for y := uint64(0); y < rows && r == cuda.Success; y++ {
			row := mem[y*pitch : y*pitch+width]
			for i := range row {
				row[i] = byte(value >> (8 * (uint64(i) % size)))
			}
		}
		finished()
	}
	return s.hostFunc(p)
}
