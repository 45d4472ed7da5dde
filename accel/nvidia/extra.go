//go:build cgo

package nvidia

import (
	"math/bits"

	"pegasus/accel/nvidia/driver"
	"pegasus/cuda"
)

// Device memory that a guest makes the driver allocate without an allocation call counts as its domain's all the same:
// its modules' variables, the heap and the printf buffer that kernels have by its limits, and the local memory of a
// kernel's threads.

// Limits (CUlimit) that take memory.
const (
	limitStack = 0 // of each thread that can run at once
	limitPrint = 1
	limitHeap  = 2
	numLimits  = 3
)

// extra is the memory that a context has taken so. The poller owns it, except for bytes.
type extra struct {
	limits [numLimits]uint64 // the largest values accounted for so far; 0: never set
	bytes  uint64            // guarded by the device's mutex
}

// charge accounts for more bytes, or with a negative number for less.
func (e *extra) charge(d *Device, delta int64) bool {
	q := d.config.Quota
	if delta == 0 || q == nil {
		return true
	}
	if !q(delta) && delta > 0 {
		return false
	}
	d.mu.Lock()
	e.bytes += uint64(delta)
	d.mu.Unlock()
	return true
}

// need accounts for the memory of a limit's new value, beyond the context's initial one. undo reverts that if the limit
// isn't raised after all.
func (e *extra) need(c *Context, limit uint32, value uint64) (undo func(), r cuda.Result) {
	d := c.dev
	if e.limits[limit] == 0 {
		n, r := driver.Limit(c.ctx, limit)
		if r != cuda.Success {
			return nil, r
		}
		e.limits[limit] = n
	}
	before := e.limits[limit]
	if value <= before {
		return func() {}, cuda.Success
	}
	each := uint64(1)
	if limit == limitStack {
		a := &d.about.Attributes
		each = uint64(max(a[cuda.AttributeMultiprocessorCount], 1)) * uint64(max(a[cuda.AttributeMaxThreadsPerMultiprocessor], 1))
	}
	high, n := bits.Mul64(value-before, each)
	if high != 0 || n > d.about.TotalMem || !e.charge(d, int64(n)) {
		return nil, cuda.ErrorOutOfMemory
	}
	e.limits[limit] = value
	return func() {
		e.limits[limit] = before
		e.charge(d, -int64(n))
	}, cuda.Success
}

// Limits that guests can't change: memory for kernels that launch kernels, and the persisting part of the cache, which
// belongs to the whole device.
const (
	limitSyncDepth  = 3
	limitPending    = 4
	limitPersisting = 6
)

// SetLimit sets a CUlimit and returns the value in force.
func (c *Context) SetLimit(limit uint32, value uint64) (uint64, cuda.Result) {
	if r := c.Err(); r != cuda.Success {
		return 0, r
	}
	undo := func() {}
	switch {
	case limit < numLimits:
		var r cuda.Result
		if undo, r = c.extra.need(c, limit, value); r != cuda.Success {
			return 0, c.failIfSticky(r)
		}
	case limit == limitSyncDepth || limit == limitPending || limit == limitPersisting:
		v, r := driver.Limit(c.ctx, limit)
		return v, c.failIfSticky(r)
	case limit > limitPersisting:
		return 0, cuda.ErrorUnsupportedLimit
	}
	v, r := driver.SetLimit(c.ctx, limit, value)
	if c.failIfSticky(r) != cuda.Success {
		undo()
	}
	return v, r
}
