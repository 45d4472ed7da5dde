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
	dev    *Device
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
		addr, r := d.segments.tryAttach(c, m, of)
		if r != cuda.ErrorOutOfMemory || !d.awaitFree(before) || c.Err() != cuda.Success {
			return addr, r
		}
	}
}

func (l *segments) tryAttach(c *Context, m *mapped, of accel.DeviceSegment) (addr uint64, r cuda.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.all[of.ID]; own != nil {
		return l.attach(c, m, own)
	}
	if r := of.Claim(false); r != cuda.Success {
		return 0, r
	}
	defer of.Yield()
	addr, r = l.begin(c, m, &segment{DeviceSegment: of, fd: -1, whole: (of.Bytes + guestGranule - 1) / guestGranule * guestGranule})
	return addr, c.failIfSticky(r)
}

// begin attaches a segment that this process doesn't hold yet. The caller has the claim.
func (l *segments) begin(c *Context, m *mapped, own *segment) (addr uint64, r cuda.Result) {
	d := c.dev
	taken, r := l.fetch(own)
	if r == cuda.Success && !taken {
		r = l.create(own)
	}
	if r != cuda.Success {
		return 0, r
	}
	if addr, r = l.attach(c, m, own); r != cuda.Success {
		l.drop(own)
		return 0, r
	}
	if !taken {
		r = own.load(c, addr)
	}
	if r == cuda.Success {
		r = l.hold(m, own)
	}
	if r != cuda.Success {
		d.mu.Lock()
		s := d.spans.find(addr)
		d.spans.drop(s)
		d.mu.Unlock()
		l.unmap(s)
		l.drop(own)
		return 0, r
	}
	if !taken { // the only copy is in this process now
		if err := own.Clear(); err != nil {
			d.log.Error("clear the stored bytes of a device segment", "bytes", own.Bytes, "err", err)
		}
	}
	return addr, cuda.Success
}

// fetch imports a segment from a process that holds it. It returns false if none does.
func (l *segments) fetch(own *segment) (taken bool, r cuda.Result) {
	d := l.dev
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

// create creates the memory of a segment, with undefined contents.
func (l *segments) create(own *segment) (r cuda.Result) {
	if own.h, r = l.dev.createCounted(own.whole); r != cuda.Success {
		return r
	}
	if own.fd, r = driver.ExportMemory(nil, own.h); r != cuda.Success {
		own.fd = -1
		driver.ReleaseMemory(nil, own.h)
	}
	return r
}

// hold exports the segment from this process to others.
func (l *segments) hold(m *mapped, own *segment) cuda.Result {
	d := l.dev
	g := handover.ExportedFD{Whole: own.whole, Bytes: own.Bytes}
	t, err := m.offers.AddTagged(own.Tag, uint64(own.h), g, func() (int, error) { return unix.FcntlInt(uintptr(own.fd), unix.F_DUPFD_CLOEXEC, 0) }, d.log)
	if err != nil {
		d.log.Error("export a device segment", "err", err)
		return cuda.ErrorOperatingSystem
	}
	if l.all == nil {
		l.all = map[uint32]*segment{}
	}
	l.all[own.ID] = own
	own.Hold(t.ID)
	return cuda.Success
}

// attach maps a segment that this process has. l.mu is held.
func (l *segments) attach(c *Context, m *mapped, own *segment) (addr uint64, r cuda.Result) {
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
		l.unmap(s)
		return 0, cuda.ErrorUnknown
	}
	own.spans = append(own.spans, s)
	return s.at, cuda.Success
}

// unmap removes an attachment's mapping.
func (l *segments) unmap(s *span) {
	d := l.dev
	m := d.store.(*mapped)
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := driver.UnmapMemory(nil, s.whole.at, s.whole.bytes); r != cuda.Success {
		d.log.Error("unmap a device segment", "bytes", s.bytes, "err", r) // its addresses stay reserved
		return
	}
	giveHole(&m.free, hole{s.whole.at, s.whole.bytes})
}

// drop frees the memory of a segment that is mapped nowhere.
func (l *segments) drop(own *segment) {
	if r := driver.ReleaseMemory(nil, own.h); r != cuda.Success {
		l.dev.log.Error("release a device segment", "bytes", own.whole, "err", r)
	}
	unix.Close(own.fd)
}

// leaveLater ends an attachment once all work submitted earlier has ended.
func (l *segments) leaveLater(c *Context, s *span, done func()) {
	d := c.dev
	d.mu.Lock()
	c.freeing++
	d.mu.Unlock()
	c.afterAll(func(cuda.Result) {
		go func() { // it may take long, and other goroutines free memory, too
			d.mu.Lock()
			d.spans.drop(s)
			d.mu.Unlock()
			l.leave(c, s)
			d.mu.Lock()
			c.freeing--
			d.changed.Broadcast()
			d.mu.Unlock()
			done()
		}()
	})
}

// leave ends an unused attachment; with the last one the process stops holding the segment.
func (l *segments) leave(c *Context, s *span) {
	own := s.segment
	l.mu.Lock()
	defer l.mu.Unlock()
	own.spans = slices.DeleteFunc(own.spans, func(o *span) bool { return o == s })
	if len(own.spans) > 0 {
		l.unmap(s)
		return
	}
	if l.all[own.ID] != own { // StoreSegments was quicker
		l.unmap(s)
		l.drop(own)
		return
	}
	claimed := own.Claim(true) == cuda.Success
	stored := claimed && l.rescue(c, own, s.at)
	l.forget(own)
	l.unmap(s)
	l.drop(own)
	own.Leave(stored)
	if claimed {
		own.Yield()
	}
}

// forget stops exporting a segment.
func (l *segments) forget(own *segment) {
	delete(l.all, own.ID)
	l.dev.store.(*mapped).offers.Forget(uint64(own.h))
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
		stored := l.rescue(s.ctx, own, s.at)
		l.forget(own)
		own.Leave(stored)
		own.Yield()
	}
}

// rescue stores a segment's bytes if they would be lost without this process. It reports whether the file has them
// then.
func (l *segments) rescue(c *Context, own *segment, at uint64) (stored bool) {
	d := l.dev
	if l.coming.Load() == 0 && !own.Wanted() || l.heldElsewhere(own) {
		return false
	}
	if own.save(c, at) == cuda.Success {
		return true
	}
	fresh, r := newContext(d, 0) // the failed context can't be used
	if r == cuda.Success {
		r = own.save(fresh, at)
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
func (l *segments) heldElsewhere(own *segment) bool {
	for _, id := range own.Holders() {
		if _, fd, err := handover.Fetch(accel.ShareToken{ID: id, Tag: own.Tag}); err == nil {
			unix.Close(fd)
			return true
		}
	}
	return false
}
