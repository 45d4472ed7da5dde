package soft

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/soft/memory"
	"pegasus/cuda"
)

// mappedMemory is memory without an address. It is never evicted: residence tracks memory by address.
type mappedMemory struct {
	in   *deviceMemory
	p    *memory.Physical
	once sync.Once
}

// placeless numbers identify such memory in package residence; they are no addresses of any space.
var placeless atomic.Uint64

const firstPlaceless = 1 << 62

// MapGranule returns the unit of mappings.
func (m *deviceMemory) MapGranule() uint64 { return memory.MapGranule }

// CreateMemory makes memory without an address.
func (m *deviceMemory) CreateMemory(n uint64) (accel.Memory, cuda.Result) {
	if n == 0 || n%memory.MapGranule != 0 {
		return nil, cuda.ErrorInvalidValue
	}
	if n > m.size {
		return nil, cuda.ErrorOutOfMemory
	}
	if !m.withinQuota(n) {
		return nil, cuda.ErrorOutOfMemory
	}
	if !m.worker.Reserve(n) {
		m.unquota(n)
		return nil, cuda.ErrorOutOfMemory
	}
	if !m.worker.Pin(n) {
		m.worker.Unreserve(n)
		m.unquota(n)
		return nil, cuda.ErrorOutOfMemory
	}
	key := firstPlaceless + placeless.Add(n) - n
	if m.residence != nil {
		if err := m.residence.Add(key, n, true, nil); err != nil {
			m.worker.Unpin(n)
			m.worker.Unreserve(n)
			m.unquota(n)
			return nil, cuda.ErrorOutOfMemory
		}
	}
	gone := func() {
		if m.residence != nil {
			m.residence.Remove(key)
		}
		m.worker.Unpin(n)
		m.worker.Unreserve(n)
		m.unquota(n)
	}
	p, err := m.space.NewPhysical(n, gone)
	if err != nil {
		m.log.Error("create device memory", "bytes", n, "err", err)
		gone()
		return nil, cuda.ErrorOutOfMemory
	}
	return &mappedMemory{in: m, p: p}, cuda.Success
}

// ImportMemory wraps a part of a file as such memory.
func (m *deviceMemory) ImportMemory(file *os.File, offset, n uint64, gone func()) (accel.Memory, cuda.Result) {
	p, err := m.space.Import(int(file.Fd()), offset, n, gone)
	if err != nil {
		m.log.Error("import device memory", "bytes", n, "err", err)
		return nil, cuda.ErrorOutOfMemory
	}
	return &mappedMemory{in: m, p: p}, cuda.Success
}

// Release drops the owner's reference. The memory is freed when it is mapped nowhere.
func (m *mappedMemory) Release() { m.once.Do(func() { m.in.space.Release(m.p) }) }

// ReserveRange reserves an address range.
func (m *deviceMemory) ReserveRange(n, alignment, wish uint64) (uint64, cuda.Result) {
	at, err := m.space.Reserve(n, alignment, wish)
	return at, m.rangeResult("reserve addresses", err)
}

// FreeRange releases a reserved range.
func (m *deviceMemory) FreeRange(at uint64) cuda.Result {
	return m.rangeResult("free addresses", m.space.Unreserve(at))
}

// Map maps a part of such memory at an address.
func (m *deviceMemory) Map(at, n, offset uint64, of accel.Memory) cuda.Result {
	mem, ok := of.(*mappedMemory)
	if !ok || mem.in != m {
		return cuda.ErrorInvalidValue
	}
	return m.rangeResult("map device memory", m.space.Map(at, n, offset, mem.p))
}

// Unmap removes whole mappings.
func (m *deviceMemory) Unmap(at, n uint64) cuda.Result {
	return m.rangeResult("unmap device memory", m.space.Unmap(at, n))
}

// SetAccess sets the access of work to whole mappings.
func (m *deviceMemory) SetAccess(at, n uint64, a accel.Access) cuda.Result {
	return m.rangeResult("protect device memory", m.space.Protect(at, n, a))
}

// rangeResult returns the result for the guest of an error, and logs a host error.
func (m *deviceMemory) rangeResult(what string, err error) cuda.Result {
	switch {
	case err == nil:
		return cuda.Success
	case errors.Is(err, memory.ErrRange):
		return cuda.ErrorInvalidValue
	case errors.Is(err, unix.ENOMEM):
		return cuda.ErrorOutOfMemory
	}
	m.log.Error(what, "err", err)
	return cuda.ErrorUnknown
}

// AwaitFree blocks until one of the pending frees of any context completes.
func (d *Device) AwaitFree() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.freeing()
	for d.freeing() > 0 && d.freeing() == before && d.hostFuncs == 0 {
		d.freed.Wait()
	}
	return d.freeing() < before
}

// freeing returns the number of frees that wait for work. d.mu is held.
func (d *Device) freeing() (n int) {
	for c := range d.contexts {
		n += c.freeing
	}
	return n
}
