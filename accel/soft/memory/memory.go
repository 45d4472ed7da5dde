// Package memory is the device memory of a software accelerator in one worker process: allocations at addresses that
// are the same for guest, device and host. It lies in slabs, each a memfd of its own, mapped into the part of the
// address space that the worker was given. The host allocates a page when it is first touched.
//
// Any goroutine may allocate, free, and look up addresses; a lookup takes no locks, since kernels do it constantly. The
// contents of an allocation are erased before its place is reused.
//
// Callers: accel/soft.
//
// Trust boundary: addresses and sizes come from guests and may be anything. The memory belongs to one worker; other
// processes get a part of it only by lending.
package memory

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"pegasus/accel/ranges"
)

const (
	// Granule is the alignment of allocations; their sizes are rounded up to it.
	Granule = 512
	// SlabSize is the alignment of a space and the unit of its slabs.
	SlabSize = 64 << 20

	chunkSize = 64 << 10  // step of the address table
	punchSize = 256 << 10 // freed pages are released to the host from this size on, smaller pieces are cleared
	pageSize  = 4096

	maxBytes = 1 << 40 // of an allocation: see packed
)

// ErrAddress is returned by Free for an address that Alloc did not return.
var ErrAddress = errors.New("not the address of an allocation")

// Span is the address range of one allocation.
type Span struct{ Start, End uint64 }

// Space is a device address space.
type Space struct {
	base, size uint64
	reserved   bool                   // by the caller, which keeps the range
	slabs      []atomic.Pointer[slab] // by (address - base) / SlabSize
	host       Span
	hostMem    []byte
	mirror     mirror // empty without eviction

	mu    sync.Mutex
	runs  *extents // slabs in the slice
	order []*slab  // search order for room, the latest first
	empty int      // slabs of one unit without an allocation

	physicals map[*Physical]struct{}

	strict atomic.Bool // see Strict
	margin []byte      // see Beside
}

// slab is a mapped memfd.
type slab struct {
	run      *extent
	fd       int
	mem      []byte
	inside   *extents
	count    int
	shared   bool                     // also mapped by other processes: its file stays unchanged
	first    uint64                   // of attached memory: its start
	bytes    uint64                   // its length
	offset   uint64                   // in the file
	exported *ExportedRegion          // the region that its memory was moved to; nil: none
	ranged   *ranges.Range[*Physical] // of a range of reserved addresses; nil of others
	chunks   []chunk                  // by 64 KiB
}

// chunk maps a piece of a slab to the visible allocations in it: one that covers all of it, or one for each granule.
// The table of granules is allocated when it is first needed and then kept: allocating and freeing leave no garbage.
type chunk struct {
	whole    atomic.Uint64 // as packed gives it; 0: see granules
	granules atomic.Pointer[[chunkSize / Granule]atomic.Uint64]
}

// New creates a space of size bytes at base, both multiples of SlabSize. reserved means that the caller has reserved
// the range already; else it must be unused.
func New(base, size uint64, reserved bool) (*Space, error) {
	if base%SlabSize != 0 || size%SlabSize != 0 || size == 0 || base+size < base {
		return nil, fmt.Errorf("device memory at %#x, %d bytes: want multiples of %d", base, size, SlabSize)
	}
	if err := reserve(base, size, reserved); err != nil {
		return nil, fmt.Errorf("reserve %d bytes of addresses at %#x: %w", size, base, err)
	}
	margin, err := mapMargin()
	if err != nil {
		if !reserved {
			err = errors.Join(err, unreserve(base, size))
		}
		return nil, err
	}
	return &Space{
		base: base, size: size, reserved: reserved,
		slabs:  make([]atomic.Pointer[slab], size/SlabSize),
		runs:   newExtents(base, size, SlabSize),
		margin: margin,
	}, nil
}

// SetHost makes host memory at the address base visible to lookups, as one allocation. It must be called before any
// lookup.
func (s *Space) SetHost(base uint64, mem []byte) {
	s.host, s.hostMem = Span{base, base + uint64(len(mem))}, mem
}

// Alloc returns the address of n bytes of zeroed memory. Only Raw returns memory that is not visible: neither kernels
// nor the guest's copies can access it.
func (s *Space) Alloc(n uint64, visible bool) (uint64, error) {
	if n == 0 || n > s.size || n > maxBytes {
		return 0, unix.ENOMEM
	}
	room := RoundUp(n)
	if s.strict.Load() {
		room += zone
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.order) - 1; i >= 0; i-- {
		l := s.order[i]
		x := l.inside.alloc(room)
		if x == nil {
			continue
		}
		if l.exported != nil {
			if err := l.wipe(x.start-l.run.start, RoundUp(n)); err != nil {
				l.inside.release(x)
				return 0, fmt.Errorf("clear %d bytes of device memory: %w", n, err)
			}
		}
		l.took(s, x, n, visible)
		return x.start, nil
	}
	l, err := s.newSlab(room)
	if err != nil {
		return 0, err
	}
	x := l.inside.alloc(room)
	l.took(s, x, n, visible)
	return x.start, nil
}

