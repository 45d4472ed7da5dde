package exec

import (
	"math"
	"math/bits"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// runShfl executes shfl. All lanes read before any writes.
func runShfl(g *group, in *instr) {
	op := in.Detail.(*ir.Warp)
	if op.Member.Kind != ir.Nowhere && g.awaits(op.Member) {
		return
	}
	if in.B.Kind == ir.Single && in.C.Kind == ir.Single {
		runShflAlike(g, in)
		return
	}
	ap, as := g.row(in.A)
	bp, bs := g.row(in.B)
	if op.Mode == ptx.Idx && in.C.Kind == ir.Single && in.Dst2.Kind != ir.Predicate && g.scalar(in.C, 0)&0x1f1f == ir.WarpLanes-1 {
		// Any lane of the warp: the usual case. Lanes outside the active ones may get any value.
		for l := g.act.from; l < g.act.to; l++ {
			arith.Put32(g.result, l-g.act.from, arith.Get32(ap, as, l&^(ir.WarpLanes-1)|int(arith.Get32(bp, bs, l)%ir.WarpLanes)))
		}
		g.merge(in.Dst)
		return
	}
	cp, cs := g.row(in.C)
	var ok mask
	for _, lane := range g.act.lanes() {
		l := int(lane)
		own := l % ir.WarpLanes
		j, within := shuffleSource(op, own, arith.Get32(bp, bs, l), arith.Get32(cp, cs, l))
		if within {
			ok[l>>6] |= 1 << (l & 63)
		}
		arith.Put32(g.result, l-g.act.from, arith.Get32(ap, as, l-own+j))
	}
	g.merge(in.Dst)
	if in.Dst2.Kind == ir.Predicate {
		g.preds[in.Dst2.Slot].blend(&ok, &g.act.m)
	}
}

// runShflAlike executes a shfl by which all warps exchange values in the same way.
func runShflAlike(g *group, in *instr) {
	op := in.Detail.(*ir.Warp)
	b, c := g.scalar(in.B, 0), g.scalar(in.C, 0)
	var from [ir.WarpLanes]uint8
	var within uint32
	for own := range from {
		j, ok := shuffleSource(op, own, b, c)
		if from[own] = uint8(j); ok {
			within |= 1 << own
		}
	}
	for l := g.act.from; l < g.act.to; {
		part := from[l%ir.WarpLanes:]
		part = part[:min(len(part), g.act.to-l)]
		exchangeLanes(g, l, in.A, part)
		l += len(part)
	}
	g.merge(in.Dst)
	if in.Dst2.Kind == ir.Predicate {
		var ok mask
		for i := range ok {
			ok[i] = uint64(within)<<32 | uint64(within)
		}
		g.preds[in.Dst2.Slot].blend(&ok, &g.act.m)
	}
}

// shuffleSource returns the lane of its warp that a lane reads from by shfl, and whether that
// is within the segment; if not, it is the lane itself.
func shuffleSource(op *ir.Warp, own int, b, c uint32) (lane int, within bool) {
	b &= 31
	segment, clamp := int(c>>8&31), int(c&31)
	top, low := own&segment|clamp&^segment, own&segment
	switch op.Mode {
	case ptx.Up:
		lane = own - int(b)
		within = lane >= top
	case ptx.Down:
		lane = own + int(b)
		within = lane <= top
	case ptx.BFly:
		lane = own ^ int(b)
		within = lane <= top
	default:
		lane = low | int(b)&^segment
		within = lane <= top
	}
	if !within {
		lane = own
	}
	return lane, within
}

// eachSet calls f for each set of threads of a warp that executes the instruction as one:
// those with the same mask, of which members take part.
func eachSet(g *group, op *ir.Warp, f func(warp int, set, members uint32)) {
	for w := range ir.MaxLanes / ir.WarpLanes {
		for rest := g.act.m.warp(w); rest != 0; {
			set, m := rest, rest
			if op.Member.Kind != ir.Nowhere {
				set, m = g.alike(op.Member, w, rest)
				m &= set
			}
			f(w, set, m)
			rest &^= set
		}
	}
}

func runVote(g *group, in *instr) {
	op := in.Detail.(*ir.Warp)
	if op.Member.Kind != ir.Nowhere && g.awaits(op.Member) {
		return
	}
	p := g.predicateOf(in.C, in.NotC)
	var out mask
	d, _ := g.row(in.Dst)
	eachSet(g, op, func(w int, part, m uint32) {
		yes := p.warp(w) & m
		var r bool
		switch op.Mode {
		case ptx.All:
			r = yes == m
		case ptx.Any:
			r = yes != 0
		case ptx.Uni:
			r = yes == m || yes == 0
		default:
			for rest := part; rest != 0; rest &= rest - 1 {
				arith.Put32(d, w*ir.WarpLanes+bits.TrailingZeros32(rest), yes)
			}
		}
		if r {
			out.setWarp(w, out.warp(w)|part)
		}
	})
	if in.Dst.Kind == ir.Predicate {
		g.preds[in.Dst.Slot].blend(&out, &g.act.m)
	}
}

func runMatch(g *group, in *instr) {
	op := in.Detail.(*ir.Warp)
	if g.awaits(op.Member) {
		return
	}
	ap, as := g.row(in.A)
	d, _ := g.row(in.Dst)
	value := func(l int) uint64 {
		if op.Wide {
			return arith.Get64(ap, as, l)
		}
		return uint64(arith.Get32(ap, as, l))
	}
	var all mask
	eachSet(g, op, func(w int, part, m uint32) {
		var old [ir.WarpLanes]uint64 // d may be a
		for x := part; x != 0; x &= x - 1 {
			o := bits.TrailingZeros32(x)
			old[o] = value(w*ir.WarpLanes + o)
		}
		for rest := part; rest != 0; rest &= rest - 1 {
			l := w*ir.WarpLanes + bits.TrailingZeros32(rest)
			var equal uint32
			for x := m; x != 0; x &= x - 1 {
				if o := bits.TrailingZeros32(x); old[o] == old[l%ir.WarpLanes] {
					equal |= 1 << o
				}
			}
			if op.Mode == ptx.All && equal != m {
				equal = 0
			}
			if equal == m {
				all[l>>6] |= 1 << (l & 63)
			}
			arith.Put32(d, l, equal)
		}
	})
	if in.Dst2.Kind == ir.Predicate {
		g.preds[in.Dst2.Slot].blend(&all, &g.act.m)
	}
}

func runElect(g *group, in *instr) {
	op := in.Detail.(*ir.Warp)
	if g.awaits(op.Member) {
		return
	}
	d, _ := g.row(in.Dst)
	var leads mask
	eachSet(g, op, func(w int, part, m uint32) {
		leads.setWarp(w, leads.warp(w)|m&-m)
		for leader := uint32(bits.TrailingZeros32(m)); part != 0; part &= part - 1 {
			arith.Put32(d, w*ir.WarpLanes+bits.TrailingZeros32(part), leader)
		}
	})
	if in.Dst2.Kind == ir.Predicate {
		g.preds[in.Dst2.Slot].blend(&leads, &g.act.m)
	}
}

func runRedux(g *group, in *instr) {
	op := in.Detail.(*ir.Warp)
	if g.awaits(op.Member) {
		return
	}
	ap, as := g.row(in.A)
	d, _ := g.row(in.Dst)
	eachSet(g, op, func(w int, part, m uint32) {
		var r uint32
		started := false
		for ; m != 0; m &= m - 1 {
			v := arith.Get32(ap, as, w*ir.WarpLanes+bits.TrailingZeros32(m))
			if op.Abs {
				v &^= 1 << 31
			}
			if op.CombineFloats != nil {
				v = arith.CanonBits32(v)
			}
			if !started {
				r, started = v, true
				continue
			}
			r = reducePair(op, r, v)
		}
		for ; part != 0; part &= part - 1 {
			arith.Put32(d, w*ir.WarpLanes+bits.TrailingZeros32(part), r)
		}
	})
}

func reducePair(op *ir.Warp, r, v uint32) uint32 {
	switch {
	case op.CombineFloats != nil:
		return math.Float32bits(op.CombineFloats(math.Float32frombits(r), math.Float32frombits(v), 0))
	}
	switch op.Mode {
	case ptx.Min, ptx.Max:
		if arith.Less(uint64(v), uint64(r), op.Signed, false) == (op.Mode == ptx.Min) {
			return v
		}
		return r
	case ptx.And:
		return r & v
	case ptx.Or:
		return r | v
	case ptx.Xor:
		return r ^ v
	}
	return r + v
}
