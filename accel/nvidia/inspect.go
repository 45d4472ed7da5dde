//go:build cgo

package nvidia

import (
	"slices"

	"pegasus/accel/linked"
	"pegasus/cuda"
)

// Inspect loads the image into a context: a driver reports the layout of loaded images only.
func (d *Device) Inspect(img []byte) (*cuda.ModuleLayout, string, cuda.Result) {
	if _, p, ok := linked.Read(img, 0); linked.Is(img) && ok && p != linked.ToLoad {
		return nil, "the linked image is not to be loaded", cuda.ErrorInvalidImage
	}
	c, r := d.bystander()
	if r != cuda.Success {
		return nil, "", r
	}
	m, log, r := c.LoadModule(img)
	if r != cuda.Success {
		return nil, log, r
	}
	l := *m.Layout()
	l.Globals = slices.Clone(l.Globals)
	for i := range l.Globals {
		l.Globals[i].Address = 0
	}
	m.Unload()
	return &l, log, cuda.Success
}

// bystander returns a context to inspect images with: one of the guest, else a new one that will become the guest's
// first. A context takes a driver a good part of a second, and hundreds of megabytes.
func (d *Device) bystander() (*Context, cuda.Result) {
	d.mu.Lock()
	for c := range d.contexts {
		if !c.destroyed.Begun && c.Err() == cuda.Success {
			d.mu.Unlock()
			return c, cuda.Success
		}
	}
	d.mu.Unlock()
	c, r := d.makeContext(0)
	if r != cuda.Success {
		return nil, r
	}
	d.mu.Lock()
	d.spare = c
	d.mu.Unlock()
	return c, cuda.Success
}

// takeSpare returns the context that was made to inspect images, if it has these flags.
func (d *Device) takeSpare(flags uint32) *Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.spare
	if c == nil || flags&contextFlags != 0 || c.Err() != cuda.Success {
		return nil
	}
	d.spare = nil
	return c
}
