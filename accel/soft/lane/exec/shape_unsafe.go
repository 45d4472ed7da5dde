package exec

import (
	"math"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// chunk is the number of lanes that are moved at a time if their addresses are regular.
const chunk = 16

// irregular is the step of a chunk with addresses that don't differ by a constant.
const irregular = math.MinInt64

// shape describes the addresses of consecutive lanes. Assembly depends on the offsets of its fields.
type shape struct {
	low, high uint64 // the least and the greatest
	bits      uint64 // its lowest set bit is the lowest one set in any address
	differ    bool   // no two consecutive lanes have the same address; false if unknown
	runs      [ir.MaxLanes / chunk]addressRun
	turn      uint64 // the group's when that was so
	line      bool   // all are one run
	spelled   bool   // all of runs are filled in, not only the first: see spell
	pattern   *pattern
	searched  bool  // pattern has the pattern of all runs, or nil
	summed    bool  // common and apart are valid
	common    int64 // the step of all runs, or irregular
	apart     bool  // no run is irregular or has a step of 0
}

// addressRun is the addresses of a chunk: the first, and the distance from lane to lane, or irregular.
type addressRun struct {
	first uint64
	step  int64
}

// address returns the address of one lane, from a row of 32 or 64 bits or a single value.
func address(p unsafe.Pointer, step, lane int) uint64 {
	if step == 4 {
		return uint64(arith.Get32(p, 4, lane))
	}
	return arith.Get64(p, step, lane)
}

// look determines the shape of n addresses, the first of them at p. Those of 32 bits are multiplied by scale.
func (s *shape) look(p unsafe.Pointer, step, n int, scale uint64) {
	s.low, s.high, s.bits, s.differ, s.line, s.spelled, s.searched, s.summed = math.MaxUint64, 0, 0, false, false, false, false, false
	chunks := n / chunk
	if chunks > 0 && lookVector(s, p, step, chunks, scale) {
		if n &= chunk - 1; n == 0 {
			return
		}
		s.spell()
		s.differ, s.line = false, false
		p = unsafe.Add(p, chunks*chunk*step)
	} else {
		chunks = 0
	}
	s.lookPlain(chunks, p, step, n, scale)
}

// spell fills in all runs.
func (s *shape) spell() {
	if !s.line || s.spelled {
		return
	}
	s.spelled = true
	r := s.runs[0]
	by := uint64(r.step) * chunk
	for i := range s.runs {
		s.runs[i] = r
		r.first += by
	}
}

// lookPlain adds n addresses, the first of them at p, that begin with a chunk.
func (s *shape) lookPlain(number int, p unsafe.Pointer, step, n int, scale uint64) {
	for l := 0; l < n; l += chunk {
		r := &s.runs[number]
		*r = addressRun{address(p, step, l) * scale, irregular}
		last := min(l+chunk, n) - 1
		if last > l {
			r.step = int64(address(p, step, l+1)*scale - r.first)
		}
		for i := l; i <= last; i++ {
			a := address(p, step, i) * scale
			s.low, s.high = min(s.low, a), max(s.high, a)
			s.bits |= a
			if a != r.first+uint64(i-l)*uint64(r.step) {
				r.step = irregular
			}
		}
		number++
	}
}

// mayRepeat reports whether two consecutive lanes of n may have the same address.
func (s *shape) mayRepeat(n int) bool { return !s.differ && s.repeats(n) }

// repeats is mayRepeat without the shortcut of differ.
func (s *shape) repeats(n int) bool {
	if s.line {
		return s.runs[0].step == 0
	}
	end := s.runs[0].first - 1
	for i := range (n + chunk - 1) / chunk {
		r := &s.runs[i]
		if r.step == 0 || r.step == irregular || r.first == end {
			return true
		}
		end = r.first + uint64(r.step)*(chunk-1)
	}
	return false
}

// together is an access of dense lanes to memory that was checked: the memory of an address a is at unsafe.Add(mem,
// a·scale+off).
type together struct {
	*shape
	addresses unsafe.Pointer // of the first lane, or indices
	step, n   int
	mem       unsafe.Pointer
	off       uint64
	scale     uint64 // 1 for addresses of 64 bits
}

// reach reports whether the active lanes are dense and all access memory of the instruction's region. The per-lane
// paths handle faults and other memory.
func (g *group) reach(m *ir.Memory, addresses unsafe.Pointer, step int) (t together, ok bool) {
	if !g.act.dense || step == 0 {
		return t, false
	}
	imm, scale := m.Offset, uint64(1)
	if m.Scale != 0 {
		imm, scale = imm+g.uniform[m.Base.Slot], m.Scale
	}
	t.shape, ok = g.shapeOf(m, addresses, step, scale)
	if !ok {
		return t, false
	}
	t.addresses, t.step, t.n, t.scale = unsafe.Add(addresses, g.act.lo*step), step, g.act.hi-g.act.lo, scale
	c := &g.w.cache[m.Cache]
	off := imm - c.base
	low, high := t.low+off, t.high+off
	t.mem, t.off = c.mem, off+uint64(m.Shift)
	return t, high < c.size && low <= high && (t.bits|imm)&m.Align == 0
}

// shapeOf returns the shape of the addresses of the active lanes, which are dense. It returns false if some may be
// negative indices.
func (g *group) shapeOf(m *ir.Memory, addresses unsafe.Pointer, step int, scale uint64) (s *shape, ok bool) {
	var kept *keptShape
	if m.Stable != 0 {
		kept = &g.kept[m.Stable-1]
		if s = &kept.shape; kept.valid && kept.threads == g.act.m {
			return s, !m.SignedIndex || s.line || s.high < scale<<31
		}
	} else {
		s = g.shape(int(m.Shape))
	}
	if kept != nil || !m.ShapeKnown || s.turn != g.turn {
		first, n := unsafe.Add(addresses, g.act.lo*step), g.act.hi-g.act.lo
		if a := g.recorded(m.Address); a == nil {
			s.look(first, step, n, scale)
		} else if !s.follow(a, m.Address.Kind == ir.Row64, m.SignedIndex, g.act.lo, n, scale) {
			g.fill(m.Address)
			s.look(first, step, n, scale)
		}
		s.turn = g.turn
		if kept != nil {
			kept.valid, kept.threads = true, g.act.m
		}
	}
	return s, !m.SignedIndex || s.line || s.high < scale<<31
}

// keptShape is the shape of a register's addresses, for some threads, that is valid until a block that writes the
// register is executed.
type keptShape struct {
	shape
	valid   bool
	threads mask
}

// renew drops the shapes of the addresses that a block writes.
func (g *group) renew(b *block) {
	for _, n := range b.Renews {
		g.kept[n-1].valid = false
	}
}

// follow is look for n affine addresses from a lane on. It returns false if they exceed the range of their width.
func (s *shape) follow(a *affine, wide, signed bool, lane, n int, scale uint64) bool {
	from := *a
	from.first += uint64(a.step * int64(lane))
	if !wide {
		from = from.narrow()
	}
	bias := uint64(0)
	if signed {
		bias = 1 << 31
	}
	first, last, ok := from.ends(arith.Pick(wide, 32, 64), bias, int64(n-1))
	if !ok {
		return false
	}
	first, last = (first-bias)*scale, (last-bias)*scale
	s.low, s.high, s.bits = first, last, first|uint64(a.step)*scale
	if a.step < 0 {
		s.low, s.high = last, first
	}
	s.differ, s.line, s.spelled, s.searched, s.summed = a.step != 0, true, false, false, false
	s.runs[0] = addressRun{first, a.step * int64(scale)}
	return true
}

// shape returns the record of the addresses of instruction n; later instructions of the same block may have the same
// addresses.
func (g *group) shape(n int) *shape {
	for n >= len(g.shapes) {
		g.shapes = append(g.shapes, new(shape))
	}
	return g.shapes[n]
}

// at returns the memory of a lane.
func (t *together) at(i int) unsafe.Pointer {
	if t.line { // the row of addresses may not be written
		return unsafe.Add(t.mem, t.runs[0].first+uint64(t.runs[0].step)*uint64(i)+t.off)
	}
	return unsafe.Add(t.mem, address(t.addresses, t.step, i)*t.scale+t.off)
}

// chunkMover loads or stores chunks of a row as long as their addresses have a regular pattern that it supports. It
// returns the number of chunks moved.
type chunkMover func(row, mem unsafe.Pointer, off uint64, runs *addressRun, chunks int) int

// move has a mover, if there is one, transfer as many lanes as it can from lane done on. The caller handles the lanes
// from next to end.
func (t *together) move(m chunkMover, row unsafe.Pointer, size, done int) (next, end int) {
	if m == nil || arith.VectorLevel == 0 {
		return done, t.n
	}
	t.spell()
	if chunks := (t.n - done) / chunk; chunks > 0 {
		done += chunk * m(unsafe.Add(row, done*size), t.mem, t.off, &t.runs[done/chunk], chunks)
	}
	end = min(done+chunk, t.n)
	for end < t.n && t.runs[end/chunk].step == irregular {
		end = min(end+chunk, t.n)
	}
	return done, end
}

// inOrder reports whether the lanes access contiguous elements of the given size.
func (t *together) inOrder(size uintptr) bool { return t.line && t.runs[0].step == int64(size) }

// moveLine is move for lanes on one line: the elements of the lanes from next on are apart bytes apart.
func (t *together) moveLine(m chunkMover, row unsafe.Pointer, size int) (next, apart int) {
	apart = int(t.runs[0].step)
	if m == nil || arith.VectorLevel == 0 || t.n < chunk {
		return 0, apart
	}
	t.spell()
	return chunk * m(row, t.mem, t.off, &t.runs[0], t.n/chunk), apart
}

// loadTogether is runLoad of lanes of T into a row of D.
func loadTogether[T element, D uint32 | uint64](t *together, m chunkMover, row unsafe.Pointer) {
	d, mem, off, scale := unsafe.Slice((*D)(row), t.n), t.mem, t.off, t.scale
	if size := unsafe.Sizeof(T(0)); size == unsafe.Sizeof(D(0)) && t.inOrder(size) {
		copy(d, unsafe.Slice((*D)(t.at(0)), t.n))
		return
	}
	if t.line {
		next, apart := t.moveLine(m, row, int(unsafe.Sizeof(d[0])))
		p := t.at(0)
		for i := next; i < len(d); i++ {
			d[i] = D(*(*T)(unsafe.Add(p, i*apart)))
		}
		return
	}
	for done := 0; done < t.n; {
		next, end := t.move(m, row, int(unsafe.Sizeof(d[0])), done)
		to := d[next:end]
		if t.step == 4 {
			addresses := unsafe.Slice((*uint32)(t.addresses), end)[next:][:len(to)]
			for i := range to {
				to[i] = D(*(*T)(unsafe.Add(mem, uint64(addresses[i])*scale+off)))
			}
		} else {
			addresses := unsafe.Slice((*uint64)(t.addresses), end)[next:][:len(to)]
			for i := range to {
				to[i] = D(*(*T)(unsafe.Add(mem, addresses[i]+off)))
			}
		}
		done = end
	}
}

// storeTogether is runStore of lanes of T from a row of S.
func storeTogether[T uint8 | uint16 | uint32 | uint64, S uint32 | uint64](t *together, m chunkMover, row unsafe.Pointer) {
	from, mem, off, scale := unsafe.Slice((*S)(row), t.n), t.mem, t.off, t.scale
	if size := unsafe.Sizeof(T(0)); size == unsafe.Sizeof(S(0)) && t.inOrder(size) {
		copy(unsafe.Slice((*S)(t.at(0)), t.n), from)
		return
	}
	if t.line {
		next, apart := t.moveLine(m, row, int(unsafe.Sizeof(from[0])))
		p := t.at(0)
		for i := next; i < len(from); i++ {
			*(*T)(unsafe.Add(p, i*apart)) = T(from[i])
		}
		return
	}
	for done := 0; done < t.n; {
		next, end := t.move(m, row, int(unsafe.Sizeof(from[0])), done)
		values := from[next:end]
		if t.step == 4 {
			addresses := unsafe.Slice((*uint32)(t.addresses), end)[next:][:len(values)]
			for i, v := range values {
				*(*T)(unsafe.Add(mem, uint64(addresses[i])*scale+off)) = T(v)
			}
		} else {
			addresses := unsafe.Slice((*uint64)(t.addresses), end)[next:][:len(values)]
			for i, v := range values {
				*(*T)(unsafe.Add(mem, addresses[i]+off)) = T(v)
			}
		}
		done = end
	}
}
