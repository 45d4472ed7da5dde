package exec

import (
	"math"
	"math/bits"
	"unsafe"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// The lanes of an affine register usually differ by a constant step: a loop counter, an index derived from the
// thread's, the address of the element at that index. While that is so, and all living threads compute it together, two
// numbers represent the register instead of a row. An instruction that needs the row has it written first; when only
// some threads write the register, or the written values are not affine, it is a row again. Such registers share slots
// only with each other, so that every instruction that uses one can take its form into account.

// affine is the content of a slot as a progression: lane l has the value first + l·step.
type affine struct {
	first uint64
	step  int64
	form  affineForm
}

type affineForm uint8

const (
	inRow     affineForm = iota // only the row counts
	inNumbers                   // only the numbers count
	inBoth
)

// narrow returns the sequence of the lower 32 bits.
func (a affine) narrow() affine {
	a.first, a.step = uint64(uint32(a.first)), int64(int32(a.step))
	return a
}

// rowOfLanes has the number of each lane.
var rowOfLanes = func() (r [ir.MaxLanes]uint32) {
	for i := range r {
		r[i] = uint32(i)
	}
	return r
}()

var rowOfLanes64 = func() (r [ir.MaxLanes]uint64) {
	for i := range r {
		r[i] = uint64(i)
	}
	return r
}()

// fill writes the row of an affine register, if only its numbers are up to date.
func (g *group) fill(p ir.Place) {
	if p.Affine == 0 {
		return
	}
	a := &g.affine[p.Affine]
	if a.form != inNumbers {
		return
	}
	a.form = inBoth
	n := (g.threads + arith.BlockLanes - 1) &^ (arith.BlockLanes - 1)
	d, first, step := g.at(p, 0), unsafe.Pointer(&a.first), unsafe.Pointer(&a.step)
	switch {
	case a.step == 0 && p.Kind == ir.Row32:
		g.common.move32(d, first, nil, nil, n, 1)
	case a.step == 0:
		g.common.move64(d, first, nil, nil, n, 1)
	case p.Kind == ir.Row32:
		g.common.mad32(d, unsafe.Pointer(&rowOfLanes), step, first, n, 6)
	case a.step == int64(int32(a.step)):
		g.common.madWide(d, unsafe.Pointer(&rowOfLanes), step, first, n, 6)
	default:
		g.common.mad64(d, unsafe.Pointer(&rowOfLanes64), step, first, n, 6)
	}
}

// addresses returns the row of the address operand of a memory instruction, for reach, or the address that all lanes
// have, with a step of 0.
func (g *group) addresses(m *ir.Memory) (p unsafe.Pointer, step int) {
	switch a := g.recorded(m.Address); {
	case m.Scale != 0 && (m.Address.Kind == ir.Single || a != nil && a.step == 0):
		g.everyAddress(m)
		return g.scratch, 0
	case a != nil && a.step == 0:
		return unsafe.Pointer(&a.first), 0
	}
	return g.row(m.Address)
}

// everyAddress returns the row of a memory instruction's addresses, for code that handles one lane after the other.
func (g *group) everyAddress(m *ir.Memory) (p unsafe.Pointer, step int) {
	g.fill(m.Address)
	if m.Scale == 0 {
		return g.row(m.Address)
	}
	mad := arith.Pick(m.SignedIndex, g.common.madWideU, g.common.madWide)
	scalars := 6
	if m.Address.Kind == ir.Single {
		scalars = 7
	}
	mad(g.scratch, g.at(m.Address, 0), unsafe.Pointer(&m.Scale), g.at(m.Base, 0), (g.threads+arith.BlockLanes-1)&^(arith.BlockLanes-1), scalars)
	return g.scratch, 8
}

// runFill writes the row of a register for instructions that don't support affine ones.
func runFill(g *group, in *instr) { g.fill(in.A) }

// affineFunc computes on progressions; last is the number of the last lane. It returns false if the result is not a
// progression, or finding out would cost too much.
type affineFunc func(a, b, c affine, last int64) (affine, bool)

// affineOp is the implementation of a row operation on progressions.
type affineOp struct {
	f      affineFunc    // nil: the operation has no form on progressions
	single arith.RowFunc // for single values
	rows   func(g *group, in *instr)
}

// runAffine computes an affine register.
func runAffine(g *group, in *instr) {
	op := in.affine
	d := &g.affine[in.Dst.Affine]
	if g.full {
		if r, ok := g.compute(in, op); ok {
			if in.Dst.Kind == ir.Row32 {
				r = r.narrow()
			}
			d.first, d.step, d.form = r.first, r.step, inNumbers
			return
		}
	} else {
		g.fill(in.Dst)
	}
	g.fill(in.A)
	g.fill(in.B)
	g.fill(in.C)
	g.fill(in.Mem.Address)
	op.rows(g, in)
	d.form = inRow
}

// runCounter is runAffine for the usual operations on counters: a copy, or a sum of numbers of 32 bits.
func runCounter(g *group, in *instr) {
	var first, step uint32
	for _, p := range [2]*ir.Place{&in.A, &in.B} {
		switch {
		case p.Kind == ir.Single:
			first += uint32(g.uniform[p.Slot])
		case p.Affine != 0:
			a := &g.affine[p.Affine]
			if a.form == inRow {
				runAffine(g, in)
				return
			}
			first += uint32(a.first)
			step += uint32(a.step)
		case p.Kind != ir.Nowhere:
			runAffine(g, in)
			return
		}
	}
	if !g.full {
		runAffine(g, in)
		return
	}
	g.affine[in.Dst.Affine] = affine{uint64(first), int64(int32(step)), inNumbers}
}

// compute returns the instruction's result as a progression, if it is one.
func (g *group) compute(in *instr, op *affineOp) (r affine, ok bool) {
	a, ok := g.progression(in.A)
	if !ok {
		return r, false
	}
	b, ok := g.progression(in.B)
	if !ok {
		return r, false
	}
	c, ok := g.progression(in.C)
	if !ok {
		return r, false
	}
	if op.f != nil {
		last := int64(g.threads - 1)
		if in.Dst.Kind == ir.Row32 {
			r, ok = op.f(a.narrow(), b.narrow(), c.narrow(), last)
		} else {
			r, ok = op.f(a, b, c, last)
		}
		if ok {
			return r, true
		}
	}
	if op.single == nil || a.step|b.step|c.step != 0 {
		return r, false
	}
	v := &g.values
	v[0], v[1], v[2], v[3] = 0, a.first, b.first, c.first
	op.single(unsafe.Pointer(&v[0]), unsafe.Pointer(&v[1]), unsafe.Pointer(&v[2]), unsafe.Pointer(&v[3]), 1, 0)
	return affine{first: v[0]}, true
}

// runSpecialAffine reads a special register into an affine one.
func runSpecialAffine(g *group, in *instr) {
	d, s := &g.affine[in.Dst.Affine], ptx.SpecialReg(in.Imm)
	switch {
	case g.full && s <= ptx.TidZ && g.tidAffine[s-ptx.TidX].form != inRow:
		*d = g.tidAffine[s-ptx.TidX]
		return
	case g.full && s.Uniform():
		*d = affine{first: blockSpecial(g, s), form: inNumbers}
		return
	}
	g.fill(in.Dst)
	runSpecial(g, in)
	d.form = inRow
}

// affineThreads determines which of the thread's indices are affine.
func (t *threadIDs) affineThreads(threads int) {
	for k := range t.tid {
		row := t.tid[k][:threads]
		a := affine{first: uint64(row[0]), form: inNumbers}
		if len(row) > 1 {
			a.step = int64(row[1]) - int64(row[0])
		}
		for l, v := range row {
			if int64(v) != int64(a.first)+a.step*int64(l) {
				a.form = inRow
			}
		}
		t.tidAffine[k] = a
	}
}

// affineFuncs are those of row operations, by name.
var affineFuncs = map[string]affineFunc{
	"movU32": affineMove, "movU64": affineMove, "cvtU32U64": affineMove,
	"addU32": affineAdd, "addU64": affineAdd, "subU32": affineSub, "subU64": affineSub, "negU32": affineNeg, "negU64": affineNeg,
	"mulU32": affineMul, "mulU64": affineMul, "madU32": affineMad, "madU64": affineMad, "shlU32": affineShl(32), "shlU64": affineShl(64),
	"andU32": affineAnd(32), "andU64": affineAnd(64), "orU32": affineOr(32), "orU64": affineOr(64),
	"cvtU64U32": affineExtend(0), "cvtS64S32": affineExtend(1 << 31), "wideU": affineWide(0), "wideS": affineWide(1 << 31),
	"madWideU": affineWide(0), "madWideS": affineWide(1 << 31),
}

func affineMove(a, _, _ affine, _ int64) (affine, bool) { return a, true }

func affineAdd(a, b, _ affine, _ int64) (affine, bool) {
	return affine{first: a.first + b.first, step: a.step + b.step}, true
}

func affineSub(a, b, _ affine, _ int64) (affine, bool) {
	return affine{first: a.first - b.first, step: a.step - b.step}, true
}

func affineNeg(a, _, _ affine, _ int64) (affine, bool) {
	return affine{first: -a.first, step: -a.step}, true
}

func affineMul(a, b, _ affine, _ int64) (affine, bool) {
	switch {
	case b.step == 0:
		return affine{first: a.first * b.first, step: a.step * int64(b.first)}, true
	case a.step == 0:
		return affine{first: a.first * b.first, step: b.step * int64(a.first)}, true
	}
	return affine{}, false
}

func affineMad(a, b, c affine, last int64) (affine, bool) {
	r, ok := affineMul(a, b, c, last)
	return affine{first: r.first + c.first, step: r.step + c.step}, ok
}

func affineShl(width uint64) affineFunc {
	return func(a, b, _ affine, _ int64) (affine, bool) {
		n := uint64(uint32(b.first))
		if n >= width {
			return affine{}, b.step == 0
		}
		return affine{first: a.first << n, step: a.step << n}, b.step == 0
	}
}

// ends returns the values of the first and the last lane, plus a bias, if the values of the lanes between lie between
// them: none overflows width bits. A bias of half the range puts them in the order of signed numbers.
func (a affine) ends(width int, bias uint64, last int64) (from, to uint64, ok bool) {
	if a.step > math.MaxInt32 || a.step < math.MinInt32 {
		return 0, 0, false
	}
	from = a.first + bias
	if width == 32 {
		from = uint64(uint32(from))
	}
	way := a.step * last
	to = from + uint64(way)
	if width == 32 {
		return from, to, to>>32 == 0
	}
	return from, to, (to >= from) == (way >= 0)
}

// varies has the bits that differ between lanes, and all below the highest of them.
func (a affine) varies(width int, last int64) (low uint64, ok bool) {
	from, to, ok := a.ends(width, 0, last)
	return 1<<bits.Len64(from^to) - 1, ok
}

// A single value keeps or clears all bits that differ between lanes.
func affineAnd(width int) affineFunc {
	return func(a, b, _ affine, last int64) (affine, bool) {
		if a.step == 0 {
			a, b = b, a
		}
		if b.step != 0 {
			return affine{}, false
		}
		low, ok := a.varies(width, last)
		switch {
		case !ok:
		case b.first&low == low:
			return affine{first: a.first & b.first, step: a.step}, true
		case b.first&low == 0:
			return affine{first: a.first & b.first}, true
		}
		return affine{}, false
	}
}

// A single value leaves or sets all bits that differ between lanes.
func affineOr(width int) affineFunc {
	return func(a, b, _ affine, last int64) (affine, bool) {
		if a.step == 0 {
			a, b = b, a
		}
		if b.step != 0 {
			return affine{}, false
		}
		low, ok := a.varies(width, last)
		switch {
		case !ok:
		case b.first&low == 0:
			return affine{first: a.first | b.first, step: a.step}, true
		case b.first&low == low:
			return affine{first: a.first | b.first}, true
		}
		return affine{}, false
	}
}

// affineExtend extends 32 bits to 64, signed with a bias of half their range.
func affineExtend(bias uint64) affineFunc {
	return func(a, _, _ affine, last int64) (affine, bool) {
		a = a.narrow()
		from, _, ok := a.ends(32, bias, last)
		return affine{first: from - bias, step: a.step}, ok
	}
}

// affineWide returns the product of 32-bit numbers in 64 bits, plus a third one.
func affineWide(bias uint64) affineFunc {
	extend := affineExtend(bias)
	return func(a, b, c affine, last int64) (affine, bool) {
		a, ok := extend(a, b, c, last)
		if !ok {
			return a, false
		}
		if b, ok = extend(b, b, c, last); !ok {
			return b, false
		}
		return affineMad(a, b, c, last)
	}
}

// order is a comparison of integers.
type order struct {
	width  int
	bias   uint64 // that makes it one of unsigned numbers
	decide func(a, b uint64) bool
	equal  bool // it is that, or its opposite
}

// orders are the comparisons among the row operations, by name.
var orders = func() map[string]*order {
	m := map[string]*order{}
	for name, f := range map[string]func(a, b uint64) bool{
		"eq": func(a, b uint64) bool { return a == b }, "ne": func(a, b uint64) bool { return a != b },
		"lt": func(a, b uint64) bool { return a < b }, "le": func(a, b uint64) bool { return a <= b },
	} {
		equal := name == "eq" || name == "ne"
		m["cmp"+name+"U32"], m["cmp"+name+"U64"] = &order{32, 0, f, equal}, &order{64, 0, f, equal}
		m["cmp"+name+"S32"], m["cmp"+name+"S64"] = &order{32, 1 << 31, f, equal}, &order{64, 1 << 63, f, equal}
	}
	return m
}()

// runCompareAffine executes setp of an affine register.
func runCompareAffine(g *group, in *instr) {
	a, okA := g.progression(in.A)
	b, okB := g.progression(in.B)
	if okA && okB {
		if yes, ok := in.order.all(a, b, int64(g.threads-1)); ok {
			g.outcome = mask{}
			if yes {
				g.outcome = mask{math.MaxUint64, math.MaxUint64, math.MaxUint64, math.MaxUint64}
			}
			setPredicates(g, in, &g.outcome)
			return
		}
	}
	g.fill(in.A)
	g.fill(in.B)
	runCompare(g, in)
}

// all reports whether a comparison has the same result for all lanes, and returns the result.
func (o *order) all(a, b affine, last int64) (yes, ok bool) {
	if o.width == 32 {
		a, b = a.narrow(), b.narrow()
	}
	a0, a1, okA := a.ends(o.width, o.bias, last)
	b0, b1, okB := b.ends(o.width, o.bias, last)
	if !okA || !okB {
		return false, false
	}
	if a.step == b.step {
		return o.decide(a0, b0), true
	}
	if o.equal {
		return o.decide(0, 1), max(a0, a1) < min(b0, b1) || max(b0, b1) < min(a0, a1)
	}
	yes = o.decide(a0, b0)
	return yes, yes == o.decide(a1, b1) // the difference only grows or only shrinks
}
