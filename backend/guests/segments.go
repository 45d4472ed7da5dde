package guests

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/backend/gate"
	"pegasus/backend/sched"
)

// newStore makes the file for a domain's device segments. It uses no memory until there are some.
func newStore() (*os.File, error) {
	fd, err := unix.MemfdCreate("pegasus-commons", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make the store of device segments: %w", err)
	}
	f := os.NewFile(uintptr(fd), "segments")
	err = f.Truncate(gate.SegmentStore)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("make the store of device segments: %w", err)
	}
	return f, nil
}

// lockPatience bounds the daemon's wait for a worker that holds the lock of its domain's gate page. The worker may be
// clearing segments, half a second for a GiB.
const lockPatience = 2 * time.Second

// clearSegments frees the removed device segments that only m's dead workers had attached. It waits for a lock word
// that m's workers write, so the caller must hold no lock of the daemon. If a worker keeps the lock, the segments stay
// the domain's until another of its workers ends or changes the table, or all have left.
func (dom *domain) clearSegments(m *sched.Attachment) {
	reg := dom.reg
	if err := m.Page.ClearSegments(commons{reg, dom, m}, lockPatience); err != nil {
		dom.note("locked", "clear device segments: %v for %v; keeping them", err, lockPatience)
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	reg.makeRoom()
}

// commons is a domain's store for the daemon, which only releases segments.
type commons struct {
	d   *Registry
	dom *domain
	m   *sched.Attachment
}

func (c commons) Resize(bytes uint64) bool {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.dom.attachment == c.m { // else the domain has left, and has none
		if quota := uint64(c.dom.settings.Memory); quota != 0 { // workers write the table from which the sum is computed
			bytes = min(bytes, quota)
		}
		c.dom.on.Hardware.SetCommons(c.dom.name, bytes)
	}
	return true
}

func (c commons) Clear(offset, bytes uint64) error {
	return unix.Fallocate(int(c.m.Store.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(bytes))
}
