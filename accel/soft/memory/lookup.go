package memory

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
	if p := l.chunks[(addr-l.run.start)/chunkSize].Load(); p != nil {
		for _, sp := range *p {
			if addr-sp.Start < sp.End-sp.Start {
				return sp, true
			}
		}
	}
	return Span{}, false
}

// Region returns the visible allocation that contains addr: its address and its
// memory, nil if there is none. Any goroutine may call it.
func (s *Space) Region(addr uint64) (base uint64, mem []byte) {
	sp, ok := s.Find(addr)
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

// IsHost says whether addr lies in the host memory of SetHost.
func (s *Space) IsHost(addr uint64) bool { return addr >= s.host.Start && addr < s.host.End }

func (s *Space) raw(addr, n uint64) []byte {
	if l := s.at(addr); l != nil {
		off := addr - l.run.start
		return l.mem[off : off+n : off+n]
	}
	off := addr - s.host.Start
	return s.hostMem[off : off+n : off+n]
}

// show enters an allocation into the chunk table.
func (l *slab) show(sp Span) {
	whole := &[]Span{sp}
	l.eachChunk(sp, func(i, from, to uint64) {
		if sp.Start <= from && sp.End >= to {
			l.chunks[i].Store(whole)
			return
		}
		var list []Span
		if p := l.chunks[i].Load(); p != nil {
			list = *p
		}
		more := append(append(make([]Span, 0, len(list)+1), list...), sp)
		l.chunks[i].Store(&more)
	})
}

// hide takes an allocation out of the chunk table.
func (l *slab) hide(sp Span) {
	l.eachChunk(sp, func(i, from, to uint64) {
		list := *l.chunks[i].Load()
		if len(list) == 1 {
			l.chunks[i].Store(nil)
			return
		}
		fewer := make([]Span, 0, len(list)-1)
		for _, other := range list {
			if other != sp {
				fewer = append(fewer, other)
			}
		}
		l.chunks[i].Store(&fewer)
	})
}

func (l *slab) eachChunk(sp Span, do func(i, from, to uint64)) {
	for i := (sp.Start - l.run.start) / chunkSize; i <= (sp.End-1-l.run.start)/chunkSize; i++ {
		from := l.run.start + i*chunkSize
		do(i, from, from+chunkSize)
	}
}
