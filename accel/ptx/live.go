package ptx

import (
	"math/bits"
	"slices"
)

// Class is a register file.
type Class uint8

// Register files: predicates, values up to 32 bits, values of 64 bits.
const (
	PredFile Class = iota
	File32
	File64
	numFiles
)

// ClassOf returns the file that holds registers of type t.
func ClassOf(t Type) Class {
	switch {
	case t == Pred:
		return PredFile
	case t.Size() == 8:
		return File64
	}
	return File32
}

// Slots contains the location of each register of a body.
type Slots struct {
	// Slot is the register's number within its file, or -1 if it is never used.
	Slot []int32
	// Uniform registers hold one value for the whole block and are numbered
	// apart, all classes together.
	Uniform []bool
	// Affine registers, which may differ by a constant from lane to lane, share slots with each other only: the last
	// ones of their file, from FirstAffine on.
	Affine      []bool
	FirstAffine [numFiles]int
	Count       [numFiles]int
	Uniforms    int
	// Across has the registers that are alive across a call, by the block that
	// the call ends. It is nil if there are too many.
	Across map[int][]int32
}

// Visit calls reg for each register of an instruction; written ones last.
func (in *Inst) Visit(reg func(r int32, written bool)) {
	if in.Guard != None {
		reg(in.Guard, false)
	}
	for pass := range 2 {
		for i := range in.Args {
			letter := in.Form[i]
			written := letter >= 'A' && letter <= 'Z' && letter != 'M' && letter != 'O' && letter != 'T' && letter != 'L' && letter != 'F' ||
				letter == 'x' && in.Type != NoType
			visitOperand(&in.Args[i], written, letter == 'F', pass == 1, reg)
		}
	}
}

func visitOperand(o *Operand, written, call, wanted bool, reg func(int32, bool)) {
	if o.Reg != None && written == wanted {
		reg(o.Reg, written)
	}
	if o.Pair != None && written == wanted {
		reg(o.Pair, written)
	}
	if o.Index != nil && !wanted {
		reg(o.Index.Reg, false)
	}
	for i := range o.Elems {
		visitOperand(&o.Elems[i], written || call && i < o.Returns, false, wanted, reg)
	}
}

// Allocate determines the uniform registers and gives all others slots; registers that are never alive at the same time
// share slots.
func (b *Body) Allocate(blocks []Block) *Slots {
	s := &Slots{Slot: make([]int32, len(b.Regs)), Uniform: b.uniform()}
	b.index(blocks, s.Uniform)
	for r := range s.Slot {
		s.Slot[r] = None
		if s.Uniform[r] {
			s.Slot[r] = int32(s.Uniforms)
			s.Uniforms++
		}
	}
	s.Affine = b.affine(s.Uniform)
	l := &liveness{body: b, blocks: blocks, uniform: s.Uniform, bits: maxLiveBits, words: maxLiveWords}
	l.intervals()
	l.assign(s)
	s.Across = l.across()
	return s
}

// liveness computes for each register the stretch of the text in which it is alive.
type liveness struct {
	body       *Body
	blocks     []Block
	uniform    []bool
	first, end []int32  // by register
	index      []int32  // of a register in its region's wide, or None
	regions    []region // by unit
	bits       int      // that sets may still take
	words      int      // budget of words that may still be read
}

// region is a unit's part of the flow. Units share no registers, so each is solved separately: sets of all registers at
// all blocks would grow with the square of the number of functions.
type region struct {
	from, to int      // blocks
	wide     []int32  // registers alive across blocks
	in       []uint64 // which of wide are alive at the start of each block; nil if that takes too long to compute
}

// Bounds on the sets, and on the words read to solve them; beyond, registers alive across blocks share no slots within
// their unit.
const (
	maxLiveBits  = 1 << 26
	maxLiveWords = 1 << 28
)

// rowWords returns the length of a set.
func (r *region) rowWords() int { return (len(r.wide) + 63) / 64 }

// row returns the set of a block, by its number in the body.
func (r *region) row(block int) []uint64 {
	n := r.rowWords()
	return r.in[(block-r.from)*n : (block-r.from+1)*n]
}

