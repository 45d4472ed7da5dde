package soft

import (
	"errors"
	"time"

	"pegasus/accel"
	"pegasus/accel/soft/memory"
	"pegasus/cuda"
)

// ExportIPC shares an allocation with other processes. Allocations that can be evicted can't be exported: the importers
// would access other contents in their place.
func (d *Device) ExportIPC(addr uint64, find func(uint64) (accel.ExportedRegion, cuda.Result)) (id uint32, at, n uint64, r cuda.Result) {
	if d.residence != nil {
		return 0, 0, 0, cuda.ErrorNotSupported
	}
	if !d.still() {
		return 0, 0, 0, cuda.ErrorNotReady
	}
	to, at, n, err := d.space.Export(addr, func(bytes uint64) (*memory.ExportedRegion, error) {
		l, found := find(bytes)
		if r = found; r != cuda.Success {
			return nil, r
		}
		return &memory.ExportedRegion{FD: int(l.File.Fd()), Offset: l.Offset, ID: l.ID, Gone: l.Gone}, nil
	})
	switch {
	case r != cuda.Success:
		return 0, 0, 0, r
	case errors.Is(err, memory.ErrAddress):
		return 0, 0, 0, cuda.ErrorInvalidValue
	case err != nil:
		d.log.Error("export device memory", "address", addr, "err", err)
		return 0, 0, 0, cuda.ErrorOutOfMemory
	}
	return to.ID, at, n, cuda.Success
}

// stillLook is the polling interval of still. It has no notification, since it is rarely called.
const stillLook = 100 * time.Microsecond

// still blocks until no work uses memory: all submitted work has ended, and no memory is being freed. The caller
// submits nothing meanwhile. It returns false if that may depend on the guest.
func (d *Device) still() bool {
	for {
		d.mu.Lock()
		busy, held := d.queued.Load() != 0 || d.freeing() > 0, d.hostFuncs > 0
		for c := range d.contexts {
			busy = busy || c.destroyed.Begun
		}
		d.mu.Unlock()
		if !busy {
			return true
		}
		if held {
			return false
		}
		time.Sleep(stillLook)
	}
}
