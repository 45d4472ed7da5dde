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
	x, y          uint64 // the position reached
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
	x.fill, x.class, x.engine, x.spent, x.done = b, accel.CopyDevice, engine.Compute, w.Spent, done
	s.append(x)
	if len(b.mem) > inlineBytes || !d.executors[engine.Compute].inline(x) {
		d.submit(x)
	}
	return cuda.Success
}

// checkFill resolves a fill; an empty one resolves to no memory.
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

// tileBytes is the size of the pattern that a fill writes at a time.
const tileBytes = 64 << 10

// run fills the current memory of b. It returns as boxCopy.run does. tile has room for tileBytes.
func (b *boxFill) run(mem, tile []byte, cancel *atomic.Bool, due func() bool) (done bool) {
	width, rows := b.width, b.rows
	if width == b.pitch {
		width, rows = width*rows, 1
	}
	tile = tile[:min(width, tileBytes)]
	b.draw(tile)
	work := work{cancel: cancel, due: due}
	for ; b.y < rows; b.y++ {
		row := mem[b.y*b.pitch:]
		for b.x < width {
			n := uint64(copy(row[b.x:width], tile))
			b.x += n
			if over, cancelled := work.did(n); over {
				return cancelled
			}
		}
		b.x = 0
	}
	return true
}

// draw repeats the value over a tile. The tile's length is a multiple of an element's.
func (b *boxFill) draw(tile []byte) {
	var word [4]byte
	binary.LittleEndian.PutUint32(word[:], b.value)
	for n := copy(tile, word[:b.elementLength]); n < len(tile); {
		n += copy(tile[n:], tile[:n])
	}
}
