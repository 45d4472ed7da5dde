package memory

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"pegasus/accel"
	"pegasus/accel/ranges"
)

// MapGranule is the unit of mappings, in bytes. The host's page size would do, but programs expect this of a GPU.
const MapGranule = 2 << 20

// ErrRange is returned for invalid addresses: neither reserved and free, nor whole mappings, as required.
var ErrRange = errors.New("no such range of addresses, or not of whole mappings")

// Physical is memory without an address: a file, or a part of one.
type Physical struct {
	fd            int
	offset, bytes uint64
	users         int    // mappings, and the owner's reference
	gone          func() // called when there are no users left
}

// NewPhysical creates n bytes of zeroed memory without an address, multiple of MapGranule. gone is called when it was
// released and is mapped nowhere.
func (s *Space) NewPhysical(n uint64, gone func()) (*Physical, error) {
	fd, err := newFile("pegasus-device-memory", n)
	if err != nil {
		return nil, err
	}
	return s.keep(&Physical{fd: fd, bytes: n, users: 1, gone: gone}), nil
}

// Import wraps a part of a file as such memory. The caller keeps ownership of the file.
func (s *Space) Import(fd int, offset, n uint64, gone func()) (*Physical, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("import device memory: %w", err)
	}
	return s.keep(&Physical{fd: own, offset: offset, bytes: n, users: 1, gone: gone}), nil
}

func (s *Space) keep(p *Physical) *Physical {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.physicals == nil {
		s.physicals = map[*Physical]struct{}{}
	}
	s.physicals[p] = struct{}{}
	return p
}

// Release drops the owner's reference to memory without an address.
func (s *Space) Release(p *Physical) {
	s.mu.Lock()
	gone := s.let(p)
	s.mu.Unlock()
	gone()
}

// let drops one user, and returns a function to be called without the lock.
func (s *Space) let(p *Physical) func() {
	if p.users--; p.users > 0 {
		return func() {}
	}
	delete(s.physicals, p)
	unix.Close(p.fd)
	return p.gone
}

// Reserve reserves n addresses, multiple of MapGranule, at wish if that is free.
func (s *Space) Reserve(n, alignment, wish uint64) (uint64, error) {
	if n == 0 || n%MapGranule != 0 || alignment&(alignment-1) != 0 {
		return 0, ErrRange
	}
	if n > s.size || alignment > s.size {
		return 0, unix.ENOMEM
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := (n + SlabSize - 1) &^ (SlabSize - 1)
	var run *extent
	if wish != 0 && wish%SlabSize == 0 && (alignment == 0 || wish%alignment == 0) {
		run = s.runs.allocAt(wish, whole)
	}
	if run == nil {
		if alignment > SlabSize { // runs are aligned to that
			whole += alignment
		}
		run = s.runs.alloc(whole)
	}
	if run == nil {
		return 0, unix.ENOMEM
	}
	start := run.start
	if alignment != 0 {
		start = (start + alignment - 1) &^ (alignment - 1)
	}
	l := &slab{run: run, fd: -1, mem: bytesAt(run.start, run.size), shared: true, count: 1, ranged: ranges.New[*Physical](start, n)}
	l.chunks = make([]chunk, run.size/chunkSize)
	for a := run.start; a < run.start+run.size; a += SlabSize {
		s.slabs[(a-s.base)/SlabSize].Store(l)
	}
	return start, nil
}

// Unreserve releases a range that Reserve reserved.
func (s *Space) Unreserve(at uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.at(at)
	if l == nil || l.ranged == nil || l.ranged.Start != at || !l.ranged.Empty() {
		return ErrRange
	}
	for a := l.run.start; a < l.run.start+l.run.size; a += SlabSize {
		s.slabs[(a-s.base)/SlabSize].Store(nil)
	}
	s.runs.release(l.run)
	return nil
}

// within returns the slab with the range that an address lies in, for whole granules.
func (s *Space) within(at, n uint64) *slab {
	l := s.at(at)
	if l == nil || l.ranged == nil || at%MapGranule != 0 || n%MapGranule != 0 {
		return nil
	}
	return l
}

// Map maps n bytes of p from offset on at an unmapped address. They can't be accessed yet.
func (s *Space) Map(at, n, offset uint64, p *Physical) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.within(at, n)
	if l == nil || !l.ranged.Free(at, n) || offset%MapGranule != 0 || offset > p.bytes || n > p.bytes-offset {
		return ErrRange
	}
	if err := mapAt(at, n, unix.PROT_NONE, unix.MAP_SHARED|unix.MAP_NORESERVE|unix.MAP_FIXED, p.fd, p.offset+offset); err != nil {
		return fmt.Errorf("map device memory: %w", err)
	}
	l.ranged.Put(ranges.View[*Physical]{At: at, Bytes: n, Offset: offset, Of: p})
	p.users++
	return nil
}

// Unmap removes the mappings that make up [at, at+n). Later accesses fault.
func (s *Space) Unmap(at, n uint64) error {
	var gone []func()
	defer func() {
		for _, f := range gone {
			f()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.within(at, n)
	if l == nil || l.ranged.Whole(at, n) == nil {
		return ErrRange
	}
	l.allow(at, n, accel.NoAccess)
	if err := reserve(at, n, true); err != nil {
		return fmt.Errorf("unmap device memory: %w", err)
	}
	for _, v := range l.ranged.Whole(at, n) {
		gone = append(gone, s.let(v.Of))
	}
	l.ranged.Drop(at, n)
	return nil
}

// protection maps an access to mmap's protection flags.
var protection = map[accel.Access]int{
	accel.NoAccess: unix.PROT_NONE, accel.ReadOnly: unix.PROT_READ, accel.ReadWrite: unix.PROT_READ | unix.PROT_WRITE,
}

// Protect sets the access of the mappings that make up [at, at+n).
func (s *Space) Protect(at, n uint64, a accel.Access) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.within(at, n)
	if l == nil || l.ranged.Whole(at, n) == nil {
		return ErrRange
	}
	if a == accel.NoAccess { // hidden from lookups first, so that no access begins
		l.allow(at, n, a)
	}
	if err := protect(at, n, protection[a]); err != nil {
		return fmt.Errorf("protect device memory: %w", err)
	}
	l.allow(at, n, a)
	return nil
}

// allow updates the table with the access of a range: neighbouring accessible mappings form one span.
func (l *slab) allow(at, n uint64, a accel.Access) {
	l.ranged.Allow(at, n, a)
	if a == accel.NoAccess {
		l.hide(Span{at, at + n})
	}
	for _, u := range l.ranged.Usable(at, n) {
		l.show(Span(u))
	}
}
