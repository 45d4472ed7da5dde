//go:build cgo

package nvidia

import (
	"cmp"
	"slices"

	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// allocKind is the kind of a span.
type allocKind uint8

const (
	allocation allocKind = iota // of the guest
	variable                    // of a module
	mapping                     // of the guest, which mapped it itself; belongs to no context
	borrowed                    // of another process
	communal                    // of the domain
)

// span is device memory that the guest may access by its addresses.
type span struct {
	at, bytes uint64
	ctx       *Context
	kind      allocKind
	held      uint64 // bytes of the device that it occupies
	freed     bool   // the guest has freed it; submitted work may still use it
	whole     *block // of borrowed and communal memory: the part of it that was mapped
	segment   *segment
}

// spans are all spans of a process, in order.
type spans struct{ all []*span }

func (l *spans) place(at uint64) (int, bool) {
	return slices.BinarySearchFunc(l.all, at, func(s *span, at uint64) int { return cmp.Compare(s.at, at) })
}

// add inserts a span, unless it overlaps one.
func (l *spans) add(s *span) bool {
	i, _ := l.place(s.at)
	if s.bytes == 0 || s.at+s.bytes < s.at || i > 0 && l.all[i-1].at+l.all[i-1].bytes > s.at || i < len(l.all) && s.at+s.bytes > l.all[i].at {
		return false
	}
	l.all = slices.Insert(l.all, i, s)
	return true
}

// find returns the span at an address, if one begins there.
func (l *spans) find(at uint64) *span {
	if i, ok := l.place(at); ok {
		return l.all[i]
	}
	return nil
}

func (l *spans) drop(s *span) {
	if i, ok := l.place(s.at); ok && l.all[i] == s {
		l.all = slices.Delete(l.all, i, i+1)
	}
}

// hold reports whether n bytes at an address lie in one span that was not freed.
func (l *spans) hold(at, n uint64) bool {
	i, exact := l.place(at)
	if !exact {
		i--
	}
	if i < 0 || l.all[i].freed {
		return false
	}
	from := at - l.all[i].at
	return from <= l.all[i].bytes && n <= l.all[i].bytes-from
}

// dropMapped removes the mappings within an address range.
func (l *spans) dropMapped(from, to uint64) {
	l.all = slices.DeleteFunc(l.all, func(s *span) bool { return s.kind == mapping && s.at >= from && s.at+s.bytes <= to })
}

// remove removes the spans of a context and returns them.
func (l *spans) remove(c *Context) (gone []*span) {
	l.all = slices.DeleteFunc(l.all, func(s *span) bool {
		if s.ctx == c {
			gone = append(gone, s)
		}
		return s.ctx == c
	})
	return gone
}

// store allocates device memory.
type store interface {
	// size returns the bytes that an allocation occupies.
	size(c *Context, bytes uint64) uint64
	take(c *Context, bytes uint64) (at uint64, r cuda.Result)
	give(c *Context, at, bytes uint64) cuda.Result
	// counts returns the bytes to account for an allocation of that size, beside those that the store accounts for.
	counts(bytes uint64) uint64
	// goesWithContext reports whether the end of a context frees its memory.
	goesWithContext() bool
	close()
}

// plain is a store of memory at addresses that the driver chooses.
type plain struct{}

const granule = 512

func (plain) size(_ *Context, bytes uint64) uint64                { return (bytes + granule - 1) &^ (granule - 1) }
func (plain) take(c *Context, bytes uint64) (uint64, cuda.Result) { return driver.Alloc(c.ctx, bytes) }
func (plain) give(c *Context, at, _ uint64) cuda.Result           { return driver.Free(c.ctx, at) }
func (plain) counts(bytes uint64) uint64                          { return bytes }
func (plain) goesWithContext() bool                               { return true }
func (plain) close()                                              {}

// Alloc returns the address of zeroed device memory. If there is no memory, but frees wait for pending work, it waits
// for them.
func (c *Context) Alloc(size uint64) (uint64, cuda.Result) {
	d := c.dev
	if r := c.Err(); r != cuda.Success {
		return 0, r
	}
	if size == 0 {
		return 0, cuda.ErrorInvalidValue
	}
	if size > d.about.TotalMem {
		return 0, cuda.ErrorOutOfMemory
	}
	for {
		before := d.onWay()
		at, r := c.tryAlloc(size)
		if r != cuda.ErrorOutOfMemory || !d.awaitFree(before) || c.Err() != cuda.Success {
			return at, r
		}
	}
}

func (c *Context) tryAlloc(size uint64) (uint64, cuda.Result) {
	d := c.dev
	s := &span{bytes: size, ctx: c, kind: allocation, held: d.store.size(c, size)}
	n := int64(d.store.counts(s.held))
	if !d.countAllocation(n) {
		return 0, cuda.ErrorOutOfMemory
	}
	if r := d.allocating(func() cuda.Result { return c.takeZeroed(s) }); r != cuda.Success {
		d.countAllocation(-n)
		return 0, c.failIfSticky(r)
	}
	return s.at, cuda.Success
}

// countAllocation applies a change to the quota of allocations.
func (d *Device) countAllocation(delta int64) bool {
	q := d.quotaOfAllocations()
	return q == nil || delta == 0 || q(delta)
}

// takeZeroed allocates memory, clears it, since it may hold another process's data, and records it.
func (c *Context) takeZeroed(s *span) (r cuda.Result) {
	d := c.dev
	if s.at, r = d.store.take(c, s.held); r != cuda.Success {
		return r
	}
	if !d.clearAway(s) {
		if r = driver.Fill(c.ctx, s.at, 0, 0, 1, s.held, 1, c.aside); r == cuda.Success {
			r = driver.SyncStream(c.ctx, c.aside)
		}
	}
	if r == cuda.Success {
		d.mu.Lock()
		if !d.spans.add(s) {
			r = cuda.ErrorUnknown // the driver returned an address that is in use
		}
		d.mu.Unlock()
	}
	if r != cuda.Success {
		d.store.give(c, s.at, s.held)
	}
	return r
}

// Free releases an allocation of Alloc once all work submitted earlier has ended, then calls done (which may be nil).
func (c *Context) Free(addr uint64, done func()) cuda.Result {
	d := c.dev
	d.mu.Lock()
	s := d.spans.find(addr)
	if s == nil || s.ctx != c || s.kind != allocation || s.freed || c.destroyed.Begun {
		d.mu.Unlock()
		return cuda.ErrorInvalidValue
	}
	s.freed = true
	d.mu.Unlock()
	c.later(func() {
		d.mu.Lock()
		d.spans.drop(s)
		d.mu.Unlock()
		d.giveBack(c, s)
		if done != nil {
			done()
		}
	})
	return cuda.Success
}

// giveBack frees memory and accounts for it. Memory that can't be freed stays accounted: where contexts have memory of
// their own, until this context ends.
func (d *Device) giveBack(c *Context, s *span) {
	defer d.beginOther()()
	if r := d.store.give(c, s.at, s.held); r != cuda.Success {
		if c.failIfSticky(r); c.Err() == cuda.Success {
			d.log.Error("free device memory", "address", s.at, "bytes", s.bytes, "err", r)
		}
		if d.store.goesWithContext() {
			d.mu.Lock()
			c.kept += s.held
			d.mu.Unlock()
		}
		return
	}
	d.countAllocation(-int64(d.store.counts(s.held)))
}

// later calls free once all work submitted earlier has ended.
func (c *Context) later(free func()) {
	d := c.dev
	d.mu.Lock()
	c.freeing++
	busy := len(c.active) > 0
	d.mu.Unlock()
	carryOut := func() {
		free()
		d.mu.Lock()
		c.freeing--
		d.changed.Broadcast()
		d.mu.Unlock()
	}
	if !busy {
		carryOut()
		return
	}
	c.afterAll(func(cuda.Result) { d.reaper.do(carryOut) })
}
