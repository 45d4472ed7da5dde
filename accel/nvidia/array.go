//go:build cgo

package nvidia

import (
	"math/bits"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Array is an array of the driver's.
type Array struct {
	ctx   *Context
	h     driver.Array
	desc  accel.ArrayDesc
	row   uint64 // bytes
	held  uint64 // the bytes accounted for
	freed bool
}

// formatBytes returns the bytes a channel of a CUarray_format, or 0 for an unsupported one.
func formatBytes(format uint32) uint64 {
	switch format {
	case 0x01, 0x08: // 8 bits, unsigned and signed
		return 1
	case 0x02, 0x09, 0x10: // 16 bits, and half
		return 2
	case 0x03, 0x0a, 0x20: // 32 bits, and float
		return 4
	}
	return 0
}

// NewArray creates an array.
func (c *Context) NewArray(a accel.ArrayDesc) (accel.Array, cuda.Result) {
	d := c.dev
	if r := c.Err(); r != cuda.Success {
		return nil, r
	}
	element := formatBytes(a.Format) * uint64(a.Channels)
	if element == 0 || a.Channels > 4 || a.Channels == 3 || a.Width == 0 {
		return nil, cuda.ErrorInvalidValue
	}
	h1, n := bits.Mul64(a.Width, element)
	h2, n := bits.Mul64(n, max(a.Height, 1))
	h3, n := bits.Mul64(n, max(a.Depth, 1))
	if h1 != 0 || h2 != 0 || h3 != 0 || n > d.about.TotalMem {
		return nil, cuda.ErrorInvalidValue
	}
	if q := d.config.Quota; q != nil && !q(int64(n)) {
		return nil, cuda.ErrorOutOfMemory
	}
	arr := &Array{ctx: c, desc: a, row: a.Width * element, held: n}
	var r cuda.Result
	if arr.h, r = driver.NewArray(c.ctx, a.Width, a.Height, a.Depth, a.Format, a.Channels, a.Flags); r != cuda.Success {
		if q := d.config.Quota; q != nil {
			q(-int64(n))
		}
		return nil, c.failIfSticky(r)
	}
	d.mu.Lock()
	c.arrays += n
	d.mu.Unlock()
	if r = arr.clear(); r != cuda.Success {
		arr.free()
		return nil, c.failIfSticky(r)
	}
	return arr, cuda.Success
}

// clear zeroes the array, which others may have had before: slices at a time.
func (a *Array) clear() cuda.Result {
	c := a.ctx
	rows, slices := max(a.desc.Height, 1), max(a.desc.Depth, 1)
	zeros, r := c.buffers.take(a.row * rows)
	if r != cuda.Success {
		return r
	}
	defer c.buffers.give(zeros)
	clear(zeros)
	from := driver.End{Host: zeros, Pitch: a.row, Height: rows}
	for z := uint64(0); z < slices && r == cuda.Success; z++ {
		r = driver.CopyBox(c.ctx, &driver.End{Array: a.h, Z: z}, &from, a.row, rows, 1, c.aside)
	}
	if r == cuda.Success {
		r = driver.SyncStream(c.ctx, c.aside)
	}
	return r
}

// Destroy releases the array once the work submitted before has ended.
func (a *Array) Destroy() {
	c := a.ctx
	if a.freed || c.isGone() {
		return
	}
	a.freed = true
	c.later(a.free)
}

// free gives the array back. If the driver doesn't take it, it is there, and accounted, until its context ends.
func (a *Array) free() {
	c := a.ctx
	if r := driver.FreeArray(c.ctx, a.h); c.failIfSticky(r) != cuda.Success {
		return
	}
	c.dev.mu.Lock()
	c.arrays -= a.held
	c.dev.mu.Unlock()
	if q := c.dev.config.Quota; q != nil {
		q(-int64(a.held))
	}
}

// holds reports whether a box lies in the array.
func (a *Array) holds(e *accel.End, w *accel.Copy) bool {
	return inside(e.X, w.Width, a.row) && inside(e.Y, w.Height, max(a.desc.Height, 1)) && inside(e.Z, w.Depth, max(a.desc.Depth, 1))
}

// inside reports whether [at, at+n) lies in [0, limit).
func inside(at, n, limit uint64) bool { return at <= limit && n <= limit-at }
