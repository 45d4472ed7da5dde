//go:build cgo

package nvidia

import (
	"sync"

	"pegasus/accel"
	"pegasus/accel/nvidia/driver"
	"pegasus/accel/ranges"
	"pegasus/cuda"
)

// guestGranule is the granularity that guests assume. A driver with another one is not supported.
const guestGranule = 2 << 20

// mappedMemory is physical memory that the guest maps itself.
type mappedMemory struct {
	d     *Device
	h     driver.Physical
	bytes uint64
	users int // mappings, and the owner's reference; guarded by the store's mutex
	once  sync.Once
}

// guestRange is a range of addresses that the guest has reserved: a part of the store's, so that the guest keeps it
// free.
type guestRange struct {
	*ranges.Range[*mappedMemory]
	whole hole // the reserved range, which may be larger because of its alignment
}

// mapper returns the store if it supports mapping.
func (d *Device) mapper() *mapped {
	m, ok := d.store.(*mapped)
	if !ok {
		return nil
	}
	m.mu.Lock()
	m.begin(nil, d.log)
	ready := m.ready && m.page == guestGranule
	m.mu.Unlock()
	if !ready {
		return nil
	}
	return m
}

// MapGranule returns the granularity of mappings.
func (d *Device) MapGranule() uint64 { return guestGranule }

