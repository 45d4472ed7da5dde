package soft

import (
	"sync/atomic"

	"pegasus/accel"
	"pegasus/cuda"
)

// Array formats (CUarray_format) and their bytes a channel.
const (
	formatU8    = 0x01
	formatU16   = 0x02
	formatU32   = 0x03
	formatS8    = 0x08
	formatS16   = 0x09
	formatS32   = 0x0a
	formatHalf  = 0x10
	formatFloat = 0x20
)

func formatBytes(format uint32) uint64 {
	switch format {
	case formatU8, formatS8:
		return 1
	case formatU16, formatS16, formatHalf:
		return 2
	case formatU32, formatS32, formatFloat:
		return 4
	}
	return 0
}

// elementBytes returns the size of an element, 0 if there is no such element.
func elementBytes(format, channels uint32) uint64 {
	if channels != 1 && channels != 2 && channels != 4 {
		return 0
	}
	return formatBytes(format) * uint64(channels)
}

const (
	arrayLayered   = 0x01 // CUDA_ARRAY3D_LAYERED: depth counts layers
	arraySurface   = 0x02 // CUDA_ARRAY3D_SURFACE_LDST
	arrayCube      = 0x04 // CUDA_ARRAY3D_CUBEMAP: depth counts faces, of all layers
	arrayGather    = 0x08 // CUDA_ARRAY3D_TEXTURE_GATHER
	arrayPitch     = 64   // alignment of rows
	maxArrayWidth  = 131072
	maxArrayHeight = 65536
	maxArrayDepth  = 16384
)

// Array is opaque memory: rows of elements, pitch-linear, at an address that kernels can't use.
type Array struct {
	ctx             *Context
	desc            accel.ArrayDesc
	address         uint64
	rowBytes, pitch uint64
	rows, slices    uint64
	freed           bool
	gone            atomic.Bool // its memory is freed; textures check this
	element         uint64
}

// NewArray creates an array.
func (c *Context) NewArray(d accel.ArrayDesc) (accel.Array, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return nil, r
	}
	size := elementBytes(d.Format, d.Channels)
	if size == 0 || d.Width == 0 || d.Width > maxArrayWidth || d.Height > maxArrayHeight || d.Depth > maxArrayDepth ||
		d.Depth > 0 && d.Height == 0 && d.Flags&arrayLayered == 0 {
		return nil, cuda.ErrorInvalidValue
	}
	if d.Flags&^(arrayLayered|arraySurface|arrayCube|arrayGather) != 0 {
		return nil, cuda.ErrorNotSupported
	}
	if d.Flags&arrayLayered != 0 && d.Depth == 0 || d.Flags&arrayCube != 0 && !isCube(&d) {
		return nil, cuda.ErrorInvalidValue
	}
	a := &Array{ctx: c, desc: d, rowBytes: d.Width * size, rows: max(d.Height, 1), slices: max(d.Depth, 1), element: size}
	a.pitch = (a.rowBytes + arrayPitch - 1) &^ (arrayPitch - 1)
	var r cuda.Result
	a.address, r = c.take(a.pitch*a.rows*a.slices, opaque) // at most 2^20 · 2^16 · 2^14 bytes
	if r != cuda.Success {
		return nil, r
	}
	return a, cuda.Success
}

// isCube reports whether an array can be a cube map, or several if it is layered.
func isCube(d *accel.ArrayDesc) bool {
	return d.Width == d.Height && (d.Depth == 6 || d.Flags&arrayLayered != 0 && d.Depth > 0 && d.Depth%6 == 0)
}

// Destroy releases the array once the work submitted before has ended.
func (a *Array) Destroy() {
	if !a.freed {
		a.freed = true
		a.ctx.afterAll(func(cuda.Result) { a.gone.Store(true) })
		a.ctx.drop(a.address, nil)
	}
}

// bytes returns the array's memory, which must not be gone.
func (a *Array) bytes() []byte { return a.ctx.dev.space.Raw(a.address, a.pitch*a.rows*a.slices) }

// box resolves an end of a copy in the array.
func (a *Array) box(e *accel.End, w *accel.Copy) (p plane, ok bool) {
	if !inside(e.X, w.Width, a.rowBytes) || !inside(e.Y, w.Height, a.rows) || !inside(e.Z, w.Depth, a.slices) {
		return p, false
	}
	p.pitch, p.slice = a.pitch, a.pitch*a.rows
	p.mem = a.bytes()[e.Z*p.slice+e.Y*p.pitch+e.X:]
	return p, true
}

// inside reports whether [at, at+n) lies in [0, limit).
func inside(at, n, limit uint64) bool { return at <= limit && n <= limit-at }
