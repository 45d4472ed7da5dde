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
	d    *Device
	p    *memory.Physical
	once sync.Once
}

// placeless numbers identify such memory in package residence; they are no addresses of any space.
var placeless atomic.Uint64

const firstPlaceless = 1 << 62

// MapGranule returns the unit of mappings.
func (d *Device) MapGranule() uint64 { return memory.MapGranule }

// CreateMemory makes memory without an address.
func (d *Device) CreateMemory(n uint64) (accel.Memory, cuda.Result) {
	if n == 0 || n%memory.MapGranule != 0 {
		return nil, cuda.ErrorInvalidValue
	}
	if n > d.config.Memory {
		return nil, cuda.ErrorOutOfMemory
	}
	if q := d.config.Quota; q != nil && !q(int64(n)) {
		return nil, cuda.ErrorOutOfMemory
	}
	if !d.worker.Reserve(n) {
		d.unquota(n)
		return nil, cuda.ErrorOutOfMemory
	}
	if !d.worker.Pin(n) {
		d.worker.Unreserve(n)
		d.unquota(n)
		return nil, cuda.ErrorOutOfMemory
	}
	key := firstPlaceless + placeless.Add(n) - n
	if d.residence != nil {
		if err := d.residence.Add(key, n, true, nil); err != nil {
			d.worker.Unpin(n)
			d.worker.Unreserve(n)
			d.unquota(n)
			return nil, cuda.ErrorOutOfMemory
		}
	}
	gone := func() {
		if d.residence != nil {
			d.residence.Remove(key)
		}
		d.worker.Unpin(n)
		d.worker.Unreserve(n)
		d.unquota(n)
	}
	p, err := d.space.NewPhysical(n, gone)
	if err != nil {
		d.log.Error("create device memory", "bytes", n, "error", err)
		gone()
		return nil, cuda.ErrorOutOfMemory
	}
	return &mappedMemory{d: d, p: p}, cuda.Success
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

func (d *Device) unquota(n uint64) {
	if q := d.config.Quota; q != nil {
		q(-int64(n))
	}
}

// ImportMemory wraps a part of a file as such memory.
func (d *Device) ImportMemory(file *os.File, offset, n uint64, gone func()) (accel.Memory, cuda.Result) {
	p, err := d.space.Import(int(file.Fd()), offset, n, gone)
	if err != nil {
		d.log.Error("import device memory", "bytes", n, "error", err)
		return nil, cuda.ErrorOutOfMemory
	}
	return &mappedMemory{d: d, p: p}, cuda.Success
}

// Release drops the owner's reference. The memory is freed when it is mapped nowhere.
func (m *mappedMemory) Release() { m.once.Do(func() { m.d.space.Release(m.p) }) }

// ReserveRange reserves an address range.
func (d *Device) ReserveRange(n, alignment, wish uint64) (uint64, cuda.Result) {
	at, err := d.space.Reserve(n, alignment, wish)
	return at, d.rangeResult("reserve addresses", err)
}

// FreeRange releases a reserved range.
func (d *Device) FreeRange(at uint64) cuda.Result {
	return d.rangeResult("free addresses", d.space.Unreserve(at))
}

// Map maps a part of such memory at an address.
func (d *Device) Map(at, n, offset uint64, m accel.Memory) cuda.Result {
	mem, ok := m.(*mappedMemory)
	if !ok || mem.d != d {
		return cuda.ErrorInvalidValue
	}
	return d.rangeResult("map device memory", d.space.Map(at, n, offset, mem.p))
}

// Unmap removes whole mappings.
func (d *Device) Unmap(at, n uint64) cuda.Result {
	return d.rangeResult("unmap device memory", d.space.Unmap(at, n))
}

// SetAccess sets the access of work to whole mappings.
func (d *Device) SetAccess(at, n uint64, a accel.Access) cuda.Result {
	return d.rangeResult("protect device memory", d.space.Protect(at, n, a))
}

// rangeResult returns the result for the guest of an error, and logs a host error.
func (d *Device) rangeResult(what string, err error) cuda.Result {
	switch {
	case err == nil:
		return cuda.Success
	case errors.Is(err, memory.ErrRange):
		return cuda.ErrorInvalidValue
	case errors.Is(err, unix.ENOMEM):
		return cuda.ErrorOutOfMemory
	}
	d.log.Error(what, "error", err)
	return cuda.ErrorUnknown
}