// ReserveRange reserves some of the addresses that the guest keeps free.
func (d *Device) ReserveRange(n, alignment, wish uint64) (uint64, cuda.Result) {
	m := d.mapper()
	if m == nil {
		return 0, cuda.ErrorNotSupported
	}
	if n == 0 || n%guestGranule != 0 || alignment&(alignment-1) != 0 {
		return 0, cuda.ErrorInvalidValue
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	whole := hole{wish, n}
	alignment = max(alignment, guestGranule)
	if wish == 0 || wish%alignment != 0 || !takeAt(&m.free, whole) {
		whole.bytes += alignment - guestGranule
		var ok bool
		if n > m.bytes || alignment > m.bytes {
			return 0, cuda.ErrorOutOfMemory
		}
		if whole.at, ok = takeFirst(&m.free, whole.bytes); !ok {
			return 0, cuda.ErrorOutOfMemory
		}
	}
	start := (whole.at + alignment - 1) &^ (alignment - 1)
	m.ranges = append(m.ranges, &guestRange{ranges.New[*mappedMemory](start, n), whole})
	return start, cuda.Success
}

// takeAt takes exactly these addresses.
func takeAt(l *[]hole, e hole) bool {
	for i, o := range *l {
		if e.at < o.at || e.at-o.at > o.bytes || e.bytes > o.bytes-(e.at-o.at) {
			continue
		}
		before, behind := hole{o.at, e.at - o.at}, hole{e.at + e.bytes, o.bytes - (e.at - o.at) - e.bytes}
		*l = append((*l)[:i:i], (*l)[i+1:]...)
		for _, h := range []hole{before, behind} {
			if h.bytes > 0 {
				giveHole(l, h)
			}
		}
		return true
	}
	return false
}

// FreeRange releases a reserved range.
func (d *Device) FreeRange(at uint64) cuda.Result {
	m := d.mapper()
	if m == nil {
		return cuda.ErrorNotSupported
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range m.ranges {
		if r.Start == at && r.Empty() {
			m.ranges = append(m.ranges[:i], m.ranges[i+1:]...)
			giveHole(&m.free, r.whole)
			return cuda.Success
		}
	}
	return cuda.ErrorInvalidValue
}

// rangeOf returns the range that contains at, if at and n are whole granules, else nil. m.mu is held.
func (m *mapped) rangeOf(at, n uint64) *guestRange {
	if at%guestGranule != 0 || n%guestGranule != 0 {
		return nil
	}
	for _, r := range m.ranges {
		if at >= r.Start && at < r.End {
			return r
		}
	}
	return nil
}

// CreateMemory allocates physical memory, and clears it: it may hold another process's data.
func (d *Device) CreateMemory(n uint64) (accel.Memory, cuda.Result) {
	m := d.mapper()
	if m == nil {
		return nil, cuda.ErrorNotSupported
	}
	if n == 0 || n%guestGranule != 0 {
		return nil, cuda.ErrorInvalidValue
	}
	if n > d.about.TotalMem {
		return nil, cuda.ErrorOutOfMemory
	}
	if q := d.config.Quota; q != nil && !q(int64(n)) {
		return nil, cuda.ErrorOutOfMemory
	}
	mem := &mappedMemory{d: d, bytes: n, users: 1}
	var r cuda.Result
	if mem.h, r = driver.CreateMemory(nil, d.index, n); r == cuda.Success {
		var stuck bool
		if stuck, r = d.clear(m, mem); stuck {
			return nil, r // stays accounted: it is still allocated
		}
		if r != cuda.Success {
			driver.ReleaseMemory(nil, mem.h)
		}
	}
	if r != cuda.Success {
		if q := d.config.Quota; q != nil {
			q(-int64(n))
		}
		return nil, r
	}
	return mem, cuda.Success
}

// AwaitFree blocks until one of the pending frees of any context completes.
func (d *Device) AwaitFree() bool { return d.awaitFree(d.onWay()) }

// awaitFree blocks until one of the frees that were pending before an attempt completes, if none has completed since.
// It returns false if there was none, or if that could depend on the guest, which in turn may be waiting for the
// caller.
func (d *Device) awaitFree(before int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for before > 0 && d.freeing() >= before && d.held == 0 && !d.aborted.Load() {
		d.changed.Wait()
	}
	return d.freeing() < before
}

// onWay returns the number of frees that wait for work.
func (d *Device) onWay() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freeing()
}

// freeing returns the number of frees that wait for work. d.mu is held.
func (d *Device) freeing() (n int) {
	for c := range d.contexts {
		n += c.freeing
	}
	return n
}

// clear maps memory for as long as it takes to fill it with zeros, in a context of the guest's or, if it has none yet,
// a new one. The memory is stuck if it can't be unmapped again.
func (d *Device) clear(m *mapped, mem *mappedMemory) (stuck bool, r cuda.Result) {
	d.mu.Lock()
	var c *Context
	for other := range d.contexts {
		if !other.destroyed.Begun && other.Err() == cuda.Success {
			c = other
			break
		}
	}
	d.mu.Unlock()
	if c == nil {
		if c, r = newContext(d, 0); r != cuda.Success {
			return false, r
		}
		defer func() {
			gone := make(chan struct{})
			c.Destroy(func() { close(gone) })
			<-gone
		}()
	}
	m.mu.Lock()
	at, ok := takeFirst(&m.free, mem.bytes)
	m.mu.Unlock()
	if !ok {
		return false, cuda.ErrorOutOfMemory
	}
	defer func() {
		if stuck {
			return
		}
		m.mu.Lock()
		giveHole(&m.free, hole{at, mem.bytes})
		m.mu.Unlock()
	}()
	if r = driver.MapMemory(nil, at, mem.bytes, 0, mem.h); r != cuda.Success {
		return false, r
	}
	if r = driver.SetAccess(nil, d.index, at, mem.bytes, uint32(accel.ReadWrite)); r == cuda.Success {
		r = driver.Fill(c.ctx, at, 0, 0, 1, mem.bytes, 1, c.aside)
	}
	if r == cuda.Success {
		r = driver.SyncStream(c.ctx, c.aside)
	}
	c.failIfSticky(r)
	if u := driver.UnmapMemory(nil, at, mem.bytes); u != cuda.Success {
		d.log.Error("unmap cleared device memory", "bytes", mem.bytes, "err", u)
		return true, u
	}
	return false, r
}

// Release drops the owner's reference. The memory is freed when it is mapped nowhere.
func (mem *mappedMemory) Release() {
	mem.once.Do(func() {
		m := mem.d.store.(*mapped)
		m.mu.Lock()
		defer m.mu.Unlock()
		mem.let()
	})
}

// let drops one user. The store's mutex is held.
func (mem *mappedMemory) let() {
	if mem.users--; mem.users > 0 {
		return
	}
	d := mem.d
	d.store.(*mapped).offers.Forget(uint64(mem.h))
	if r := driver.ReleaseMemory(nil, mem.h); r != cuda.Success {
		d.log.Error("release device memory", "bytes", mem.bytes, "err", r) // stays accounted: it is still allocated
		return
	}
	if q := d.config.Quota; q != nil {
		q(-int64(mem.bytes))
	}
}

// Map maps a part of such memory at an address.
func (d *Device) Map(at, n, offset uint64, of accel.Memory) cuda.Result {
	m := d.mapper()
	if m == nil {
		return cuda.ErrorNotSupported
	}
	mem, ok := of.(*mappedMemory)
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rangeOf(at, n)
	if !ok || mem.d != d || r == nil || !r.Free(at, n) || offset%guestGranule != 0 || offset > mem.bytes || n > mem.bytes-offset {
		return cuda.ErrorInvalidValue
	}
	if r := driver.MapMemory(nil, at, n, offset, mem.h); r != cuda.Success {
		return r
	}
	r.Put(ranges.View[*mappedMemory]{At: at, Bytes: n, Offset: offset, Of: mem})
	mem.users++
	return cuda.Success
}

// Unmap removes whole mappings.
func (d *Device) Unmap(at, n uint64) cuda.Result {
	m := d.mapper()
	if m == nil {
		return cuda.ErrorNotSupported
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rangeOf(at, n)
	if r == nil || r.Whole(at, n) == nil {
		return cuda.ErrorInvalidValue
	}
	r.Allow(at, n, accel.NoAccess)
	d.showMapped(r, at, n)
	if r := driver.UnmapMemory(nil, at, n); r != cuda.Success {
		return r
	}
	for _, v := range r.Whole(at, n) {
		v.Of.let()
	}
	r.Drop(at, n)
	return cuda.Success
}

// SetAccess sets the access of work to whole mappings.
func (d *Device) SetAccess(at, n uint64, a accel.Access) cuda.Result {
	m := d.mapper()
	if m == nil {
		return cuda.ErrorNotSupported
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.rangeOf(at, n)
	if r == nil || r.Whole(at, n) == nil {
		return cuda.ErrorInvalidValue
	}
	if r := driver.SetAccess(nil, d.index, at, n, uint32(a)); r != cuda.Success {
		return r
	}
	r.Allow(at, n, a)
	d.showMapped(r, at, n)
	return cuda.Success
}

// showMapped updates the spans with the accessible parts of a range around [at, at+n). Neighbours form one span.
func (d *Device) showMapped(r *guestRange, at, n uint64) {
	usable := r.Usable(at, n)
	from, to := at, at+n
	for _, u := range usable {
		from, to = min(from, u.Start), max(to, u.End)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spans.dropMapped(from, to)
	for _, u := range usable {
		d.spans.add(&span{at: u.Start, bytes: u.End - u.Start, kind: mapping})
	}
}

// release frees all that the guest has mapped or holds: the device closes. Memory in use is freed with the process.
func (m *mapped) release() {
	for _, r := range m.ranges {
		for _, v := range r.All() {
			driver.UnmapMemory(nil, v.At, v.Bytes)
			v.Of.let()
		}
		giveHole(&m.free, r.whole)
	}
	m.ranges = nil
}
