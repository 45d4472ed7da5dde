package lane

import (
	"math"
	"math/bits"

	"pegasus/accel/ptx"
)

func lowerShfl(l *lowerer, in *ptx.Inst) {
	o := &in.Args[0]
	d, q := l.dst(o, false), place{}
	if o.Pair != ptx.None {
		q = l.reg(o.Pair)
	}
	op := &warpOp{mode: in.Mods.First(ptx.Idx, ptx.Up, ptx.Down, ptx.BFly)}
	if len(in.Args) > 4 {
		op.member = l.src(&in.Args[4], ptx.U32)
	}
	l.emit(irInstr{op: irShuffle, d: d, d2: q, a: l.src(&in.Args[1], in.Type), b: l.src(&in.Args[2], ptx.U32), c: l.src(&in.Args[3], ptx.U32), detail: op})
}

// runShfl executes shfl. All lanes read before any writes.
func runShfl(g *group, in *instr) {
	op := in.detail.(*warpOp)
	if op.member.kind != nowhere && g.awaits(op.member) {
		return
	}
	if in.b.kind == single && in.c.kind == single {
		runShflAlike(g, in)
		return
	}
	ap, as := g.row(in.a)
	bp, bs := g.row(in.b)
	if op.mode == ptx.Idx && in.c.kind == single && in.d2.kind != predicate && g.scalar(in.c, 0)&0x1f1f == warpLanes-1 {
		// Any lane of the warp: the usual case. Lanes outside the active ones may get any value.
		for l := g.act.from; l < g.act.to; l++ {
			put32(g.result, l-g.act.from, get32(ap, as, l&^(warpLanes-1)|int(get32(bp, bs, l)%warpLanes)))
		}
		g.merge(in.d)
		return
	}
	cp, cs := g.row(in.c)
	var ok mask
	for _, lane := range g.act.lanes() {
		l := int(lane)
		own := l % warpLanes
		j, within := shuffleSource(op, own, get32(bp, bs, l), get32(cp, cs, l))
		if within {
			ok[l>>6] |= 1 << (l & 63)
		}
		put32(g.result, l-g.act.from, get32(ap, as, l-own+j))
	}
	g.merge(in.d)
	if in.d2.kind == predicate {
		g.preds[in.d2.slot].blend(&ok, &g.act.m)
	}
}

// runShflAlike executes a shfl by which all warps exchange values in the same way.
func runShflAlike(g *group, in *instr) {
	op := in.detail.(*warpOp)
	b, c := g.scalar(in.b, 0), g.scalar(in.c, 0)
	var from [warpLanes]uint8
	var within uint32
	for own := range from {
		j, ok := shuffleSource(op, own, b, c)
		if from[own] = uint8(j); ok {
			within |= 1 << own
		}
	}
	for l := g.act.from; l < g.act.to; {
		part := from[l%warpLanes:]
		part = part[:min(len(part), g.act.to-l)]
		exchangeLanes(g, l, in.a, part)
		l += len(part)
	}
	g.merge(in.d)
	if in.d2.kind == predicate {
		var ok mask
		for i := range ok {
			ok[i] = uint64(within)<<32 | uint64(within)
		}
		g.preds[in.d2.slot].blend(&ok, &g.act.m)
	}
}

