package exec

import (
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

func runGuarded(g *group, in *instr) {
	p := &g.preds[in.Guard]
	m := g.act.m.and(p)
	if in.GuardNot {
		m = g.act.m.without(p)
	}
	switch {
	case m.empty():
	case m == g.act.m:
		in.inner(g, in)
	default:
		old := g.act.m
		g.act.set(&m)
		in.inner(g, in)
		g.act.set(&old)
	}
}

func runPredicates(g *group, in *instr) {
	r := g.predicateOf(in.A, in.NotA)
	c := g.predicateOf(in.C, in.NotC)
	combine(&r, &c, in.Combine)
	g.preds[in.Dst.Slot].blend(&r, &g.act.m)
}

// commonRows are row kernels that other code uses.
type commonRows struct{ move32, move64, select32, select64, mad32, mad64, madWide, madWideU arith.RowFunc }

func newCommonRows() commonRows {
	return commonRows{arith.FastRow("movU32"), arith.FastRow("movU64"), arith.FastRow("selectU32"), arith.FastRow("selectU64"), arith.FastRow("madU32"), arith.FastRow("madU64"), arith.FastRow("madWideS"), arith.FastRow("madWideU")}
}

// runSingle executes an arithmetic instruction with the same result for all threads.
func runSingle(g *group, in *instr) {
	in.row(g.at(in.Dst, 0), g.at(in.A, 0), g.at(in.B, 0), g.at(in.C, 0), 1, 0)
}

// runRow executes an arithmetic instruction for all active lanes.
func runRow(g *group, in *instr) {
	lo, n := g.act.from, g.act.to-g.act.from
	a, b, c := g.at(in.A, lo), g.at(in.B, lo), g.at(in.C, lo)
	if g.act.whole {
		in.row(g.at(in.Dst, lo), a, b, c, n, in.Scalars)
		return
	}
	in.row(g.result, a, b, c, n, in.Scalars)
	g.merge(in.Dst)
}

// merge copies the active lanes of the result, a row that begins with the first block of active lanes.
func (g *group) merge(d ir.Place) {
	lo, n := g.act.from, g.act.to-g.act.from
	to, bits := g.at(d, lo), unsafe.Add(unsafe.Pointer(&g.act.m), lo/8)
	if d.Kind == ir.Row64 {
		g.common.select64(to, g.result, to, bits, n, 0)
	} else {
		g.common.select32(to, g.result, to, bits, n, 0)
	}
}

// take gives the active lanes of d the values that row has for them.
func (g *group) take(d ir.Place, row *[ir.MaxLanes]uint32) {
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
func exchangeLanes(g *group, lane int, value ir.Place, from []uint8) {
	to := unsafe.Slice((*uint32)(unsafe.Add(g.result, (lane-g.act.from)*4)), len(from))
	if value.Kind == ir.Single {
		for i := range to {
			to[i] = g.scalar(value, 0)
		}
		return
	}
	warp := (*[ir.WarpLanes]uint32)(g.at(value, lane&^(ir.WarpLanes-1)))
	for i, l := range from {
		to[i] = warp[l%ir.WarpLanes]
	}
}

// runCompare executes setp.
func runCompare(g *group, in *instr) {
	lo := g.act.lo &^ 63
	n := (g.act.hi+63)&^63 - lo
	r := &g.outcome
	in.row(unsafe.Pointer(&r[lo>>6]), g.at(in.A, lo), g.at(in.B, lo), nil, n, in.Scalars)
	setPredicates(g, in, r)
}

// setPredicates combines the outcome of a comparison with the third operand and writes p and q.
func setPredicates(g *group, in *instr, r *mask) {
	not := mask{^r[0], ^r[1], ^r[2], ^r[3]}
	if in.Combine != ir.BoolNone {
		c := g.predicateOf(in.C, in.NotC)
		combine(r, &c, in.Combine)
		combine(&not, &c, in.Combine)
	}
	if in.Dst.Kind == ir.Predicate {
		g.preds[in.Dst.Slot].blend(r, &g.act.m)
	}
	if in.Dst2.Kind == ir.Predicate {
		g.preds[in.Dst2.Slot].blend(&not, &g.act.m)
	}
}

// runSelect executes selp.
func runSelect(g *group, in *instr) {
	g.outcome = g.predicateOf(in.C, in.NotC)
	lo, n := g.act.from, g.act.to-g.act.from
	to := g.result
	if g.act.whole {
		to = g.at(in.Dst, lo)
	}
	in.row(to, g.at(in.A, lo), g.at(in.B, lo), unsafe.Add(unsafe.Pointer(&g.outcome), lo/8), n, in.Scalars)
	if !g.act.whole {
		g.merge(in.Dst)
	}
}