// RoundUp returns the size that an allocation of n bytes is accounted with.
func RoundUp(n uint64) uint64 { return (n + Granule - 1) &^ (Granule - 1) }

// took accounts for a new extent of the slab, for an allocation of n bytes.
func (l *slab) took(s *Space, x *extent, n uint64, visible bool) {
	if l.count == 0 && l.run.size == SlabSize {
		s.empty--
	}
	l.count++
	x.bytes = n
	if x.visible = visible; visible {
		l.show(Span{x.start, x.start + RoundUp(n)})
	}
}

func (s *Space) newSlab(n uint64) (*slab, error) {
	run := s.runs.alloc((n + SlabSize - 1) &^ (SlabSize - 1))
	if run == nil {
		return nil, unix.ENOMEM
	}
	fd, mem, err := mapSlab(run.start, run.size)
	if err != nil {
		s.runs.release(run)
		return nil, fmt.Errorf("slab: %w", err)
	}
	l := &slab{run: run, fd: fd, mem: mem, inside: newExtents(run.start, run.size, Granule)}
	l.chunks = make([]chunk, run.size/chunkSize)
	for a := run.start; a < run.start+run.size; a += SlabSize {
		s.slabs[(a-s.base)/SlabSize].Store(l)
	}
	if run.size == SlabSize {
		s.empty++
	}
	s.order = append(s.order, l)
	return l, nil
}

// Free clears the allocation at addr, makes its addresses available, and returns its size. Exported memory is cleared
// when it is allocated again, or by the owner of its file: until then it stays usable for processes that have attached
// it, as when this process ends first.
func (s *Space) Free(addr uint64) (uint64, error) {
	l := s.at(addr)
	if l == nil || l.shared {
		return 0, ErrAddress
	}
	s.mu.Lock()
	x := l.inside.used[addr]
	if x == nil {
		s.mu.Unlock()
		return 0, ErrAddress
	}
	n := RoundUp(x.bytes)
	if x.visible {
		l.hide(Span{addr, addr + n})
	}
	exported := l.exported != nil
	s.mu.Unlock()
	var err error
	if !exported {
		err = l.wipe(addr-l.run.start, n)
	}
	if err == nil && s.mirror.mem != nil {
		err = s.forget(addr, n)
	}
	if err != nil {
		return 0, fmt.Errorf("clear %d bytes of device memory: %w", n, err) // stays allocated: better lost than exposed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.inside.release(x)
	if l.count--; l.count == 0 {
		s.emptied(l)
	}
	return n, nil
}

// emptied drops a slab without allocations, or keeps it if it is the only small one.
func (s *Space) emptied(l *slab) {
	if l.run.size == SlabSize && s.empty == 0 && !l.shared && l.exported == nil {
		s.empty++
		return
	}
	for a := l.run.start; a < l.run.start+l.run.size; a += SlabSize {
		s.slabs[(a-s.base)/SlabSize].Store(nil)
	}
	for i := range s.order {
		if s.order[i] == l {
			s.order = append(s.order[:i], s.order[i+1:]...)
			break
		}
	}
	if unmapSlab(l) == nil {
		s.runs.release(l.run)
	}
	if l.exported != nil {
		l.exported.Gone()
	}
}

// wipe makes n bytes at offset off read as zero.
func (l *slab) wipe(off, n uint64) error { return wipe(l.fd, l.mem, l.offset, off, n) }

// wipe makes mem[at:at+n] read as zero, where mem is file fd from offset off on: whole pages are released to the
// host, the rest is cleared.
func wipe(fd int, mem []byte, off, at, n uint64) error {
	if n < punchSize {
		clear(mem[at : at+n])
		return nil
	}
	from, to := (off+at+pageSize-1)&^(pageSize-1), (off+at+n)&^(pageSize-1)
	clear(mem[at : from-off])
	clear(mem[to-off : at+n])
	return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(from), int64(to-from))
}

// Close unmaps everything. No address of the space may be in use.
func (s *Space) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.order {
		unix.Close(l.fd)
	}
	for i := range s.slabs {
		if l := s.slabs[i].Load(); l != nil && l.shared && l.ranged == nil && l.run.start == s.base+uint64(i)*SlabSize {
			unix.Close(l.fd)
		}
	}
	for p := range s.physicals {
		unix.Close(p.fd)
	}
	s.order, s.physicals = nil, nil
	clear(s.slabs)
	err := errors.Join(s.mirror.close(), unix.Munmap(s.margin))
	s.mirror, s.margin = mirror{}, nil
	if s.reserved {
		return errors.Join(err, reserve(s.base, s.size, true))
	}
	return errors.Join(err, unreserve(s.base, s.size))
}
