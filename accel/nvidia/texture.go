//go:build cgo

package nvidia

import (
	"math/bits"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Texture is a texture or surface of the driver, which chose its handle.
type Texture struct {
	ctx       *Context
	h         uint64
	surface   bool
	destroyed bool
}

// NewTexture creates a texture or surface. It may block as Submit does.
func (c *Context) NewTexture(_ uint64, d accel.TextureDesc) (accel.Texture, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return nil, r
	}
	t := driver.TextureDesc{
		Address: d.Address, Width: d.Width, Height: d.Height, Pitch: d.Pitch, Format: d.Format, Channels: d.Channels,
		AddressMode: d.AddressMode, FilterMode: d.FilterMode, Flags: d.Flags, BorderColor: d.BorderColor,
	}
	if d.Array != nil {
		a, ok := d.Array.(*Array)
		if !ok || a.ctx != c || a.freed {
			return nil, cuda.ErrorInvalidHandle
		}
		t.Array = a.h
	} else if d.Surface || !c.readable(&d) {
		return nil, cuda.ErrorInvalidValue
	}
	made := &Texture{ctx: c, surface: d.Surface}
	if r := c.withAll(func() (r cuda.Result) {
		made.h, r = driver.NewTexture(c.ctx, &t, d.Surface)
		return r
	}); r != cuda.Success {
		return nil, c.failIfSticky(r)
	}
	return made, cuda.Success
}

// readable reports whether all memory that a texture of linear memory would read is the guest's: the driver would take
// an unknown address for memory of the worker's.
func (c *Context) readable(d *accel.TextureDesc) bool {
	high, row := bits.Mul64(d.Width, formatBytes(d.Format)*uint64(d.Channels))
	over, before := bits.Mul64(d.Pitch, max(d.Height, 1)-1)
	n, carry := bits.Add64(row, before, 0)
	if high != 0 || over != 0 || carry != 0 || n == 0 {
		return false
	}
	if c.dev.inArena(d.Address, n) {
		return true
	}
	c.dev.mu.Lock()
	defer c.dev.mu.Unlock()
	return c.dev.spans.hold(d.Address, n)
}

// Handle returns the handle for kernels.
func (t *Texture) Handle() uint64 { return t.h }

// Destroy releases the texture once the work submitted before has ended.
func (t *Texture) Destroy() {
	c := t.ctx
	if t.destroyed || c.isGone() {
		return
	}
	t.destroyed = true
	c.later(func() { c.failIfSticky(driver.FreeTexture(c.ctx, t.h, t.surface)) })
}
