package memory

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ExportedRegion is a part of a file that other processes map, too.
type ExportedRegion struct {
	FD     int // stays the caller's
	Offset uint64
	ID     uint32 // identifies the part; chosen by the caller
	Gone   func() // called when nothing of the space lies there any more, to clear it after its last use; it must not use the space
}

// Export moves the slab that contains an allocation into a part of a file, unless it is in one already. find returns a
// part of the given size. All allocations of the slab keep their addresses. Export returns the part, the allocation's
// offset in it, and its length. No other goroutine may use memory of the space meanwhile.
func (s *Space) Export(addr uint64, find func(bytes uint64) (*ExportedRegion, error)) (to *ExportedRegion, at, n uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.at(addr)
	if l == nil || l.shared {
		return nil, 0, 0, ErrAddress
	}
	x := l.inside.used[addr]
	if x == nil || !x.visible {
		return nil, 0, 0, ErrAddress
	}
	if l.exported == nil {
		if to, err = find(l.run.size); err != nil {
			return nil, 0, 0, err
		}
		if err = l.move(to); err != nil {
			to.Gone()
			return nil, 0, 0, fmt.Errorf("export device memory: %w", err)
		}
		l.exported = to
	}
	return l.exported, addr - l.run.start, RoundUp(x.bytes), nil
}

// move copies a slab's bytes to another file, and maps that at its addresses.
func (l *slab) move(to *ExportedRegion) error {
	own, err := unix.FcntlInt(uintptr(to.FD), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = l.copyTo(own, to.Offset)
	if err == nil {
		_, err = mapShared(l.run.start, l.run.size, own, to.Offset)
	}
	if err != nil {
		unix.Close(own)
		return err
	}
	unix.Close(l.fd)
	l.fd, l.offset = own, to.Offset
	return nil
}

// copyTo copies the pages of the slab that exist: pages that were never touched stay holes.
func (l *slab) copyTo(fd int, offset uint64) error {
	size := int64(l.run.size)
	for at := int64(0); at < size; {
		from, err := unix.Seek(l.fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // holes alone
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = unix.Seek(l.fd, from, unix.SEEK_HOLE); err != nil {
			return err
		}
		for from < at {
			n, err := unix.Pwrite(fd, l.mem[from:at], int64(offset)+from)
			if err != nil {
				return err
			}
			from += int64(n)
		}
	}
	return nil
}