// shuffleSource returns the lane of its warp that a lane reads from by shfl, and whether that
// is within the segment; if not, it is the lane itself.
func shuffleSource(op *warpOp, own int, b, c uint32) (lane int, within bool) {
	b &= 31
	segment, clamp := int(c>>8&31), int(c&31)
	top, low := own&segment|clamp&^segment, own&segment
	switch op.mode {
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

func lowerVote(l *lowerer, in *ptx.Inst) {
	a, not := l.pred(&in.Args[1])
	if in.Args[0].Kind == ptx.Sink {
		return
	}
	op := &warpOp{mode: in.Mods.First(ptx.Uni, ptx.All, ptx.Any, ptx.Ballot)}
	if len(in.Args) > 2 {
		op.member = l.src(&in.Args[2], ptx.U32)
	}
	l.emit(irInstr{op: irVote, d: l.reg(in.Args[0].Reg), c: a, notC: not, detail: op})
}

func lowerActivemask(l *lowerer, in *ptx.Inst) {
	l.emit(irInstr{op: irVote, d: l.dst(&in.Args[0], false), detail: &warpOp{mode: ptx.Ballot}})
}

// eachSet calls f for each set of threads of a warp that executes the instruction as one:
// those with the same mask, of which members take part.
func eachSet(g *group, op *warpOp, f func(warp int, set, members uint32)) {
	for w := range maxLanes / warpLanes {
		for rest := g.act.m.warp(w); rest != 0; {
			set, m := rest, rest
			if op.member.kind != nowhere {
				set, m = g.alike(op.member, w, rest)
				m &= set
			}
			f(w, set, m)
			rest &^= set
		}
	}
}

func runVote(g *group, in *instr) {
	op := in.detail.(*warpOp)
	if op.member.kind != nowhere && g.awaits(op.member) {
		return
	}
	p := g.predicateOf(in.c, in.notC)
	var out mask
	d, _ := g.row(in.d)
	eachSet(g, op, func(w int, part, m uint32) {
		yes := p.warp(w) & m
		var r bool
		switch op.mode {
		case ptx.All:
			r = yes == m
		case ptx.Any:
			r = yes != 0
		case ptx.Uni:
			r = yes == m || yes == 0
		default:
			for rest := part; rest != 0; rest &= rest - 1 {
				put32(d, w*warpLanes+bits.TrailingZeros32(rest), yes)
			}
		}
		if r {
			out.setWarp(w, out.warp(w)|part)
		}
	})
	if in.d.kind == predicate {
		g.preds[in.d.slot].blend(&out, &g.act.m)
	}
}

func lowerMatch(l *lowerer, in *ptx.Inst) {
	wide := in.Type.Size() == 8
	op := &warpOp{mode: in.Mods.First(ptx.Any, ptx.All, ptx.Any), wide: wide, member: l.src(&in.Args[2], ptx.U32)}
	q := place{}
	if in.Args[0].Pair != ptx.None {
		q = l.reg(in.Args[0].Pair)
	}
	l.emit(irInstr{op: irMatch, d: l.dst(&in.Args[0], false), d2: q, a: l.src(&in.Args[1], in.Type), detail: op})
}

func runMatch(g *group, in *instr) {
	op := in.detail.(*warpOp)
	if g.awaits(op.member) {
		return
	}
	ap, as := g.row(in.a)
	d, _ := g.row(in.d)
	value := func(l int) uint64 {
		if op.wide {
			return get64(ap, as, l)
		}
		return uint64(get32(ap, as, l))
	}
	var all mask
	eachSet(g, op, func(w int, part, m uint32) {
		var old [warpLanes]uint64 // d may be a
		for x := part; x != 0; x &= x - 1 {
			o := bits.TrailingZeros32(x)
			old[o] = value(w*warpLanes + o)
		}
		for rest := part; rest != 0; rest &= rest - 1 {
			l := w*warpLanes + bits.TrailingZeros32(rest)
			var equal uint32
			for x := m; x != 0; x &= x - 1 {
				if o := bits.TrailingZeros32(x); old[o] == old[l%warpLanes] {
					equal |= 1 << o
				}
			}
			if op.mode == ptx.All && equal != m {
				equal = 0
			}
			if equal == m {
				all[l>>6] |= 1 << (l & 63)
			}
			put32(d, l, equal)
		}
	})
	if in.d2.kind == predicate {
		g.preds[in.d2.slot].blend(&all, &g.act.m)
	}
}

// lowerElect lowers elect.sync: the lowest lane of those that take part is the leader.
func lowerElect(l *lowerer, in *ptx.Inst) {
	q := place{}
	if in.Args[0].Pair != ptx.None {
		q = l.reg(in.Args[0].Pair)
	}
	op := &warpOp{member: l.src(&in.Args[1], ptx.U32)}
	l.emit(irInstr{op: irElect, d: l.dst(&in.Args[0], false), d2: q, detail: op})
}

func runElect(g *group, in *instr) {
	op := in.detail.(*warpOp)
	if g.awaits(op.member) {
		return
	}
	d, _ := g.row(in.d)
	var leads mask
	eachSet(g, op, func(w int, part, m uint32) {
		leads.setWarp(w, leads.warp(w)|m&-m)
		for leader := uint32(bits.TrailingZeros32(m)); part != 0; part &= part - 1 {
			put32(d, w*warpLanes+bits.TrailingZeros32(part), leader)
		}
	})
	if in.d2.kind == predicate {
		g.preds[in.d2.slot].blend(&leads, &g.act.m)
	}
}

func lowerRedux(l *lowerer, in *ptx.Inst) {
	op := &warpOp{mode: in.Mods.First(ptx.Add, ptx.Min, ptx.Max, ptx.And, ptx.Or, ptx.Xor), signed: in.Type.Signed(), member: l.src(&in.Args[2], ptx.U32)}
	if in.Type == ptx.F32 {
		op.float = extremum(in, pick(in.Mods.Has(ptx.Max), lesser32, greater32))
		op.abs = in.Mods.Has(ptx.Abs)
	}
	l.emit(irInstr{op: irReduce, d: l.dst(&in.Args[0], false), a: l.src(&in.Args[1], in.Type), detail: op})
}

func runRedux(g *group, in *instr) {
	op := in.detail.(*warpOp)
	if g.awaits(op.member) {
		return
	}
	ap, as := g.row(in.a)
	d, _ := g.row(in.d)
	eachSet(g, op, func(w int, part, m uint32) {
		var r uint32
		started := false
		for ; m != 0; m &= m - 1 {
			v := get32(ap, as, w*warpLanes+bits.TrailingZeros32(m))
			if op.abs {
				v &^= 1 << 31
			}
			if op.float != nil {
				v = canonBits32(v)
			}
			if !started {
				r, started = v, true
				continue
			}
			r = reducePair(op, r, v)
		}
		for ; part != 0; part &= part - 1 {
			put32(d, w*warpLanes+bits.TrailingZeros32(part), r)
		}
	})
}

func reducePair(op *warpOp, r, v uint32) uint32 {
	switch {
	case op.float != nil:
		return math.Float32bits(op.float(math.Float32frombits(r), math.Float32frombits(v), 0))
	}
	switch op.mode {
	case ptx.Min, ptx.Max:
		if less(uint64(v), uint64(r), op.signed, false) == (op.mode == ptx.Min) {
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
