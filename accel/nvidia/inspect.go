//go:build cgo

package nvidia

import (
	"slices"

	"pegasus/accel/linked"
	"pegasus/cuda"
)

// Inspect loads the image into a context that is there for that alone: a driver says only of what
// is loaded what it offers.
func (d *Device) Inspect(img []byte) (*cuda.ModuleLayout, string, cuda.Result) {
	if _, p, ok := linked.Read(img, 0); linked.Is(img) && ok && p != linked.ToLoad {
		return nil, "the linked image is not to be loaded", cuda.ErrorInvalidImage
	}
	c, r := d.NewContext(0)
	if r != cuda.Success {
		return nil, "", r
	}
	ended := make(chan struct{})
	defer func() {
		c.Destroy(func() { close(ended) })
		<-ended
	}()
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
