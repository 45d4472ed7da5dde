//go:build cgo

package nvidia

import (
	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// wordAt reports whether a word lies where the device can access it by that address.
func (d *Device) wordAt(at uint64, n uint32) bool {
	if n != 4 && n != 8 || at%uint64(n) != 0 || d.words().Bits == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inArena(at, uint64(n)) {
		return d.pinner != nil
	}
	return d.spans.hold(at, uint64(n))
}

// value queues an operation of the driver on a word. It holds no engine, so no time is measured.
func (s *Stream) value(p *inflightOp, at uint64, do func() cuda.Result) (r cuda.Result) {
	c := s.ctx
	if !c.dev.inArena(at, 1) {
		if r = c.enter(p); r != cuda.Success {
			return r
		}
	}
	if r = s.prepare(p); r != cuda.Success {
		return c.forget(p, r)
	}
	if r = do(); r != cuda.Success {
		return c.forget(p, r)
	}
	if p.end, r = s.recorded(); r != cuda.Success {
		return c.forget(p, r)
	}
	s.append(p)
	return cuda.Success
}

func (s *Stream) writeValue(w *accel.WriteValue, done accel.Done) cuda.Result {
	c := s.ctx
	if !c.dev.wordAt(w.Address, w.Bytes) {
		return cuda.ErrorInvalidValue
	}
	return s.value(&inflightOp{class: accel.CopyIn, done: done}, w.Address, func() cuda.Result {
		return driver.WriteValue(c.ctx, s.h, w.Address, w.Value, w.Bytes)
	})
}

// waitValue counts as held until it ends: work behind it may depend on the guest.
func (s *Stream) waitValue(w *accel.WaitValue, done accel.Done) cuda.Result {
	c := s.ctx
	d := c.dev
	if w.Condition > accel.NorBit || !d.wordAt(w.Address, w.Bytes) {
		return cuda.ErrorInvalidValue
	}
	wait := *w
	p := &inflightOp{class: accel.CopyIn, done: done, waits: &wait}
	p.settle = func() {
		d.mu.Lock()
		d.held--
		d.changed.Broadcast()
		d.mu.Unlock()
	}
	d.mu.Lock()
	d.held++
	d.mu.Unlock()
	r := s.value(p, w.Address, func() cuda.Result {
		return driver.WaitValue(c.ctx, s.h, w.Address, w.Value, w.Bytes, uint32(w.Condition))
	})
	if r != cuda.Success {
		p.settle()
	}
	return r
}

// satisfy ends the waits of the streams of a context that is being destroyed, since no other write may come: it writes
// the values that they wait for. d.mu is held, and released meanwhile.
func (c *Context) satisfy() {
	var all []*accel.WaitValue
	for s := range c.active {
		if p := s.first; p != nil && p.waits != nil {
			all = append(all, p.waits)
		}
	}
	if len(all) == 0 {
		return
	}
	c.dev.mu.Unlock()
	for _, w := range all {
		value := w.Value
		if w.Condition == accel.NorBit {
			value = 0
		}
		driver.WriteValue(c.ctx, c.aside, w.Address, value, w.Bytes)
	}
	c.dev.mu.Lock()
}
