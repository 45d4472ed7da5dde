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

// ClassOf is the file that holds registers of type t.
func ClassOf(t Type) Class {
	switch {
	case t == Pred:
		return PredFile
	case t.Size() == 8:
		return File64
	}
	return File32
}

// Slots says where each register of a body lives.
type Slots struct {
	// Slot is the register's number within its file, or -1 if it is never used.
	Slot []int32
	// Uniform registers hold one value for the whole block and are numbered
	// apart, all classes together.
	Uniform []bool
	// Affine registers, which may be at the same distance from lane to lane, share
	// slots with each other only: the last ones of their file, from FirstAffine on.
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

// Allocate finds uniform registers and gives all others slots, shared by those
// that are never alive at the same time.
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
	l := &liveness{body: b, blocks: blocks, uniform: s.Uniform}
	in := l.intervals()
	l.assign(s)
	s.Across = l.across(in)
	return s
}

// liveness computes for each register the stretch of the text in which it is alive.
type liveness struct {
	body       *Body
	blocks     []Block
	uniform    []bool
	first, end []int32 // by register
	wide       []int32 // registers alive across blocks
	index      []int32 // of a register in wide, or None
}

// Bounds on the sets, and on the words looked at to solve them; beyond, registers
// alive across blocks share nothing.
const (
	maxLiveBits  = 1 << 26
	maxLiveWords = 1 << 28
)

func (l *liveness) extend(r int32, at int) {
	l.first[r] = min(l.first[r], int32(at))
	l.end[r] = max(l.end[r], int32(at))
}

// intervals finds the stretches. It returns which wide registers are alive at the
// start of each block, or nil if that takes too long to say.
func (l *liveness) intervals() (in []uint64) {
	n := len(l.body.Regs)
	l.first, l.end, l.index = make([]int32, n), make([]int32, n), make([]int32, n)
	for r := range n {
		l.first[r], l.end[r], l.index[r] = 1<<30, -1, None
	}
	l.local()
	words := (len(l.wide) + 63) / 64
	if len(l.wide)*len(l.blocks) <= maxLiveBits {
		in = l.solve(words)
	}
	if in == nil {
		for _, r := range l.wide {
			l.first[r], l.end[r] = 0, int32(len(l.body.Insts))
		}
		return nil
	}
	for k := range l.blocks {
		blk := &l.blocks[k]
		l.spread(in[k*words:(k+1)*words], blk.First)
		for _, s := range blk.Succs {
			l.spread(in[s*words:(s+1)*words], blk.End-1)
		}
	}
	return in
}

// maxAcross bounds the registers that are alive across calls, all calls together.
const maxAcross = 1 << 21

// across lists the registers that are alive across each call: those that are
// alive where it returns to.
func (l *liveness) across(in []uint64) map[int][]int32 {
	all := map[int][]int32{}
	words, total := (len(l.wide)+63)/64, 0
	for k := range l.blocks {
		if !l.body.Insts[l.blocks[k].End-1].Transfers() {
			continue
		}
		list := l.wide
		if in != nil {
			list = nil
			for w, m := range in[(k+1)*words : (k+2)*words] {
				for ; m != 0; m &= m - 1 {
					list = append(list, l.wide[w*64+bits.TrailingZeros64(m)])
				}
			}
		}
		if total += len(list); total > maxAcross {
			return nil
		}
		all[k] = list
	}
	return all
}

// spread extends the registers of a set to a place.
func (l *liveness) spread(set []uint64, at int) {
	for w, m := range set {
		for ; m != 0; m &= m - 1 {
			l.extend(l.wide[w*64+bits.TrailingZeros64(m)], at)
		}
	}
}

// local finds the extent within blocks, and which registers are read in a
// block before the block has surely written them.
func (l *liveness) local() {
	written := make([]int32, len(l.body.Regs)) // 1 + the last block that surely wrote it
	for k := range l.blocks {
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
					l.index[r] = int32(len(l.wide))
					l.wide = append(l.wide, r)
				}
			})
		}
	}
}

// solve computes which wide registers are alive at the start of each block. It
// returns nil if that takes too long.
func (l *liveness) solve(words int) (in []uint64) {
	n := len(l.blocks)
	in = make([]uint64, n*words)
	kill := make([]uint64, n*words)
	preds := make([][]int, n)
	for k := range l.blocks {
		gen, kl := in[k*words:(k+1)*words], kill[k*words:(k+1)*words]
		for _, s := range l.blocks[k].Succs {
			preds[s] = append(preds[s], k)
		}
		for i := l.blocks[k].First; i < l.blocks[k].End; i++ {
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
	for looked := 0; len(work) > 0; {
		if looked += 1 + words*len(l.blocks[work[len(work)-1]].Succs); looked > maxLiveWords {
			return nil
		}
		k := work[len(work)-1]
		work = work[:len(work)-1]
		queued[k] = false
		mine := in[k*words : (k+1)*words]
		changed := false
		for _, s := range l.blocks[k].Succs {
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
	return in
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

// expiry is a heap of slots in use, by when they become free.
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
