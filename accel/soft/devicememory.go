package soft

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"pegasus/accel/residence"
	"pegasus/accel/soft/engine"
	"pegasus/accel/soft/memory"
	"pegasus/cuda"
)

// deviceMemory is the accelerator's memory in this worker: the addresses, the account of the bytes, and the eviction. It
// is set up when the device is opened; its parts have locks of their own.
type deviceMemory struct {
	shared *engine.Memory
	worker *engine.Worker // which also has the engines
	space  *memory.Space
	ledger *engine.Ledger // nil, as residence is, without eviction
	// residence tracks which of the memory is on the device.
	residence *residence.Set

	size    uint64                       // bytes that may be allocated
	quota   func(delta int64) bool       // Config.Quota
	aborted func() bool                  // ends waits for room on the device
	private []interface{ Close() error } // pages that are not shared
	log     *slog.Logger
}

// open registers at the memory page and the engine page, and reserves the addresses. It creates the pages that c lacks;
// c.Engines is set to a new engine page. The caller calls close, also after an error.
func (m *deviceMemory) open(c *Config) (err error) {
	m.shared, m.quota, m.log = c.Shared, c.Quota, c.Log
	if err := m.makePages(c); err != nil {
		return err
	}
	if m.size = c.Memory; m.size == 0 {
		m.size = m.shared.Size()
	}
	if m.worker, err = m.shared.Register(c.Engines, c.Clock); err != nil {
		return fmt.Errorf("open software accelerator: %w", err)
	}
	if m.space, err = memory.New(c.DeviceBase, c.DeviceBytes, c.Reserved); err != nil {
		return fmt.Errorf("open software accelerator: %w", err)
	}
	if c.ArenaBase != 0 {
		m.space.SetHost(c.ArenaBase, c.Arena)
	}
	m.setShare(c.Domain, c.Share)
	if err := m.startSwapping(c.Swapped); err != nil {
		return fmt.Errorf("open software accelerator: %w", err)
	}
	m.size = min(m.size, m.shared.Capacity())
	return nil
}

// makePages creates the pages that are not shared.
func (m *deviceMemory) makePages(c *Config) (err error) {
	if m.shared == nil {
		if c.Memory == 0 {
			return errors.New("open software accelerator: neither Config.Shared nor Config.Memory is set")
		}
		if m.shared, err = engine.Create(engine.Options{Memory: c.Memory, Swap: c.Swap, AllCores: c.Cores >= runtime.NumCPU()}); err != nil {
			return err
		}
		m.private = append(m.private, m.shared)
	}
	if c.Engines == nil {
		if c.Engines, err = engine.CreateEngines(); err != nil {
			return err
		}
		m.private = append(m.private, c.Engines)
	}
	return nil
}

// close frees the memory and the private pages, as far as open came.
func (m *deviceMemory) close() error {
	var errs []error
	m.stopSwapping()
	if m.space != nil {
		errs = append(errs, m.space.Close())
	}
	if m.worker != nil {
		m.worker.Close()
	}
	for _, page := range m.private {
		errs = append(errs, page.Close())
	}
	return errors.Join(errs...)
}

// tryTake accounts for an allocation of so many bytes, then makes it.
func (m *deviceMemory) tryTake(size uint64, of allocKind) (uint64, cuda.Result) {
	n := memory.RoundUp(size)
	if !m.withinQuota(n) {
		return 0, cuda.ErrorOutOfMemory
	}
	if m.worker.Reserve(n) {
		addr, err := m.space.Alloc(size, of.visible())
		if err == nil {
			if m.residence == nil {
				return addr, cuda.Success
			}
			if err = m.residence.Add(addr, n, of.fixed(), m.aborted); err == nil {
				return addr, cuda.Success
			}
			m.space.Free(addr)
		}
		m.log.Error("allocate device memory", "bytes", n, "err", err)
		m.worker.Unreserve(n)
	}
	m.unquota(n)
	return 0, cuda.ErrorOutOfMemory
}

// giveBack clears and frees memory, and accounts for it.
func (m *deviceMemory) giveBack(addr, n uint64) {
	if m.residence != nil {
		m.residence.Remove(addr)
	}
	if _, err := m.space.Free(addr); err != nil {
		m.log.Error("free device memory", "address", addr, "err", err) // stays accounted: it is still allocated
		return
	}
	m.worker.Unreserve(n)
	m.unquota(n)
}

// withinQuota charges n bytes to the domain's quota, and reports whether it allows them.
func (m *deviceMemory) withinQuota(n uint64) bool { return m.quota == nil || m.quota(int64(n)) }

// unquota takes a charge back.
func (m *deviceMemory) unquota(n uint64) {
	if m.quota != nil {
		m.quota(-int64(n))
	}
}

func (m *deviceMemory) detachShared(addr uint64) {
	if err := m.space.Detach(addr); err != nil {
		m.log.Error("detach shared device memory", "address", addr, "err", err)
	}
}
