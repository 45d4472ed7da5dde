//go:build cgo

package nvidia

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/handover"
	"pegasus/cuda"
)

// A device segment is memory that one process of a domain created and that the others imported: each process that has
// it attached has a descriptor of it, and sends that to the next one. So the process that created it may end while
// others use it. The last process to detach it copies its bytes to the domain's file, the next to attach it copies them
// back; a hole in the file stands for zeros, and is not copied.

// segments are the segments that this process holds.
type segments struct {
	mu     sync.Mutex // held while the process begins or ends to hold one: across calls of the driver, claims and copies
	all    map[uint32]*segment
	coming atomic.Int32 // attachments that wait for the mutex, or have it
}

// segment is a segment that this process holds: one allocation, however often it is attached.
type segment struct {
	accel.DeviceSegment
	h     driver.Physical
	fd    int // of the memory
	whole uint64
	spans []*span // its attachments, until leave has ended them
}

// SegmentUnit returns the page size of segments, in bytes.
func (d *Device) SegmentUnit() uint64 { return guestGranule }

// holderPatience is how long a process that holds a segment may leave a request for it unanswered.
const holderPatience = 10 * time.Second

// AttachSegment maps a segment once more. If there is no room, but removed attachments wait for pending work, it waits
// for them.
func (c *Context) AttachSegment(of accel.DeviceSegment) (addr uint64, r cuda.Result) {
	d := c.dev
	if r := c.Err(); r != cuda.Success {
		return 0, r
	}
	m := d.exporter()
	if m == nil {
		return 0, cuda.ErrorNotSupported
	}
	if of.Bytes == 0 || of.Bytes > d.about.TotalMem {
		return 0, cuda.ErrorInvalidValue
	}
	d.segments.coming.Add(1)
	defer d.segments.coming.Add(-1)
	for {
		before := d.onWay()
		addr, r := c.tryAttach(m, of)
		if r != cuda.ErrorOutOfMemory || !d.awaitFree(before) || c.Err() != cuda.Success {
			return addr, r
		}
	}
}

func (c *Context) tryAttach(m *mapped, of accel.DeviceSegment) (addr uint64, r cuda.Result) {
	l := &c.dev.segments
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.all[of.ID]; own != nil {
		return c.attach(m, own)
	}
	if r := of.Claim(false); r != cuda.Success {
		return 0, r
	}
	defer of.Yield()
	addr, r = c.begin(m, &segment{DeviceSegment: of, fd: -1, whole: (of.Bytes + guestGranule - 1) / guestGranule * guestGranule})
	return addr, c.failIfSticky(r)
}

// begin attaches a segment that this process doesn't hold yet. The caller has the claim.
func (c *Context) begin(m *mapped, own *segment) (addr uint64, r cuda.Result) {
	d := c.dev
	taken, r := d.takeSegment(own)
	if r == cuda.Success && !taken {
		r = d.makeSegment(own)
	}
	if r != cuda.Success {
		return 0, r
	}
	if addr, r = c.attach(m, own); r != cuda.Success {
		d.dropSegment(own)
		return 0, r
	}
	if !taken {
		r = c.load(own, addr)
	}
	if r == cuda.Success {
		r = d.hold(m, own)
	}
	if r != cuda.Success {
		d.mu.Lock()
		s := d.spans.find(addr)
		d.spans.drop(s)
		d.mu.Unlock()
		d.unmapSegment(s)
		d.dropSegment(own)
		return 0, r
	}
	if !taken { // the only copy is in this process now
		if err := own.Clear(); err != nil {
			d.log.Error("clear the stored bytes of a device segment", "bytes", own.Bytes, "err", err)
		}
	}
	return addr, cuda.Success
}

