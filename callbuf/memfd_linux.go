package callbuf

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewFile makes the shared memory of a process guest's segment: a memfd of l.SegmentBytes, sealed so that
// neither side can shrink it while the other uses it. Its pages are committed as they are touched.
func NewFile(l Layout) (*os.File, error) {
	fd, err := unix.MemfdCreate("pegasus-segment", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make segment: %w", err)
	}
	f := os.NewFile(uintptr(fd), "pegasus-segment")
	if err := f.Truncate(int64(l.SegmentBytes)); err != nil {
		f.Close()
		return nil, fmt.Errorf("size segment: %w", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal segment: %w", err)
	}
	return f, nil
}

// Map maps a whole segment file, at any address.
func Map(f *os.File, bytes uint64) ([]byte, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map segment: %w", err)
	}
	return mem, nil
}

// Unmap undoes Map.
func Unmap(mem []byte) error { return unix.Munmap(mem) }
