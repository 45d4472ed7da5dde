package memory

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	// Margin is the distance from an allocation, in bytes, within which kernels' accesses succeed all the same.
	Margin = 64 << 10

	marginBytes = 4 << 20  // of the memory that all margins have together
	zone        = 64 << 10 // with Strict, free addresses behind an allocation

	// described is the distance from an allocation up to which an address is described by it.
	described = 1 << 20
)

// Strict ends the margins, for kernels from then on, and leaves gaps between allocations that are made from then on.
func (s *Space) Strict() { s.strict.Store(true) }

// Beside returns memory for a kernel's access of n bytes at an address that no visible allocation contains, or nil if the access
// faults. A GPU maps whole pages, so accesses a little below or above an allocation have no consequences there, and programs
// contain such accesses. The memory is not that of the address, and belongs to no allocation: all margins share it, by the address
// modulo its size. Ranges of mappings have no margins: they consist of whole pages on a GPU, too. Any goroutine may call it.
func (s *Space) Beside(addr, n uint64) []byte {
	at := addr % marginBytes
	if s.strict.Load() || n > marginBytes-at || !s.near(addr) {
		return nil
	}
	return s.margin[at : at+n : at+n]
}

// near reports whether a visible allocation lies within Margin of an address.
func (s *Space) near(addr uint64) bool {
	if l := s.at(addr); l != nil && l.ranged != nil {
		return false
	}
	for d := uint64(Granule); d <= Margin; d += Granule {
		if s.usable(addr-d) || s.usable(addr+d) {
			return true
		}
	}
	return false
}

// usable reports whether an address is in a visible allocation, but not in one of mappings or of the host.
func (s *Space) usable(addr uint64) bool {
	l := s.at(addr)
	if l == nil || l.ranged != nil {
		return false
	}
	_, ok := s.Find(addr)
	return ok
}

// exact returns the requested size of the allocation of a span.
func (s *Space) exact(sp Span) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.at(sp.Start); l != nil {
		if l.shared && l.ranged == nil {
			return l.bytes
		}
		if l.inside != nil && l.inside.used[sp.Start] != nil {
			return l.inside.used[sp.Start].bytes
		}
	}
	return sp.End - sp.Start
}

// Describe returns the position of an address that a kernel may not access, relative to the nearest visible allocation:
// "" if none is near.
func (s *Space) Describe(addr uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	least, start, bytes := uint64(described), uint64(0), uint64(0)
	consider := func(from, n uint64) {
		d := uint64(0)
		switch {
		case addr < from:
			d = from - addr
		case addr >= from+n:
			d = addr - (from + n) + 1
		}
		if d < least {
			least, start, bytes = d, from, n
		}
	}
	for i := range s.slabs {
		l := s.slabs[i].Load()
		if l == nil || l.ranged != nil || l.run.start != s.base+uint64(i)*SlabSize {
			continue
		}
		if l.shared {
			consider(l.first, l.bytes)
			continue
		}
		for _, x := range l.inside.used {
			if x.visible {
				consider(x.start, x.bytes)
			}
		}
	}
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("offset %d of the allocation of %d bytes at %#x", int64(addr-start), bytes, start)
}

// mapMargin maps the memory of the margins. Its pages exist once they are touched.
func mapMargin() ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, marginBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map the memory beside allocations: %w", err)
	}
	return mem, nil
}
