package backend

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"pegasus/backend/gate"
)

// newStore makes the file where a domain's device segments lie. It is empty until
// there are some.
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

// commons is a domain's store, for the daemon, who only gives back.
type commons struct{ m *avcpu }

func (c commons) Resize(bytes uint64) bool {
	c.m.hw.SetCommons(c.m.domain, bytes)
	return true
}

func (c commons) Clear(offset, bytes uint64) error {
	return unix.Fallocate(int(c.m.store.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(bytes))
}
