package exec

import (
	"unsafe"

	"pegasus/accel/soft/lane/gen"
)

// pattern is the pattern of the addresses of each chunk of a row.
type pattern struct {
	gen.Pattern
	distinct bool // no two lanes access the same element
}

// patterns are the patterns that a worker has found last.
type patterns struct {
	known [8]pattern
	used  int // of them
	next  int // to be replaced
}

// patternOf returns the pattern of the n indices of a row in which all chunks are irregular, or nil.
func (g runner) patternOf(s *shape, row unsafe.Pointer, n int) *pattern {
	if !s.searched {
		s.pattern, s.searched = g.w.patterns.find(row, n), true
	}
	return s.pattern
}

func (l *patterns) find(row unsafe.Pointer, n int) *pattern {
	if n%chunk != 0 {
		return nil
	}
	var from [chunk]uint32
	lanes := (*[chunk]uint32)(row)
	for i := range from {
		if from[i] = lanes[i] - lanes[0]; from[i] >= gen.Window {
			return nil
		}
	}
	if !sameChunks(row, &from, n/chunk) {
		return nil
	}
	for i := range l.used {
		if p := &l.known[i]; p.From == from {
			return p
		}
	}
	p := &l.known[l.next]
	l.next, l.used = (l.next+1)%len(l.known), min(l.used+1, len(l.known))
	*p = pattern{distinct: true}
	p.From = from
	loaded, stored := uint32(0), uint32(0)
	for i, f := range from {
		loaded |= 2<<f - 1
		p.distinct = p.distinct && stored>>f&1 == 0
		stored |= 1 << f
		p.To[f] = uint32(i)
	}
	p.Loaded, p.Stored = [2]uint16{uint16(loaded), uint16(loaded >> 16)}, [2]uint16{uint16(stored), uint16(stored >> 16)}
	return p
}

// suitsPattern reports whether an access group whose n addresses are all irregular has a pattern that machine code
// supports. If it stores, no two lanes store to one element.
func (g runner) suitsPattern(s *shape, row unsafe.Pointer, n int, ag *gen.AccessGroup) *gen.Pattern {
	if !gen.Patterned(ag.First) || g.act.to-g.act.lo != n { // code would access memory for the units without threads
		return nil
	}
	for i := range (n + chunk - 1) / chunk {
		if s.runs[i].step != irregular {
			return nil
		}
	}
	p := g.patternOf(s, row, n)
	if p == nil || ag.First.Write && !p.distinct {
		return nil
	}
	if m := ag.First; m.Write && m.StoresOnce() {
		last := uint64(p.From[chunk-1]) * m.Scale
		for i := range n/chunk - 1 {
			if s.runs[i].first+last == s.runs[i+1].first {
				return nil
			}
		}
	}
	return &p.Pattern
}