// within reports whether a block belongs to the region.
func (r *region) within(block int) bool { return r.from <= block && block < r.to }

func (l *liveness) extend(r int32, at int) {
	l.first[r] = min(l.first[r], int32(at))
	l.end[r] = max(l.end[r], int32(at))
}

// intervals computes the live intervals, and the registers alive at the start of each block.
func (l *liveness) intervals() {
	n := len(l.body.Regs)
	l.first, l.end, l.index = make([]int32, n), make([]int32, n), make([]int32, n)
	for r := range n {
		l.first[r], l.end[r], l.index[r] = 1<<30, -1, None
	}
	l.divide()
	l.local()
	for i := range l.regions {
		r := &l.regions[i]
		l.solve(r)
		if r.in == nil {
			for _, w := range r.wide {
				l.first[w], l.end[w] = int32(l.blocks[r.from].First), int32(l.blocks[r.to-1].End)
			}
			continue
		}
		for k := r.from; k < r.to; k++ {
			blk := &l.blocks[k]
			l.spread(r, k, blk.First)
			for _, s := range blk.Succs {
				if r.within(s) {
					l.spread(r, s, blk.End-1)
				}
			}
		}
	}
}

// divide makes a region of each unit.
func (l *liveness) divide() {
	units := l.body.Units
	for k := range l.blocks {
		if i := len(l.regions); i == 0 || i < len(units) && l.blocks[k].First == units[i].First {
			l.regions = append(l.regions, region{from: k})
		}
		l.regions[len(l.regions)-1].to = k + 1
	}
}

// maxAcross bounds the registers that are alive across calls, all calls together.
const maxAcross = 1 << 21

// across lists the registers that are alive across each call: those that are
// alive where it returns to.
func (l *liveness) across() map[int][]int32 {
	all := map[int][]int32{}
	total := 0
	for i := range l.regions {
		r := &l.regions[i]
		for k := r.from; k < r.to; k++ {
			if !l.body.Insts[l.blocks[k].End-1].Transfers() {
				continue
			}
			list := r.wide
			if r.in != nil && r.within(k+1) {
				list = nil
				for w, m := range r.row(k + 1) {
					for ; m != 0; m &= m - 1 {
						list = append(list, r.wide[w*64+bits.TrailingZeros64(m)])
					}
				}
			}
			if total += len(list); total > maxAcross {
				return nil
			}
			all[k] = list
		}
	}
	return all
}

// spread extends the live intervals of a block's set to a position.
func (l *liveness) spread(r *region, block, at int) {
	for w, m := range r.row(block) {
		for ; m != 0; m &= m - 1 {
			l.extend(r.wide[w*64+bits.TrailingZeros64(m)], at)
		}
	}
}

// local computes the intervals within blocks, and the registers that a block reads before it has certainly written
// them.
func (l *liveness) local() {
	written := make([]int32, len(l.body.Regs)) // 1 + the last block that certainly wrote it
	for i := range l.regions {
		g := &l.regions[i]
		for k := g.from; k < g.to; k++ {
			for i := l.blocks[k].First; i < l.blocks[k].End; i++ {
				in := &l.body.Insts[i]
				in.Visit(func(r int32, w bool) {
					if l.uniform[r] {
						return
					}
					l.extend(r, i)
					switch {
					case w && in.Guard == None:
						written[r] = int32(k) + 1
					case written[r] != int32(k)+1 && l.index[r] == None:
						// Read first; or written under a guard, where the old value may stay.
						l.index[r] = int32(len(g.wide))
						g.wide = append(g.wide, r)
					}
				})
			}
		}
	}
}

