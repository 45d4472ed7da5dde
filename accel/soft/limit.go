package soft

import (
	"pegasus/accel/soft/lane"
	"pegasus/cuda"
)

// limits are the values of CUlimit that a context has, by number.
type limits [7]uint64

var defaultLimits = limits{
	1024,    // CU_LIMIT_STACK_SIZE
	1 << 20, // CU_LIMIT_PRINTF_FIFO_SIZE
	8 << 20, // CU_LIMIT_MALLOC_HEAP_SIZE
	2,       // CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH
	2048,    // CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
	64,      // CU_LIMIT_MAX_L2_FETCH_GRANULARITY
	0,       // CU_LIMIT_PERSISTING_L2_CACHE_SIZE
}

// greatest are the values that limits are clamped to.
var greatest = limits{512 << 10, 1 << 30, 1 << 30, 24, 1 << 20, 128, 0}

// The limits that have an effect. All are accepted and reported.
const (
	limitStack = 0
	limitPrint = 1
	limitHeap  = 2
)

// SetLimit sets a CUlimit and returns the value in force. The sizes of the heap and of the printf buffer are fixed once
// a kernel that uses them was launched.
func (c *Context) SetLimit(limit uint32, value uint64) (uint64, cuda.Result) {
	if limit >= uint32(len(c.limits)) {
		return 0, cuda.ErrorUnsupportedLimit
	}
	if limit == limitHeap && c.heap.Load() != nil || limit == limitPrint && c.text.inUse() {
		return 0, cuda.ErrorInvalidValue
	}
	c.limits[limit] = min(value, greatest[limit])
	return c.limits[limit], cuda.Success
}

// makeHeap allocates the heap of the kernels, unless that was done.
func (c *Context) makeHeap() cuda.Result {
	if c.heap.Load() != nil {
		return cuda.Success
	}
	n := max(c.limits[limitHeap], 1)
	addr, r := c.take(n, ordinary)
	if r == cuda.Success {
		c.heap.Store(lane.NewHeap(addr, n))
	}
	return r
}
