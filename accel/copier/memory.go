package copier

import (
	"encoding/binary"
	"math/bits"

	"pegasus/accel"
	"pegasus/cuda"
)

// block is an allocation.
type block struct {
	ctx   *context
	mem   []byte
	freed bool // no further work may use it
}

const align = 512 // of allocations

// Alloc implements accel.Context.
func (c *context) Alloc(size uint64) (uint64, cuda.Result) {
	d := c.dev
	if r := c.Err(); r != cuda.Success {
		return 0, r
	}
	if size == 0 {
		return 0, cuda.ErrorInvalidValue
	}
	if size > d.bytes || !d.quota(int64(size)) {
		return 0, cuda.ErrorOutOfMemory
	}
	d.mu.Lock()
	fits := size <= d.bytes-d.used
	addr := d.next
	if fits {
		d.next += (size + 2*align - 1) &^ (align - 1) // addresses are never reused, and no two allocations adjoin
		d.used += size
		d.blocks[addr] = &block{ctx: c, mem: make([]byte, size)}
	}
	d.mu.Unlock()
	if !fits {
		d.quota(-int64(size))
		return 0, cuda.ErrorOutOfMemory
	}
	return addr, cuda.Success
}

// Free implements accel.Context. Work that was submitted earlier has its memory already.
func (c *context) Free(addr uint64, done func()) cuda.Result {
	d := c.dev
	d.mu.Lock()
	b := d.blocks[addr]
	if b == nil || b.ctx != c || b.freed {
		d.mu.Unlock()
		return cuda.ErrorInvalidValue
	}
	b.freed = true
	d.mu.Unlock()
	c.Synchronize(func(cuda.Result) {
		d.free(addr)
		if done != nil {
			done()
		}
	})
	return cuda.Success
}

// free releases an allocation, unless that was done.
func (d *Device) free(addr uint64) {
	d.mu.Lock()
	b := d.blocks[addr]
	if b != nil {
		delete(d.blocks, addr)
		d.used -= uint64(len(b.mem))
	}
	d.mu.Unlock()
	if b != nil {
		d.quota(-int64(len(b.mem)))
	}
}

// slice returns n bytes of device memory; nil if the guest has none there.
func (d *Device) slice(addr, n uint64) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	for base, b := range d.blocks {
		if size := uint64(len(b.mem)); !b.freed && addr >= base && addr-base <= size && n <= size-(addr-base) {
			return b.mem[addr-base:][:n]
		}
	}
	return nil
}

// extent returns the bytes from the first to the last one of a box; ok is false if its rows or slices overlap or the
// number overflows.
func extent(width, height, depth, pitch, rows uint64) (n uint64, ok bool) {
	if depth == 1 {
		rows = height
	}
	if height == 1 && depth == 1 {
		pitch = width
	}
	h1, slice := bits.Mul64(pitch, rows)
	h2, slices := bits.Mul64(slice, depth-1)
	h3, lines := bits.Mul64(pitch, height-1)
	n, c1 := bits.Add64(slices, lines, 0)
	n, c2 := bits.Add64(n, width, 0)
	return n, h1|h2|h3|c1|c2 == 0 && pitch >= width && rows >= height
}

// end returns the memory of one end of a copy; nil if the end is invalid.
func (d *Device) end(e *accel.End, w *accel.Copy) []byte {
	n, ok := extent(w.Width, w.Height, w.Depth, e.Pitch, e.Height)
	switch {
	case !ok || e.Array != nil:
		return nil
	case e.Host == nil:
		return d.slice(e.Address, n)
	case uint64(len(e.Host)) < n:
		return nil
	}
	return e.Host
}

// copies makes o a copy.
func (o *operation) copies(d *Device, w *accel.Copy) cuda.Result {
	if w.Width == 0 || w.Height == 0 || w.Depth == 0 {
		return cuda.Success
	}
	dst, src, box := d.end(&w.Dst, w), d.end(&w.Src, w), *w
	if dst == nil || src == nil {
		return cuda.ErrorInvalidValue
	}
	o.class = accel.CopyDevice
	switch {
	case w.Dst.Host != nil:
		o.class = accel.CopyOut
	case w.Src.Host != nil:
		o.class = accel.CopyIn
	}
	o.run = func() {
		for z := range box.Depth {
			for y := range box.Height {
				to, from := (z*box.Dst.Height+y)*box.Dst.Pitch, (z*box.Src.Height+y)*box.Src.Pitch
				copy(dst[to:][:box.Width], src[from:][:box.Width])
			}
		}
	}
	return cuda.Success
}

// fills makes o a fill.
func (o *operation) fills(d *Device, w *accel.Fill) cuda.Result {
	size, f := uint64(w.ElementSize), *w
	if size != 1 && size != 2 && size != 4 {
		return cuda.ErrorInvalidValue
	}
	if w.Width == 0 || w.Height == 0 {
		return cuda.Success
	}
	if w.Height == 1 {
		f.Pitch = 0
	}
	high, row := bits.Mul64(w.Width, size)
	n, ok := extent(row, w.Height, 1, w.Pitch, 0)
	if high != 0 || !ok || w.Address%size != 0 || f.Pitch%size != 0 {
		return cuda.ErrorInvalidValue
	}
	to := d.slice(w.Address, n)
	if to == nil {
		return cuda.ErrorInvalidValue
	}
	o.class = accel.CopyDevice
	var element [4]byte
	binary.LittleEndian.PutUint32(element[:], w.Value)
	o.run = func() {
		for y := range f.Height {
			line := to[y*f.Pitch:][:row]
			for i := range line {
				line[i] = element[uint64(i)%size]
			}
		}
	}
	return cuda.Success
}
