package memory

import "sync/atomic"

// at returns the slab that addr lies in, or nil.
func (s *Space) at(addr uint64) *slab {
	if addr-s.base >= s.size { // also if addr < base
		return nil
	}
	return s.slabs[(addr-s.base)/SlabSize].Load()
}

// Find returns the visible allocation that contains addr. Any goroutine may call it.
func (s *Space) Find(addr uint64) (Span, bool) {
	l := s.at(addr)
	if l == nil {
		return s.host, addr >= s.host.Start && addr < s.host.End
	}
	off := addr - l.run.start
	c := &l.chunks[off/chunkSize]
	w := c.whole.Load()
	if w == 0 {
		g := c.granules.Load()
		if g == nil {
			return Span{}, false
		}
		w = g[off%chunkSize/Granule].Load()
	}
	return l.unpacked(w), w != 0
}

// packed returns a span of the slab in one word, so that it can be replaced atomically: its position and its length, in
// granules.
func (l *slab) packed(sp Span) uint64 {
	return (sp.Start-l.run.start)/Granule<<32 | (sp.End-sp.Start)/Granule
}

func (l *slab) unpacked(w uint64) Span {
	start := l.run.start + w>>32*Granule
	return Span{start, start + uint64(uint32(w))*Granule}
}

// Region returns the visible allocation that contains addr: its address and its memory, nil if there is none. With
// Strict the memory ends at the allocation's requested size. Any goroutine may call it.
func (s *Space) Region(addr uint64) (base uint64, mem []byte) {
	sp, ok := s.Find(addr)
	if ok && s.strict.Load() {
		sp.End = sp.Start + s.exact(sp)
		ok = addr < sp.End
	}
	if !ok {
		return 0, nil
	}
	return sp.Start, s.raw(sp.Start, sp.End-sp.Start)
}

// Slice returns the memory at [addr, addr+n) if it lies in one visible allocation, else nil.
func (s *Space) Slice(addr, n uint64) []byte {
	sp, ok := s.Find(addr)
	if !ok || n > sp.End-addr {
		return nil
	}
	return s.raw(addr, n)
}

// Raw returns the memory at [addr, addr+n), which must lie in one allocation of the caller, visible or not.
func (s *Space) Raw(addr, n uint64) []byte { return s.raw(addr, n) }

// IsHost reports whether addr lies in the host memory of SetHost.
func (s *Space) IsHost(addr uint64) bool { return addr >= s.host.Start && addr < s.host.End }

func (s *Space) raw(addr, n uint64) []byte {
	if l := s.at(addr); l != nil {
		off := addr - l.run.start
		return l.mem[off : off+n : off+n]
	}
	off := addr - s.host.Start
	return s.hostMem[off : off+n : off+n]
}

// show enters an allocation into the table, hide removes it.
func (l *slab) show(sp Span) { l.enter(sp, l.packed(sp)) }
func (l *slab) hide(sp Span) { l.enter(sp, 0) }

func (l *slab) enter(sp Span, w uint64) {
	for from := sp.Start - l.run.start; from < sp.End-l.run.start; {
		c := &l.chunks[from/chunkSize]
		to := min(from-from%chunkSize+chunkSize, sp.End-l.run.start)
		if to-from == chunkSize {
			c.whole.Store(w)
		} else {
			c.enter(from%chunkSize/Granule, (to-from)/Granule, w)
		}
		from = to
	}
}

// enter changes n granules from the first on.
func (c *chunk) enter(first, n, w uint64) {
	g := c.granules.Load()
	if g == nil {
		g = new([chunkSize / Granule]atomic.Uint64)
		c.granules.Store(g)
	}
	for i := range g[first : first+n] {
		g[first+uint64(i)].Store(w)
	}
}
