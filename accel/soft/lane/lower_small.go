package lane

import "pegasus/accel/ptx"

// smallLowerings are those of opcodes that have a way of their own for types of
// 16 bits and less.
var smallLowerings = func() map[ptx.Op]func(l *lowerer, in *ptx.Inst) {
	m := map[ptx.Op]func(l *lowerer, in *ptx.Inst){}
	for names, f := range map[string]func(l *lowerer, in *ptx.Inst){
		"add sub mul fma abs neg min max ex2 tanh": (*lowerer).small, "setp": (*lowerer).smallSetp, "set": (*lowerer).smallSet,
		"cvt": (*lowerer).smallCvt,
	} {
		for _, n := range fields(names) {
			m[ptx.OpOf(n)] = f
		}
	}
	return m
}()

func init() {
	for name, f := range map[string]func(l *lowerer, in *ptx.Inst){
		"mma": (*lowerer).mma, "wmma": (*lowerer).wmma, "ldmatrix": (*lowerer).matrixMemory, "stmatrix": (*lowerer).matrixMemory,
		"movmatrix": (*lowerer).movmatrix, "cp": (*lowerer).cp, "createpolicy": (*lowerer).createpolicy,
	} {
		lowerings[ptx.OpOf(name)] = f
	}
}

// createpolicy lowers createpolicy: no cache here has policies, so each is 0. The form cvt returns its operand, as a
// GPU does.
func (l *lowerer) createpolicy(in *ptx.Inst) {
	s := l.constant(0)
	if in.Mods.Has(ptx.ConvertPolicy) {
		s = l.src(&in.Args[1], ptx.B64)
	}
	l.op("movU64", l.dst(&in.Args[0], true), s)
}

// lowersSmall lowers an instruction on small formats, and reports whether it is one.
func (l *lowerer) lowersSmall(in *ptx.Inst) bool {
	f := smallLowerings[in.Op]
	if in.Type == ptx.F32x2 {
		f = (*lowerer).pairs
	} else if f != nil && in.Type == ptx.F32 && smallFloats[in.Type2] != nil && len(in.Args) > 2 {
		f = (*lowerer).mixed
	} else if f == nil || smallFloats[in.Type] == nil && smallFloats[in.Type2] == nil && in.Type != ptx.TF32 && !in.Mods.Has(ptx.Pack) {
		return false
	}
	f(l, in)
	return true
}

// pairs lowers arithmetic on two f32 in a register of 64 bits.
func (l *lowerer) pairs(in *ptx.Inst) {
	one := *in
	one.Type = ptx.F32
	var src []place
	for i := 1; i < len(in.Args); i++ {
		src = append(src, l.src(&in.Args[i], in.Type))
	}
	l.lanes(pairwise(floatFunc(&one), 32), l.dst(&in.Args[0], true), same(in.Type), src...)
}

// mixed lowers f32 sums and products of smaller formats.
func (l *lowerer) mixed(in *ptx.Inst) {
	d := l.dst(&in.Args[0], false)
	last, f := len(in.Args)-1, smallFloats[in.Type2]
	var src []place
	for i := 1; i < last; i++ {
		k := l.temp(d, false)
		l.lanes(func(a, _, _ uint64) uint64 { return bits32(float32(f.value(a))) }, k, [4]bool{}, l.src(&in.Args[i], in.Type2))
		src = append(src, k)
	}
	l.float(in, d, append(src, l.src(&in.Args[last], in.Type))...)
}

// small lowers arithmetic.
func (l *lowerer) small(in *ptx.Inst) {
	var src []place
	for i := 1; i < len(in.Args); i++ {
		src = append(src, l.src(&in.Args[i], in.Type))
	}
	f := smallFunc(in)
	if in.Type.Paired() {
		f = pairwise(f, 16)
	}
	l.lanes(f, l.dst(&in.Args[0], false), [4]bool{}, src...)
}

func (l *lowerer) smallCvt(in *ptx.Inst) {
	switch {
	case in.Mods.Has(ptx.Pack):
		l.cvtPack(in)
	case in.Type == ptx.TF32:
		l.lanes(tf32Bits(in), l.dst(&in.Args[0], false), [4]bool{}, l.src(&in.Args[1], in.Type2))
	case in.Type.Paired():
		l.cvtPacked(in)
	default:
		l.cvt(in)
	}
}

// smallCompare emits the comparison of halves of a and b, those shift bits up,
// into p and its opposite into q.
func (l *lowerer) smallCompare(in *ptx.Inst, t ptx.Type, shift int, p, q place) {
	f, flushed := smallFloats[t], in.Mods.Has(ptx.FTZ)
	var mod ptx.Mod
	for _, c := range comparisons {
		if in.Mods.Has(c.m) {
			mod = c.m
		}
	}
	order := floatOrder(mod)
	k := l.temp(place{}, false)
	l.lanes(func(a, b, _ uint64) uint64 {
		a, b = a>>shift, b>>shift
		if flushed {
			a, b = f.flush(a), f.flush(b)
		}
		if order(f.value(a), f.value(b)) {
			return 1
		}
		return 0
	}, k, [4]bool{}, l.src(&in.Args[1], t), l.src(&in.Args[2], t))
	l.op("cmpneU32", p, k, l.constant(0))
	c := &l.code[len(l.code)-1]
	c.d2, c.boolOp = q, boolOf(in)
	if c.boolOp != boolNone {
		c.c, c.notC = l.pred(&in.Args[3])
	}
}

// smallSetp lowers setp. Of a pair, p and q are those of the lower and the
// upper half.
func (l *lowerer) smallSetp(in *ptx.Inst) {
	var p, q place
	o := &in.Args[0]
	if o.Reg != ptx.None {
		p = l.reg(o.Reg)
	}
	if o.Pair != ptx.None {
		q = l.reg(o.Pair)
	}
	if !in.Type.Paired() {
		l.smallCompare(in, in.Type, 0, p, q)
		return
	}
	low := l.tempPred() // the third operand may be p
	l.smallCompare(in, in.Type, 0, low, place{})
	l.smallCompare(in, in.Type, 16, q, place{})
	if p.kind != nowhere {
		l.emit(irInstr{op: irPredicates, d: p, a: low})
	}
}

// smallSet lowers set to or from small formats.
func (l *lowerer) smallSet(in *ptx.Inst) {
	yes := map[ptx.Type]uint64{ptx.F16: 0x3c00, ptx.F16x2: 0x3c00, ptx.BF16: 0x3f80, ptx.BF16x2: 0x3f80}[in.Type]
	switch {
	case yes != 0:
	case in.Type.Size() == 2 || in.Type2.Paired():
		yes = 0xffff
	default:
		yes = 0xffffffff
	}
	d, p := l.dst(&in.Args[0], false), l.tempPred()
	one, none := l.constant(yes), l.constant(0)
	switch {
	case smallFloats[in.Type2] == nil:
		l.compare(in, in.Type2, p, place{})
		l.choose(d, one, none, p, false)
		return
	case !in.Type2.Paired():
		l.smallCompare(in, in.Type2, 0, p, place{})
		l.choose(d, one, none, p, false)
		return
	}
	q, k := l.tempPred(), l.temp(place{}, false)
	l.smallCompare(in, in.Type2, 0, p, place{})
	l.smallCompare(in, in.Type2, 16, q, place{})
	l.choose(k, one, none, p, false)
	l.choose(d, l.constant(yes<<16), none, q, false)
	l.op("orU32", d, d, k)
}
