package memory

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// mirror is host memory for evicted memory: the byte at an address has its place at the same distance from the
// beginning. So it needs no bookkeeping, and occupies only the pages in use.
type mirror struct {
	fd  int
	mem []byte
}

// Mirror creates the host memory that Evict moves allocations to.
func (s *Space) Mirror() error {
	fd, err := newFile("pegasus-swap", s.size)
	if err != nil {
		return fmt.Errorf("swap: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, int(s.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("swap: %w", err)
	}
	s.mirror = mirror{fd, mem}
	return nil
}

func (m *mirror) close() error {
	if m.mem == nil {
		return nil
	}
	return errors.Join(unix.Munmap(m.mem), unix.Close(m.fd))
}

// Evict moves n bytes at addr, which lie in one allocation, to host memory: the allocation reads as zeros afterwards.
// No other goroutine may use it meanwhile.
func (s *Space) Evict(addr, n uint64) error {
	l := s.at(addr)
	off := addr - l.run.start
	return move(s.mirror.mem[addr-s.base:][:n], l.mem[off:off+n], l.fd, off)
}

// Retrieve moves evicted bytes back: the reverse of Evict.
func (s *Space) Retrieve(addr, n uint64) error {
	l := s.at(addr)
	off := addr - l.run.start
	return move(l.mem[off:off+n], s.mirror.mem[addr-s.base:][:n], s.mirror.fd, addr-s.base)
}

// Evicted returns the memory that the bytes of [addr, addr+n) lie in after Evict.
func (s *Space) Evicted(addr, n uint64) []byte {
	return s.mirror.mem[addr-s.base:][:n:n]
}

// forget makes the evicted parts of [addr, addr+n) read as zeros.
func (s *Space) forget(addr, n uint64) error {
	off := addr - s.base
	if data, err := unix.Seek(s.mirror.fd, int64(off), unix.SEEK_DATA); err != nil || uint64(data) >= off+n {
		return nil // nothing is there
	}
	return wipe(s.mirror.fd, s.mirror.mem, 0, off, n)
}

// moveStep is the size that is in both places while memory is moved.
const moveStep = 4 << 20

// move copies from, which is at offset off of file fd, into to, which holds zeros, and leaves zeros behind. Pages that
// were never touched are skipped.
func move(to, from []byte, fd int, off uint64) error {
	n := uint64(len(from))
	for at := uint64(0); at < n; {
		data, err := unix.Seek(fd, int64(off+at), unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && uint64(data) >= off+n {
			return nil
		}
		if err != nil {
			return fmt.Errorf("move %d bytes of device memory: %w", n, err)
		}
		at = max(at, uint64(data)-off)
		hole, err := unix.Seek(fd, int64(off+at), unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("move %d bytes of device memory: %w", n, err)
		}
		for end := min(uint64(hole)-off, n); at < end; {
			step := min(end-at, moveStep)
			copy(to[at:at+step], from[at:at+step])
			if err := wipe(fd, from, off, at, step); err != nil {
				return err
			}
			at += step
		}
	}
	return nil
}
