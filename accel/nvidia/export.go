//go:build cgo

package nvidia

import (
	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/handover"
	"pegasus/cuda"
)

// exporter returns the store if its memory can be exported to other processes.
func (d *Device) exporter() *mapped {
	if !d.shareable {
		return nil
	}
	return d.mapper()
}

// ExportIPC exports the block that an allocation lies in; an importer uses the allocation alone. Memory that can be
// evicted isn't exported: an importer would keep it on the device.
func (d *Device) ExportIPC(addr uint64) (t accel.ShareToken, n uint64, r cuda.Result) {
	m := d.exporter()
	if m == nil || d.swap != nil {
		return t, 0, cuda.ErrorNotSupported
	}
	d.mu.Lock()
	s := d.spans.find(addr)
	ok := s != nil && s.kind == allocation && !s.freed
	d.mu.Unlock()
	if !ok {
		return t, 0, cuda.ErrorInvalidValue
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.blockOf(addr, s.held)
	if b == nil {
		return t, 0, cuda.ErrorInvalidValue
	}
	t, r = d.offer(m, b.h, handover.ExportedFD{Whole: b.bytes, At: addr - b.at, Bytes: s.bytes})
	return t, s.bytes, r
}

// offer exports memory. m.mu is held.
func (d *Device) offer(m *mapped, h driver.Physical, g handover.ExportedFD) (accel.ShareToken, cuda.Result) {
	t, err := m.offers.Add(uint64(h), g, func() (int, error) {
		fd, r := driver.ExportMemory(nil, h)
		if r != cuda.Success {
			return -1, r
		}
		return fd, nil
	}, d.log)
	if err != nil {
		d.log.Error("export device memory", "err", err)
		return t, cuda.ErrorOperatingSystem
	}
	return t, cuda.Success
}

// ExportMemory exports memory that the guest maps itself.
func (d *Device) ExportMemory(of accel.Memory) (t accel.ShareToken, r cuda.Result) {
	mem, ok := of.(*mappedMemory)
	m := d.exporter()
	if m == nil || !ok {
		return t, cuda.ErrorNotSupported
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return d.offer(m, mem.h, handover.ExportedFD{Whole: mem.bytes, Bytes: mem.bytes})
}

// take imports memory that another process exports. It is accounted for here as well: it stays when the other process
// is gone.
func (d *Device) take(t accel.ShareToken) (h driver.Physical, g handover.ExportedFD, r cuda.Result) {
	g, fd, err := handover.Fetch(t)
	if err != nil {
		d.log.Info("import device memory", "err", err)
		return h, g, cuda.ErrorInvalidValue
	}
	defer unix.Close(fd)
	if g.Whole%guestGranule != 0 {
		return h, g, cuda.ErrorInvalidValue
	}
	if q := d.config.Quota; q != nil && !q(int64(g.Whole)) {
		return h, g, cuda.ErrorOutOfMemory
	}
	if h, r = driver.ImportMemory(nil, fd); r != cuda.Success {
		d.unquota(g.Whole)
	}
	return h, g, r
}

func (d *Device) unquota(n uint64) {
	if q := d.config.Quota; q != nil {
		q(-int64(n))
	}
}

// ImportMemory imports memory that the guest will map itself.
func (d *Device) ImportMemory(t accel.ShareToken) (accel.Memory, uint64, cuda.Result) {
	if d.exporter() == nil {
		return nil, 0, cuda.ErrorNotSupported
	}
	h, g, r := d.take(t)
	if r != cuda.Success {
		return nil, 0, r
	}
	return &mappedMemory{d: d, h: h, bytes: g.Whole, users: 1}, g.Whole, cuda.Success
}

// ImportIPC maps an allocation of another process's context.
func (c *Context) ImportIPC(t accel.ShareToken) (addr, n uint64, r cuda.Result) {
	d := c.dev
	if r := c.Err(); r != cuda.Success {
		return 0, 0, r
	}
	m := d.exporter()
	if m == nil {
		return 0, 0, cuda.ErrorNotSupported
	}
	h, g, r := d.take(t)
	if r != cuda.Success {
		return 0, 0, r
	}
	b := &block{bytes: g.Whole, h: h}
	if r = m.place(d, b); r != cuda.Success {
		driver.ReleaseMemory(nil, h)
		d.unquota(g.Whole)
		return 0, 0, r
	}
	s := &span{at: b.at + g.At, bytes: g.Bytes, ctx: c, kind: borrowed, held: g.Whole, whole: b}
	d.mu.Lock()
	added := !c.destroyed.Begun && d.spans.add(s)
	d.mu.Unlock()
	if !added {
		d.handBack(s)
		return 0, 0, cuda.ErrorUnknown
	}
	return s.at, s.bytes, cuda.Success
}

// place maps memory at free addresses.
func (m *mapped) place(d *Device, b *block) (r cuda.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ok bool
	if b.at, ok = takeFirst(&m.free, b.bytes); !ok {
		return cuda.ErrorOutOfMemory
	}
	if r = driver.MapMemory(nil, b.at, b.bytes, 0, b.h); r == cuda.Success {
		if r = driver.SetAccess(nil, d.index, b.at, b.bytes, uint32(accel.ReadWrite)); r == cuda.Success {
			return r
		}
		driver.UnmapMemory(nil, b.at, b.bytes)
	}
	giveHole(&m.free, hole{b.at, b.bytes})
	return r
}

// Detach removes an import, or an attachment of memory that the domain shares.
func (c *Context) Detach(addr uint64, done func()) cuda.Result {
	d := c.dev
	d.mu.Lock()
	s := d.spans.find(addr)
	if s == nil || s.ctx != c || s.kind != borrowed && s.kind != communal || s.freed || c.destroyed.Begun {
		d.mu.Unlock()
		return cuda.ErrorInvalidValue
	}
	s.freed = true
	d.mu.Unlock()
	if s.kind == communal {
		d.segments.leaveLater(c, s, done)
		return cuda.Success
	}
	c.later(func() {
		d.mu.Lock()
		d.spans.drop(s)
		d.mu.Unlock()
		d.handBack(s)
		done()
	})
	return cuda.Success
}

// handBack unmaps borrowed memory.
func (d *Device) handBack(s *span) {
	m := d.store.(*mapped)
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := driver.Unmap(nil, s.whole.at, s.whole.bytes, s.whole.h); r != cuda.Success {
		d.log.Error("unmap imported device memory", "bytes", s.held, "err", r) // stays accounted: it is still allocated
		return
	}
	giveHole(&m.free, hole{s.whole.at, s.whole.bytes})
	d.unquota(s.held)
}
