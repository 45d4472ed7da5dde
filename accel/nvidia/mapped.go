//go:build cgo

package nvidia

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/handover"
	"pegasus/cuda"
)

// mapped puts device memory at addresses of the worker's choice, which guests have kept free: so no address of a
// guest's host memory is ever a device address, too. The driver maps whole pages (2 MiB). Small allocations share a
// page, which counts as long as one of them exists; the others have pages of their own.
type mapped struct {
	count       func(delta int64) bool // accounts for the device memory of a shared page
	index       int
	base, bytes uint64
	reserved    bool // by this process, until the driver does

	mu      sync.Mutex // not the device's: it is held across calls of the driver
	ready   bool       // the addresses are reserved for device memory
	refused bool       // the driver didn't grant the addresses
	page    uint64
	free    []hole // addresses without memory, in order
	blocks  map[uint64]*block
	ranges  []*guestRange   // see mapping.go
	offers  handover.Offers // see give.go
	swap    *swap           // nil: blocks stay on the device
}

// hole is a range of addresses.
type hole struct{ at, bytes uint64 }

// block is memory that was mapped as one.
type block struct {
	at, bytes uint64
	h         driver.Physical
	spare     []hole // of a block that small allocations share, in order
	shared    bool

	away bool   // evicted, and not mapped
	copy []byte // its contents then; nil: zeros
}

// leastWindow is the smallest useful part of the requested address range, in bytes.
const leastWindow = 1 << 30

// small is the size, in bytes, below which allocations share a page.
const small = 1 << 20

func newMapped(c *Config, index int, count func(delta int64) bool) *mapped {
	return &mapped{count: count, index: index, base: c.DeviceBase, bytes: c.DeviceBytes, reserved: c.Reserved, blocks: map[uint64]*block{}}
}

// size returns the bytes that an allocation occupies: for a small one, a part of a page.
func (m *mapped) size(c *Context, n uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin(c.ctx, c.dev.log)
	if n = (n + granule - 1) &^ (granule - 1); n < small || m.refused {
		return n
	}
	return (n + m.page - 1) / m.page * m.page
}

// begin reserves the addresses, at the first use. m.mu is held.
func (m *mapped) begin(c driver.Context, log *slog.Logger) {
	if m.ready || m.refused {
		return
	}
	began := time.Now()
	page, r := driver.Granularity(c, m.index)
	at := uint64(0)
	if r == cuda.Success {
		if m.reserved {
			unix.Syscall(unix.SYS_MUNMAP, uintptr(m.base), uintptr(m.bytes), 0)
		}
		at, r = driver.ReserveAddresses(c, m.base, m.bytes)
	}
	for page != 0 && r != cuda.Success && m.bytes/2 >= leastWindow { // not so many
		m.bytes /= 2
		at, r = driver.ReserveAddresses(c, m.base, m.bytes)
	}
	if r == cuda.Success && m.bytes >= 1<<30 && !roomy(c, m.bytes/8) {
		driver.FreeAddresses(c, at, m.bytes)
		m.bytes /= 2
		at, r = driver.ReserveAddresses(c, at, m.bytes)
	}
	if r != cuda.Success {
		m.refused = true
		log.Warn("reserve addresses for device memory: refused by the driver; it chooses the addresses", "bytes", m.bytes, "err", r)
		return
	}
	if at != m.base {
		log.Warn("reserve addresses for device memory: the driver chose others than the guest keeps free", "wanted", m.base, "got", at)
	}
	log.Debug("addresses for device memory reserved", "from", at, "bytes", m.bytes, "took", time.Since(began))
	m.base, m.page, m.ready = at, max(page, granule), true
	m.free = []hole{{at, m.bytes / m.page * m.page}}
}

// roomy reports whether a driver has so many addresses left. It needs some itself, for the contents of modules.
func roomy(c driver.Context, bytes uint64) bool {
	at, r := driver.ReserveAddresses(c, 0, bytes)
	return r == cuda.Success && driver.FreeAddresses(c, at, bytes) == cuda.Success
}

func (m *mapped) take(c *Context, n uint64) (uint64, cuda.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin(c.ctx, c.dev.log)
	if m.refused {
		return driver.Alloc(c.ctx, n)
	}
	if n >= small {
		b, r := m.mapBlock(n)
		if r != cuda.Success {
			return 0, r
		}
		return b.at, cuda.Success
	}
	for _, b := range m.blocks {
		if b.shared {
			if at, ok := takeFirst(&b.spare, n); ok {
				return at, cuda.Success
			}
		}
	}
	if !m.count(int64(m.page)) {
		return 0, cuda.ErrorOutOfMemory
	}
	b, r := m.mapBlock(m.page)
	if r != cuda.Success {
		m.count(-int64(m.page))
		return 0, r
	}
	b.shared, b.spare = true, []hole{{b.at, b.bytes}}
	if r = m.clearPage(c, b); r != cuda.Success {
		m.unmapBlock(b)
		return 0, r
	}
	at, _ := takeFirst(&b.spare, n)
	return at, cuda.Success
}

