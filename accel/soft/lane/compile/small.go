package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// smallLowerings are those of opcodes that have a way of their own for types of
// 16 bits and less.
var smallLowerings = func() map[ptx.Op]func(l *lowerer, in *ptx.Inst) {
	m := map[ptx.Op]func(l *lowerer, in *ptx.Inst){}
	for names, f := range map[string]func(l *lowerer, in *ptx.Inst){
		"add sub mul fma abs neg min max ex2 tanh": lowerSmall, "setp": lowerSmallSetp, "set": lowerSmallSet,
		"cvt": lowerSmallCvt,
	} {
		for _, n := range fields(names) {
			m[ptx.OpOf(n)] = f
		}
	}
	return m
}()

func init() {
	for name, f := range map[string]func(l *lowerer, in *ptx.Inst){
		"mma": lowerMma, "wmma": lowerWmma, "ldmatrix": lowerMatrixMemory, "stmatrix": lowerMatrixMemory,
		"movmatrix": lowerMovmatrix, "cp": lowerCp, "createpolicy": lowerCreatepolicy,
	} {
		lowerings[ptx.OpOf(name)] = f
	}
}

// lowerCreatepolicy lowers createpolicy: no cache here has policies, so each is 0. The form cvt returns its operand, as a
// GPU does.
func lowerCreatepolicy(l *lowerer, in *ptx.Inst) {
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
		f = lowerPairs
	} else if f != nil && in.Type == ptx.F32 && arith.SmallFloats[in.Type2] != nil && len(in.Args) > 2 {
		f = lowerMixedSum
	} else if f == nil || arith.SmallFloats[in.Type] == nil && arith.SmallFloats[in.Type2] == nil && in.Type != ptx.TF32 && !in.Mods.Has(ptx.Pack) {
		return false
	}
	f(l, in)
	return true
}

// lowerPairs lowers arithmetic on two f32 in a register of 64 bits.
func lowerPairs(l *lowerer, in *ptx.Inst) {
	one := *in
	one.Type = ptx.F32
	var src []ir.Place
	for i := 1; i < len(in.Args); i++ {
		src = append(src, l.src(&in.Args[i], in.Type))
	}
	l.lanes(pairwise(floatFunc(&one), 32), l.dst(&in.Args[0], true), same(in.Type), src...)
}

// lowerMixedSum lowers f32 sums and products of smaller formats.
func lowerMixedSum(l *lowerer, in *ptx.Inst) {
	d := l.dst(&in.Args[0], false)
	last, f := len(in.Args)-1, arith.SmallFloats[in.Type2]
	var src []ir.Place
	for i := 1; i < last; i++ {
		k := l.temp(d, false)
		l.lanes(func(a, _, _ uint64) uint64 { return arith.BitsOf(float32(f.Value(a))) }, k, [4]bool{}, l.src(&in.Args[i], in.Type2))
		src = append(src, k)
	}
	l.float(in, d, append(src, l.src(&in.Args[last], in.Type))...)
}

// lowerSmall lowers arithmetic.
func lowerSmall(l *lowerer, in *ptx.Inst) {
	var src []ir.Place
	for i := 1; i < len(in.Args); i++ {
		src = append(src, l.src(&in.Args[i], in.Type))
	}
	f := smallFunc(in)
	if in.Type.Paired() {
		f = pairwise(f, 16)
	}
	l.lanes(f, l.dst(&in.Args[0], false), [4]bool{}, src...)
}

func lowerSmallCvt(l *lowerer, in *ptx.Inst) {
	switch {
	case in.Mods.Has(ptx.Pack):
		lowerCvtPack(l, in)
	case in.Type == ptx.TF32:
		l.lanes(tf32Bits(in), l.dst(&in.Args[0], false), [4]bool{}, l.src(&in.Args[1], in.Type2))
	case in.Type.Paired():
		lowerCvtPacked(l, in)
	default:
		lowerCvt(l, in)
	}
}

// compareSmall emits the comparison of halves of a and b, those shift bits up,
// into p and its opposite into q.
func compareSmall(l *lowerer, in *ptx.Inst, t ptx.Type, shift int, p, q ir.Place) {
	f, flushed := arith.SmallFloats[t], in.Mods.Has(ptx.FTZ)
	var mod ptx.Mod
	for _, c := range comparisons {
		if in.Mods.Has(c.m) {
			mod = c.m
		}
	}
	order := floatOrder(mod)
	k := l.temp(ir.Place{}, false)
	l.lanes(func(a, b, _ uint64) uint64 {
		a, b = a>>shift, b>>shift
		if flushed {
			a, b = f.Flush(a), f.Flush(b)
		}
		if order(f.Value(a), f.Value(b)) {
			return 1
		}
		return 0
	}, k, [4]bool{}, l.src(&in.Args[1], t), l.src(&in.Args[2], t))
	l.op("cmpneU32", p, k, l.constant(0))
	c := &l.code[len(l.code)-1]
	c.Dst2, c.Combine = q, boolOf(in)
	if c.Combine != ir.BoolNone {
		c.C, c.NotC = l.pred(&in.Args[3])
	}
}

// lowerSmallSetp lowers setp. Of a pair, p and q are those of the lower and the
// upper half.
func lowerSmallSetp(l *lowerer, in *ptx.Inst) {
	var p, q ir.Place
	o := &in.Args[0]
	if o.Reg != ptx.None {
		p = l.reg(o.Reg)
	}
	if o.Pair != ptx.None {
		q = l.reg(o.Pair)
	}
	if !in.Type.Paired() {
		compareSmall(l, in, in.Type, 0, p, q)
		return
	}
	low := l.tempPred() // the third operand may be p
	compareSmall(l, in, in.Type, 0, low, ir.Place{})
	compareSmall(l, in, in.Type, 16, q, ir.Place{})
	if p.Kind != ir.Nowhere {
		l.emit(ir.Instr{Op: ir.OpPredicates, Dst: p, A: low})
	}
}

// lowerSmallSet lowers set to or from small formats.
func lowerSmallSet(l *lowerer, in *ptx.Inst) {
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
	case arith.SmallFloats[in.Type2] == nil:
		l.compare(in, in.Type2, p, ir.Place{})
		l.choose(d, one, none, p, false)
		return
	case !in.Type2.Paired():
		compareSmall(l, in, in.Type2, 0, p, ir.Place{})
		l.choose(d, one, none, p, false)
		return
	}
	q, k := l.tempPred(), l.temp(ir.Place{}, false)
	compareSmall(l, in, in.Type2, 0, p, ir.Place{})
	compareSmall(l, in, in.Type2, 16, q, ir.Place{})
	l.choose(k, one, none, p, false)
	l.choose(d, l.constant(yes<<16), none, q, false)
	l.op("orU32", d, d, k)
}