// solve computes which wide registers are alive at the start of each block of a region, unless that takes too long.
func (l *liveness) solve(g *region) {
	n, words := g.to-g.from, g.rowWords()
	if l.bits -= n * len(g.wide); l.bits < 0 {
		l.bits += n * len(g.wide)
		return
	}
	in := make([]uint64, n*words)
	kill := make([]uint64, n*words)
	preds := make([][]int, n)
	succs := func(k int) []int { return l.blocks[g.from+k].Succs }
	for k := range n {
		gen, kl := in[k*words:(k+1)*words], kill[k*words:(k+1)*words]
		for _, s := range succs(k) {
			if g.within(s) {
				preds[s-g.from] = append(preds[s-g.from], k)
			}
		}
		blk := &l.blocks[g.from+k]
		for i := blk.First; i < blk.End; i++ {
			inst := &l.body.Insts[i]
			inst.Visit(func(r int32, w bool) {
				x := l.index[r]
				if x == None {
					return
				}
				bit := uint64(1) << (x & 63)
				switch {
				case w && inst.Guard == None:
					kl[x>>6] |= bit
				case kl[x>>6]&bit == 0:
					gen[x>>6] |= bit
				}
			})
		}
	}
	work := make([]int, n)
	queued := make([]bool, n)
	for k := range work {
		work[k], queued[k] = k, true
	}
	for len(work) > 0 {
		k := work[len(work)-1]
		if l.words -= 1 + words*len(succs(k)); l.words < 0 {
			return
		}
		work = work[:len(work)-1]
		queued[k] = false
		mine := in[k*words : (k+1)*words]
		changed := false
		for _, s := range succs(k) {
			if !g.within(s) {
				continue
			}
			s -= g.from
			for w, m := range in[s*words : (s+1)*words] {
				if add := m &^ kill[k*words+w] &^ mine[w]; add != 0 {
					mine[w] |= add
					changed = true
				}
			}
		}
		if !changed {
			continue
		}
		for _, p := range preds[k] {
			if !queued[p] {
				queued[p] = true
				work = append(work, p)
			}
		}
	}
	g.in = in
}

// assign gives slots to stretches in the order of their beginnings.
func (l *liveness) assign(s *Slots) {
	var order []int32
	for r := range l.first {
		if l.end[r] >= 0 && !l.uniform[r] {
			order = append(order, int32(r))
		}
	}
	slices.SortFunc(order, func(a, b int32) int {
		if d := l.first[a] - l.first[b]; d != 0 {
			return int(d)
		}
		return int(a - b)
	})
	var count [2 * numFiles]int // first all files without affine registers, then those with them
	var free [2 * numFiles][]int32
	var active [2 * numFiles]expiry
	for _, r := range order {
		c := ClassOf(l.body.Regs[r])
		if s.Affine[r] {
			c += numFiles
		}
		a := &active[c]
		// A slot is free again after the last use, so that no instruction
		// writes a row that it still reads.
		for len(*a) > 0 && (*a)[0].end < l.first[r] {
			free[c] = append(free[c], a.pop())
		}
		slot := int32(count[c])
		if n := len(free[c]); n > 0 {
			slot = free[c][n-1]
			free[c] = free[c][:n-1]
		} else {
			count[c]++
		}
		s.Slot[r] = slot
		a.push(busy{l.end[r], slot})
	}
	for c := range numFiles {
		s.FirstAffine[c], s.Count[c] = count[c], count[c]+count[c+numFiles]
	}
	for _, r := range order {
		if s.Affine[r] {
			s.Slot[r] += int32(s.FirstAffine[ClassOf(l.body.Regs[r])])
		}
	}
}

type busy struct{ end, slot int32 }

// expiry is a heap of slots in use, ordered by the time at which they become free.
type expiry []busy

func (h *expiry) push(b busy) {
	*h = append(*h, b)
	a := *h
	for i := len(a) - 1; i > 0; {
		up := (i - 1) / 2
		if a[up].end <= a[i].end {
			break
		}
		a[up], a[i] = a[i], a[up]
		i = up
	}
}

func (h *expiry) pop() int32 {
	a := *h
	slot := a[0].slot
	last := len(a) - 1
	a[0] = a[last]
	a = a[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			break
		}
		if c+1 < last && a[c+1].end < a[c].end {
			c++
		}
		if a[i].end <= a[c].end {
			break
		}
		a[i], a[c] = a[c], a[i]
		i = c
	}
	*h = a
	return slot
}
