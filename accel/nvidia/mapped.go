//go:build cgo

package nvidia

import (
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"pegasus/accel/nvidia/driver"
	"pegasus/accel/nvidia/handover"
	"pegasus/cuda"
)

// mapped puts device memory at addresses of ours, which guests have kept free:
// so no address of theirs is ever one of the device's too. The driver maps whole
// pages (2 MiB). Small allocations share one; the others have pages of their own.
type mapped struct {
	index       int
	base, bytes uint64
	reserved    bool // by this process, until the driver does

	mu      sync.Mutex // not the device's: it is held across calls of the driver
	ready   bool       // the addresses are ours
	refused bool       // the driver didn't grant them
	page    uint64
	free    []hole // addresses without memory, in order
	blocks  map[uint64]*block
	ranges  []*guestRange   // see mapping.go
	offers  handover.Offers // see give.go
}

// hole is a range of addresses.
type hole struct{ at, bytes uint64 }

// block is memory that was mapped as one.
type block struct {
	at, bytes uint64
	h         driver.Physical
	spare     []hole // of a block that small allocations share, in order
	shared    bool
}

// small allocations share a page.
const small = 1 << 20

func newMapped(c *Config, index int) *mapped {
	return &mapped{index: index, base: c.DeviceBase, bytes: c.DeviceBytes, reserved: c.Reserved, blocks: map[uint64]*block{}}
}

// size is what an allocation counts as: a small one as its part of a page.
func (m *mapped) size(c *Context, n uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begin(c.ctx, c.dev.log)
	if n = (n + granule - 1) &^ (granule - 1); n < small || m.refused {
		return n
	}
	return (n + m.page - 1) / m.page * m.page
}

// begin reserves the addresses, when they are first wanted. m.mu is held.
func (m *mapped) begin(c driver.Context, log *slog.Logger) {
	if m.ready || m.refused {
		return
	}
	page, r := driver.Granularity(c, m.index)
	at := uint64(0)
	if r == cuda.Success {
		if m.reserved {
			unix.Syscall(unix.SYS_MUNMAP, uintptr(m.base), uintptr(m.bytes), 0)
		}
		at, r = driver.ReserveAddresses(c, m.base, m.bytes)
	}
	if r == cuda.Success && at != m.base && m.bytes >= 1<<30 && !roomy(c, m.bytes/8) {
		driver.FreeAddresses(c, at, m.bytes)
		m.bytes /= 2
		at, r = driver.ReserveAddresses(c, 0, m.bytes)
	}
	if r != cuda.Success {
		m.refused = true
		log.Warn("reserve addresses for device memory: it goes where the driver puts it", "bytes", m.bytes, "err", r)
		return
	}
	if at != m.base {
		log.Warn("device memory gets other addresses than the guest keeps free", "wanted", m.base, "got", at)
	}
	m.base, m.page, m.ready = at, max(page, granule), true
	m.free = []hole{{at, m.bytes / m.page * m.page}}
}

// roomy says whether a driver has so many addresses left. It needs some itself, for what is in modules.
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
		b, r := m.mapBlock(c, n)
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
	b, r := m.mapBlock(c, m.page)
	if r != cuda.Success {
		return 0, r
	}
	b.shared, b.spare = true, []hole{{b.at, b.bytes}}
	at, _ := takeFirst(&b.spare, n)
	return at, cuda.Success
}

// mapBlock maps n bytes, whole pages.
func (m *mapped) mapBlock(c *Context, n uint64) (*block, cuda.Result) {
	at, ok := takeFirst(&m.free, n)
	if !ok {
		return nil, cuda.ErrorOutOfMemory
	}
	h, r := driver.Map(c.ctx, m.index, at, n)
	if r != cuda.Success {
		giveHole(&m.free, hole{at, n})
		return nil, r
	}
	b := &block{at: at, bytes: n, h: h}
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
		if b.spare[0].bytes != b.bytes {
			return cuda.Success
		}
	}
	m.offers.Forget(uint64(b.h))
	if r := driver.Unmap(c.ctx, b.at, b.bytes, b.h); r != cuda.Success {
		return r
	}
	delete(m.blocks, b.at)
	giveHole(&m.free, hole{b.at, b.bytes})
	return cuda.Success
}

// blockOf is the block that an allocation of n bytes lies in. m.mu is held.
func (m *mapped) blockOf(at, n uint64) *block {
	if n < small {
		return m.blocks[m.base+(at-m.base)/m.page*m.page]
	}
	return m.blocks[at]
}

// close gives the addresses back. Nothing is mapped there any more.
func (m *mapped) close() {
	m.offers.Close()
	m.release()
	if m.ready {
		driver.FreeAddresses(nil, m.base, m.bytes)
	}
}

// takeFirst takes n bytes from the first that has so many.
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

// giveHole puts one back among the others, and joins it with its neighbours.
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
