package memory

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Attach makes n bytes of a file, from offset on (a multiple of Granule), visible in the space, as one allocation. The
// caller keeps ownership of the file. Other bytes of the same pages aren't visible.
func (s *Space) Attach(fd int, offset, n uint64) (addr uint64, err error) {
	if n == 0 || n > s.size || n > maxBytes || offset%Granule != 0 {
		return 0, unix.ENOMEM
	}
	within := offset % pageSize
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("attach device memory: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.runs.alloc((within + n + SlabSize - 1) &^ (SlabSize - 1))
	if run == nil {
		unix.Close(own)
		return 0, unix.ENOMEM
	}
	mem, err := mapShared(run.start, within+n, own, offset-within)
	if err != nil {
		s.runs.release(run)
		unix.Close(own)
		return 0, fmt.Errorf("attach device memory: %w", err)
	}
	l := &slab{run: run, fd: own, mem: mem, shared: true, first: run.start + within, bytes: n, count: 1}
	l.chunks = make([]chunk, run.size/chunkSize)
	l.show(Span{l.first, l.first + RoundUp(n)})
	for a := run.start; a < run.start+run.size; a += SlabSize {
		s.slabs[(a-s.base)/SlabSize].Store(l)
	}
	return l.first, nil
}

// Detach removes an attachment. The memory may not be in use any more.
func (s *Space) Detach(addr uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.at(addr)
	if l == nil || !l.shared || l.ranged != nil || l.first != addr {
		return ErrAddress
	}
	s.emptied(l)
	return nil
}
