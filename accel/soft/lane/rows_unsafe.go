package lane

import "unsafe"

//go:generate go run ./internal/genrows

// rowFunc computes n lanes of d from a, b and c. Operands in the set scalars,
// 1 for the first, 2, 4, are single values. Unless there is but one lane, n is a
// multiple of blockLanes, or of 64 if the result is a row of bits: rows have room for
// that. Pointers stay within the group's register file, because slots do.
type rowFunc func(d, a, b, c unsafe.Pointer, n int, scalars int)

// blockLanes is the number of 32-bit lanes of the widest vectors.
const blockLanes = 16

// vectors is the level of usable vector kernels: none, those of AVX2, or those of AVX-512 as well. Tests set it to
// compare them.
var vectors = vectorLevel()

// rowNamed returns the fastest kernel of an operation, or nil.
func rowNamed(name string) rowFunc {
	for level := vectors; level > 0; level-- {
		if f := vectorRows[level-1][name]; f != nil {
			return f
		}
	}
	return plainRows[name]
}

// commonRows are row kernels that other code uses.
type commonRows struct{ move32, move64, select32, select64, mad32, mad64, madWide, madWideU rowFunc }

func newCommonRows() commonRows {
	return commonRows{rowNamed("movU32"), rowNamed("movU64"), rowNamed("selectU32"), rowNamed("selectU64"), rowNamed("madU32"), rowNamed("madU64"), rowNamed("madWideS"), rowNamed("madWideU")}
}

// stepOf returns the distance between the lanes of an operand, in bytes.
func stepOf(scalars, operand, size int) int {
	if scalars>>operand&1 != 0 {
		return 0
	}
	return size
}

// bitAt returns bit i of a row of bits.
func bitAt(p unsafe.Pointer, i int) bool {
	return *(*uint64)(unsafe.Add(p, i>>6*8))>>(i&63)&1 != 0
}

// partly runs a vector kernel of one f32 operand that stops at lanes that it doesn't support, and returns how many are
// left. The plain kernel computes these.
func partly(vector func(d, a, b, c unsafe.Pointer, n int, scalars int) int, plain rowFunc, d, a unsafe.Pointer, n int, scalars int) {
	for n > 0 {
		left := vector(d, a, nil, nil, n, scalars)
		d = unsafe.Add(d, (n-left)*4)
		a = unsafe.Add(a, (n-left)*stepOf(scalars, 0, 4))
		n = min(left, blockLanes)
		plain(d, a, nil, nil, n, scalars)
		d = unsafe.Add(d, n*4)
		a = unsafe.Add(a, n*stepOf(scalars, 0, 4))
		n = left - n
	}
}

// runSingle executes an arithmetic instruction with the same result for all threads.
func runSingle(g *group, in *instr) {
	in.row(g.at(in.d, 0), g.at(in.a, 0), g.at(in.b, 0), g.at(in.c, 0), 1, 0)
}

// runRow executes an arithmetic instruction for all active lanes.
func runRow(g *group, in *instr) {
	lo, n := g.act.from, g.act.to-g.act.from
	a, b, c := g.at(in.a, lo), g.at(in.b, lo), g.at(in.c, lo)
	if g.act.whole {
		in.row(g.at(in.d, lo), a, b, c, n, in.scalars)
		return
	}
	in.row(g.result, a, b, c, n, in.scalars)
	g.merge(in.d)
}

// merge copies the active lanes of the result, a row that begins with the first block of active lanes.
func (g *group) merge(d place) {
	lo, n := g.act.from, g.act.to-g.act.from
	to, bits := g.at(d, lo), unsafe.Add(unsafe.Pointer(&g.act.m), lo/8)
	if d.kind == row64 {
		g.common.select64(to, g.result, to, bits, n, 0)
	} else {
		g.common.select32(to, g.result, to, bits, n, 0)
	}
}

// take gives the active lanes of d the values that row has for them.
func (g *group) take(d place, row *[maxLanes]uint32) {
	lo, n := g.act.from, g.act.to-g.act.from
	to, from := g.at(d, lo), unsafe.Pointer(&row[lo])
	if g.act.whole {
		g.common.move32(to, from, nil, nil, n, 0)
		return
	}
	g.common.select32(to, from, to, unsafe.Add(unsafe.Pointer(&g.act.m), lo/8), n, 0)
}

// exchangeLanes gives a part of a warp, from a lane on, the values of other lanes of that
// warp, as part of the result.
func exchangeLanes(g *group, lane int, value place, from []uint8) {
	to := unsafe.Slice((*uint32)(unsafe.Add(g.result, (lane-g.act.from)*4)), len(from))
	if value.kind == single {
		for i := range to {
			to[i] = g.scalar(value, 0)
		}
		return
	}
	warp := (*[warpLanes]uint32)(g.at(value, lane&^(warpLanes-1)))
	for i, l := range from {
		to[i] = warp[l%warpLanes]
	}
}

// runCompare executes setp.
func runCompare(g *group, in *instr) {
	lo := g.act.lo &^ 63
	n := (g.act.hi+63)&^63 - lo
	r := &g.outcome
	in.row(unsafe.Pointer(&r[lo>>6]), g.at(in.a, lo), g.at(in.b, lo), nil, n, in.scalars)
	setPredicates(g, in, r)
}

// setPredicates combines the outcome of a comparison with the third operand and writes p and q.
func setPredicates(g *group, in *instr, r *mask) {
	not := mask{^r[0], ^r[1], ^r[2], ^r[3]}
	if in.boolOp != boolNone {
		c := g.predicateOf(in.c, in.notC)
		combine(r, &c, in.boolOp)
		combine(&not, &c, in.boolOp)
	}
	if in.d.kind == predicate {
		g.preds[in.d.slot].blend(r, &g.act.m)
	}
	if in.d2.kind == predicate {
		g.preds[in.d2.slot].blend(&not, &g.act.m)
	}
}

// runSelect executes selp.
func runSelect(g *group, in *instr) {
	g.outcome = g.predicateOf(in.c, in.notC)
	lo, n := g.act.from, g.act.to-g.act.from
	to := g.result
	if g.act.whole {
		to = g.at(in.d, lo)
	}
	in.row(to, g.at(in.a, lo), g.at(in.b, lo), unsafe.Add(unsafe.Pointer(&g.outcome), lo/8), n, in.scalars)
	if !g.act.whole {
		g.merge(in.d)
	}
}

// laneFunc computes one lane. Operands and result are zero-extended bits.
type laneFunc func(a, b, c uint64) uint64

// rowOf returns a row kernel of a function of single lanes, for operands of the given sizes.
func rowOf(f laneFunc, wideD, wideA, wideB, wideC bool) rowFunc {
	load := func(p unsafe.Pointer, wide bool, step, i int) uint64 {
		switch {
		case p == nil:
			return 0
		case wide:
			return get64(p, step, i)
		}
		return uint64(get32(p, step, i))
	}
	size := func(wide bool) int { return pick(wide, 4, 8) }
	return func(d, a, b, c unsafe.Pointer, n int, scalars int) {
		as, bs, cs := stepOf(scalars, 0, size(wideA)), stepOf(scalars, 1, size(wideB)), stepOf(scalars, 2, size(wideC))
		for i := range n {
			r := f(load(a, wideA, as, i), load(b, wideB, bs, i), load(c, wideC, cs, i))
			if wideD {
				put64(d, i, r)
			} else {
				put32(d, i, uint32(r))
			}
		}
	}
}