// clearPage clears all of a page in which an allocation gets a part: kernels can access the rest, too.
func (m *mapped) clearPage(c *Context, b *block) cuda.Result {
	if b.away {
		return cuda.Success
	}
	return driver.Fill(c.ctx, b.at, 0, 0, 1, b.bytes, 1, c.aside) // the fill that clears the allocation waits for it
}

// mapBlock maps n bytes, whole pages.
func (m *mapped) mapBlock(n uint64) (*block, cuda.Result) {
	at, ok := takeFirst(&m.free, n)
	if !ok {
		return nil, cuda.ErrorOutOfMemory
	}
	b := &block{at: at, bytes: n}
	if r := m.obtain(b); r != cuda.Success {
		giveHole(&m.free, hole{at, n})
		return nil, r
	}
	m.blocks[at] = b
	return b, cuda.Success
}

func (m *mapped) give(c *Context, at, n uint64) cuda.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refused {
		return driver.Free(c.ctx, at)
	}
	b := m.blockOf(at, n)
	if b == nil {
		return cuda.ErrorInvalidValue
	}
	if b.shared {
		giveHole(&b.spare, hole{at, n})
		if b.spare[0].bytes == b.bytes {
			m.offers.Forget(uint64(b.h))
			m.unmapBlock(b) // if that fails the block stays for the next allocation
		}
		return cuda.Success
	}
	m.offers.Forget(uint64(b.h))
	return m.unmapBlock(b)
}

// counts returns the bytes of an allocation that are accounted for separately from its page.
func (m *mapped) counts(n uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < small && !m.refused {
		return 0
	}
	return n
}

func (m *mapped) goesWithContext() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

func (m *mapped) unmapBlock(b *block) cuda.Result {
	if r := m.dispose(b); r != cuda.Success {
		return r
	}
	delete(m.blocks, b.at)
	giveHole(&m.free, hole{b.at, b.bytes})
	if b.shared {
		m.count(-int64(b.bytes))
	}
	return cuda.Success
}

// obtain maps a block. m.mu is held.
func (m *mapped) obtain(b *block) (r cuda.Result) {
	if m.swap != nil {
		return m.swap.obtain(b)
	}
	b.h, r = driver.Map(nil, m.index, b.at, b.bytes) // not in the context: in one that has failed every call fails
	return r
}

// dispose releases the block's device memory. m.mu is held.
func (m *mapped) dispose(b *block) cuda.Result {
	if m.swap != nil {
		return m.swap.dispose(b)
	}
	return driver.Unmap(nil, b.at, b.bytes, b.h)
}

// blockOf returns the block that an allocation of n bytes lies in. m.mu is held.
func (m *mapped) blockOf(at, n uint64) *block {
	if n < small {
		return m.blocks[m.base+(at-m.base)/m.page*m.page]
	}
	return m.blocks[at]
}

// close releases the addresses. Nothing is mapped there any more.
func (m *mapped) close() {
	m.offers.Close()
	m.release()
	if m.ready {
		driver.FreeAddresses(nil, m.base, m.bytes)
	}
}

// takeFirst takes n bytes from the first hole that is large enough.
func takeFirst(l *[]hole, n uint64) (uint64, bool) {
	for i, e := range *l {
		if e.bytes < n {
			continue
		}
		if (*l)[i] = (hole{e.at + n, e.bytes - n}); e.bytes == n {
			*l = slices.Delete(*l, i, i+1)
		}
		return e.at, true
	}
	return 0, false
}

// giveHole inserts a hole, and joins it with its neighbours.
func giveHole(l *[]hole, e hole) {
	i, _ := slices.BinarySearchFunc(*l, e.at, func(o hole, at uint64) int {
		if o.at < at {
			return -1
		}
		return 1
	})
	if i < len(*l) && e.at+e.bytes == (*l)[i].at {
		e.bytes += (*l)[i].bytes
		*l = slices.Delete(*l, i, i+1)
	}
	if i > 0 && (*l)[i-1].at+(*l)[i-1].bytes == e.at {
		(*l)[i-1].bytes += e.bytes
		return
	}
	*l = slices.Insert(*l, i, e)
}
