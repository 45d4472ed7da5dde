package soft

import (
	"encoding/binary"
	"sync/atomic"

	"pegasus/accel"
	"pegasus/accel/soft/engine"
	"pegasus/cuda"
)

// boxFill is a checked fill.
type boxFill struct {
	mem           []byte
	width         uint64 // bytes
	rows, pitch   uint64
	value         uint32
	elementLength uint32
}

// fill queues a fill.
func (c *Context) fill(s *Stream, w *accel.Fill, done accel.Done) cuda.Result {
	b, r := c.checkFill(w)
	if r != cuda.Success {
		return r
	}
	if b.mem == nil {
		return c.nothing(s, done)
	}
	d := c.dev
	d.mu.Lock()
	x := d.newNode(c, fillNode)
	x.fill, x.class, x.engine, x.done = b, accel.CopyDevice, engine.Compute, done
	s.append(x)
	if len(b.mem) > inlineBytes || !d.executors[engine.Compute].inline(x) {
		d.submit(x)
	}
	return cuda.Success
}

// checkFill resolves a fill; of nothing, to no memory.
func (c *Context) checkFill(w *accel.Fill) (b boxFill, r cuda.Result) {
	size := uint64(w.ElementSize)
	if size != 1 && size != 2 && size != 4 || w.Address%size != 0 {
		return b, cuda.ErrorInvalidValue
	}
	if w.Width == 0 || w.Height == 0 {
		return b, cuda.Success
	}
	if w.Width > c.dev.config.DeviceBytes {
		return b, cuda.ErrorInvalidValue
	}
	b = boxFill{width: w.Width * size, rows: w.Height, pitch: w.Pitch, value: w.Value, elementLength: w.ElementSize}
	if b.rows == 1 {
		b.pitch = b.width
	}
	if b.pitch < b.width || b.pitch%size != 0 {
		return b, cuda.ErrorInvalidValue
	}
	n, ok := extent(b.width, b.rows, 1, b.pitch, 0)
	if !ok {
		return b, cuda.ErrorInvalidValue
	}
	if b.mem = c.dev.space.Slice(w.Address, n); b.mem == nil {
		return b, cuda.ErrorInvalidValue
	}
	return b, cuda.Success
}

// run fills until it is done or cancelled.
func (b *boxFill) run(cancel *atomic.Bool) {
	if b.pitch == b.width {
		fillRow(b.mem, b.value, b.elementLength, cancel)
		return
	}
	for y := range b.rows {
		if cancel.Load() {
			return
		}
		fillRow(b.mem[y*b.pitch:][:b.width], b.value, b.elementLength, cancel)
	}
}

// fillRow repeats the value over mem: once by hand up to a step, which is then copied.
func fillRow(mem []byte, value, size uint32, cancel *atomic.Bool) {
	pattern := value << (32 - 8*size) >> (32 - 8*size)
	if pattern == 0 {
		for len(mem) > copyStep && !cancel.Load() {
			clear(mem[:copyStep])
			mem = mem[copyStep:]
		}
		if len(mem) <= copyStep {
			clear(mem)
		}
		return
	}
	var word [4]byte
	binary.LittleEndian.PutUint32(word[:], pattern)
	n := copy(mem, word[:size])
	for n < len(mem) && !cancel.Load() {
		n += copy(mem[n:], mem[:min(n, copyStep)])
	}
}