// takeSegment imports a segment from a process that holds it. It returns false if none does.
func (d *Device) takeSegment(own *segment) (taken bool, r cuda.Result) {
	for until := time.Now().Add(holderPatience); ; {
		silent := false
		for _, id := range own.Holders() {
			g, fd, err := handover.Fetch(accel.ShareToken{ID: id, Tag: own.Tag})
			if errors.Is(err, unix.ECONNREFUSED) { // it has ended, which is not recorded yet
				continue
			}
			if err != nil {
				d.log.Info("request a device segment from another process", "err", err)
				silent = true
				continue
			}
			if g != (handover.ExportedFD{Whole: own.whole, Bytes: own.Bytes}) {
				unix.Close(fd)
				return false, cuda.ErrorInvalidValue
			}
			if own.h, r = driver.ImportMemory(nil, fd); r != cuda.Success {
				unix.Close(fd)
				return false, r
			}
			own.fd = fd
			return true, cuda.Success
		}
		if !silent {
			return false, cuda.Success
		}
		if time.Now().After(until) { // a second copy of the segment must not be created
			return false, cuda.ErrorOperatingSystem
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// makeSegment creates the memory of a segment, with undefined contents.
func (d *Device) makeSegment(own *segment) (r cuda.Result) {
	if own.h, r = d.createCounted(own.whole); r != cuda.Success {
		return r
	}
	if own.fd, r = driver.ExportMemory(nil, own.h); r != cuda.Success {
		own.fd = -1
		driver.ReleaseMemory(nil, own.h)
	}
	return r
}

// hold exports the segment from this process to others.
func (d *Device) hold(m *mapped, own *segment) cuda.Result {
	g := handover.ExportedFD{Whole: own.whole, Bytes: own.Bytes}
	t, err := m.offers.AddTagged(own.Tag, uint64(own.h), g, func() (int, error) { return unix.FcntlInt(uintptr(own.fd), unix.F_DUPFD_CLOEXEC, 0) }, d.log)
	if err != nil {
		d.log.Error("export a device segment", "err", err)
		return cuda.ErrorOperatingSystem
	}
	if d.segments.all == nil {
		d.segments.all = map[uint32]*segment{}
	}
	d.segments.all[own.ID] = own
	own.Hold(t.ID)
	return cuda.Success
}

// attach maps a segment that this process has. d.segments.mu is held.
func (c *Context) attach(m *mapped, own *segment) (addr uint64, r cuda.Result) {
	d := c.dev
	b := &block{bytes: own.whole, h: own.h}
	if r := m.place(d, b); r != cuda.Success {
		return 0, r
	}
	s := &span{at: b.at, bytes: own.Bytes, ctx: c, kind: communal, whole: b, segment: own}
	d.mu.Lock()
	added := !c.destroyed.Begun && d.spans.add(s)
	d.mu.Unlock()
	if !added {
		d.unmapSegment(s)
		return 0, cuda.ErrorUnknown
	}
	own.spans = append(own.spans, s)
	return s.at, cuda.Success
}

// unmapSegment removes an attachment's mapping.
func (d *Device) unmapSegment(s *span) {
	m := d.store.(*mapped)
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := driver.UnmapMemory(nil, s.whole.at, s.whole.bytes); r != cuda.Success {
		d.log.Error("unmap a device segment", "bytes", s.bytes, "err", r) // its addresses stay reserved
		return
	}
	giveHole(&m.free, hole{s.whole.at, s.whole.bytes})
}

// dropSegment frees the memory of a segment that is mapped nowhere.
func (d *Device) dropSegment(own *segment) {
	if r := driver.ReleaseMemory(nil, own.h); r != cuda.Success {
		d.log.Error("release a device segment", "bytes", own.whole, "err", r)
	}
	unix.Close(own.fd)
}

// leaveLater ends an attachment once all work submitted earlier has ended.
func (c *Context) leaveLater(s *span, done func()) {
	d := c.dev
	d.mu.Lock()
	c.freeing++
	d.mu.Unlock()
	c.afterAll(func(cuda.Result) {
		go func() { // it may take long, and other goroutines free memory, too
			d.mu.Lock()
			d.spans.drop(s)
			d.mu.Unlock()
			d.leave(c, s)
			d.mu.Lock()
			c.freeing--
			d.changed.Broadcast()
			d.mu.Unlock()
			done()
		}()
	})
}

// leave ends an unused attachment; with the last one the process stops holding the segment.
func (d *Device) leave(c *Context, s *span) {
	l, own := &d.segments, s.segment
	l.mu.Lock()
	defer l.mu.Unlock()
	own.spans = slices.DeleteFunc(own.spans, func(o *span) bool { return o == s })
	if len(own.spans) > 0 {
		d.unmapSegment(s)
		return
	}
	if l.all[own.ID] != own { // StoreSegments was quicker
		d.unmapSegment(s)
		d.dropSegment(own)
		return
	}
	claimed := own.Claim(true) == cuda.Success
	stored := claimed && d.rescue(c, own, s.at)
	d.forgetSegment(own)
	d.unmapSegment(s)
	d.dropSegment(own)
	own.Leave(stored)
	if claimed {
		own.Yield()
	}
}

// forgetSegment stops exporting a segment.
func (d *Device) forgetSegment(own *segment) {
	delete(d.segments.all, own.ID)
	d.store.(*mapped).offers.Forget(uint64(own.h))
}

// StoreSegments stores the segments that this process alone holds, before it ends.
func (d *Device) StoreSegments() {
	l := &d.segments
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, own := range l.all {
		if own.Claim(true) != cuda.Success {
			continue
		}
		s := own.spans[0]
		stored := d.rescue(s.ctx, own, s.at)
		d.forgetSegment(own)
		own.Leave(stored)
		own.Yield()
	}
}

// rescue stores a segment's bytes if they would be lost without this process. It reports whether the file has them
// then.
func (d *Device) rescue(c *Context, own *segment, at uint64) (stored bool) {
	if d.segments.coming.Load() == 0 && !own.Wanted() || d.heldElsewhere(own) {
		return false
	}
	if c.save(own, at) == cuda.Success {
		return true
	}
	fresh, r := newContext(d, 0) // the failed context can't be used
	if r == cuda.Success {
		r = fresh.save(own, at)
		gone := make(chan struct{})
		fresh.Destroy(func() { close(gone) })
		<-gone
	}
	if r != cuda.Success {
		d.log.Error("store a device segment: its bytes are lost, and read as zeros", "bytes", own.Bytes, "err", r)
	}
	return r == cuda.Success
}

// heldElsewhere reports whether another process has the segment, by a request to each.
func (d *Device) heldElsewhere(own *segment) bool {
	for _, id := range own.Holders() {
		if _, fd, err := handover.Fetch(accel.ShareToken{ID: id, Tag: own.Tag}); err == nil {
			unix.Close(fd)
			return true
		}
	}
	return false
}
