package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// lowerings has a function for each opcode.
var lowerings [256]func(l *lowerer, in *ptx.Inst)

func init() {
	for names, f := range map[string]func(l *lowerer, in *ptx.Inst){
		"add sub": lowerAddSub, "addc subc": lowerAddSub, "mul": lowerMul, "mad madc fma": lowerMad,
		"mul24 mad24 sad": lowerTernary, "div rem": lowerDivide, "min max": lowerMinMax, "abs neg": lowerAbsNeg,
		"rcp sqrt rsqrt sin cos lg2 ex2 tanh": lowerFunction, "and or xor": lowerLogic, "not cnot": lowerNot,
		"shl shr": lowerShift, "shf bfe prmt bmsk szext fns dp4a dp2a copysign": lowerTernary, "lop3 bfi": lowerQuaternary,
		"popc clz bfind brev": lowerCount, "testp": lowerTestp, "setp": lowerSetp, "set": lowerSet,
		"selp": lowerSelp, "slct": lowerSlct, "mov": lowerMov, "cvt": lowerCvt, "cvta": lowerCvta,
		"isspacep": lowerIsspacep, "istypep": lowerIstypep, "ld ldu": lowerLoad, "st": lowerStore, "atom red": lowerAtomic,
		"shfl": lowerShfl, "vote": lowerVote, "activemask": lowerActivemask, "match": lowerMatch,
		"redux": lowerRedux, "mbarrier": lowerMbarrier, "mapa": lowerMapa, "getctarank": lowerGetctarank, "tex tld4": lowerTex, "txq suq": lowerTexQuery, "suld sust sured": lowerSurface, "call": lowerCall,
		"vadd vsub vabsdiff vmin vmax vshl vshr vset": lowerVideo, "vmad": lowerVmad, "elect": lowerElect,
		"alloca": lowerAlloca, "stacksave": lowerStacksave, "stackrestore": lowerStackrestore,
		"vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4": lowerVideoSIMD,
		"bar": lowerWarpBarrier,
		"membar fence prefetch prefetchu applypriority discard nanosleep pmevent brkpt griddepcontrol setmaxnreg": func(*lowerer, *ptx.Inst) {},
	} {
		for _, n := range fields(names) {
			lowerings[ptx.OpOf(n)] = f
		}
	}
}

func (l *lowerer) lower(in *ptx.Inst) {
	if l.lowersSmall(in) {
		return
	}
	f := lowerings[in.Op]
	if f == nil {
		l.fail("%s is not implemented", in.Op)
		return
	}
	f(l, in)
}

// kindOf names a type for the row table.
func kindOf(t ptx.Type) string {
	n := "32"
	if t.Size() == 8 {
		n = "64"
	}
	switch {
	case t.Float():
		return "F" + n
	case t.Signed():
		return "S" + n
	}
	return "U" + n
}

// plainOf is kindOf for operations that are independent of signs.
func plainOf(t ptx.Type) string {
	if t.Float() {
		return kindOf(t)
	}
	return "U" + kindOf(t)[1:]
}

// rounding returns the rounding mode of an instruction, RN by default.
func rounding(in *ptx.Inst) ptx.Mod {
	return in.Mods.First(ptx.RN, ptx.RZ, ptx.RM, ptx.RP)
}

// exact reports whether an instruction has the default rounding to nearest, without saturation.
func exact(in *ptx.Inst) bool { return rounding(in) == ptx.RN && !in.Mods.Has(ptx.SAT) }

func ftz(in *ptx.Inst) string {
	if in.Mods.Has(ptx.FTZ) && in.Type == ptx.F32 {
		return "Ftz"
	}
	return ""
}

// float emits a floating-point operation, with row kernels if they support its modifiers.
func (l *lowerer) float(in *ptx.Inst, d ir.Place, src ...ir.Place) {
	name := in.Op.String()
	switch {
	case name == "mad":
		name = "fma"
	case name == "div" && in.Mods.Has(ptx.Approx):
		name = "divApprox"
	case in.Mods.Has(ptx.NaNMod):
		name += "NaN"
	}
	result := false // has to be flushed
	if row := name + ftz(in); arith.HasRow(row + "F32") {
		name = row
	} else if in.Type == ptx.F32 && in.Mods.Has(ptx.FTZ) {
		result = name == "div" || name == "divApprox" || name == "rcp"
		for i := range src {
			src[i] = l.flushed(in, src[i], d)
		}
	}
	name += kindOf(in.Type)
	if !arith.HasRow(name) || rounding(in) != ptx.RN || in.Mods.Has(ptx.XorSign) || in.Type == ptx.F64 && in.Mods.Has(ptx.Approx) {
		l.lanes(floatFunc(in), d, same(in.Type), src...)
		return
	}
	l.op(name, d, src...)
	if result {
		l.op("flushF32", d, d)
	}
	if in.Mods.Has(ptx.SAT) {
		l.op("satF32", d, d)
	}
}

// flushed returns an operand without subnormal numbers if an instruction flushes them. Most functions have no subnormal
// results then.
func (l *lowerer) flushed(in *ptx.Inst, s, d ir.Place) ir.Place {
	if !in.Mods.Has(ptx.FTZ) {
		return s
	}
	k := l.temp(arith.Pick(s.Kind == ir.Single, d, s), false)
	l.op("flushF32", k, s)
	return k
}

func lowerAddSub(l *lowerer, in *ptx.Inst) {
	t := in.Type
	name := in.Op.String()
	if in.Mods.Has(ptx.CC) || name == "addc" || name == "subc" {
		d := l.dst(&in.Args[0], t.Size() == 8)
		addCarried(l, in, d, l.src(&in.Args[1], t), l.src(&in.Args[2], t), name[:3] == "sub", name == "addc" || name == "subc")
		return
	}
	d := l.dst(&in.Args[0], t.Size() == 8)
	a, b := l.src(&in.Args[1], t), l.src(&in.Args[2], t)
	switch {
	case t.Float():
		l.float(in, d, a, b)
	case t == ptx.U16x2 || t == ptx.S16x2:
		l.lanes(packedFunc(in), d, same(t), a, b)
	case in.Mods.Has(ptx.SAT):
		l.op(name+"SatS32", d, a, b)
	default:
		l.op(name+plainOf(t), d, a, b)
		l.trim(d, t)
	}
}

// addCarried emits d = a ± b (± the condition code), and the new condition code. A subtraction adds the complement, so
// that the code means "no borrow" after it.
func addCarried(l *lowerer, in *ptx.Inst, d, a, b ir.Place, sub, with bool) {
	t := in.Type
	c := l.carry
	switch {
	case with:
	case sub:
		c = l.constant(1)
	default:
		c = l.constant(0)
	}
	if sub {
		k := l.temp(d, t.Size() == 8)
		l.op("not"+plainOf(t), k, b)
		b = k
	}
	k := ir.Place{}
	if in.Mods.Has(ptx.CC) {
		k = l.temp(ir.Place{}, false)
		l.op("addcCarry"+plainOf(t), k, a, b, c)
	}
	l.op("addc"+plainOf(t), d, a, b, c)
	if in.Mods.Has(ptx.CC) {
		l.op("movU32", l.carry, k)
	}
}

func lowerMul(l *lowerer, in *ptx.Inst) {
	t := in.Type
	if in.Mods.Has(ptx.Wide) {
		multiplyWide(l, in, nil)
		return
	}
	d := l.dst(&in.Args[0], t.Size() == 8)
	a, b := l.signed(&in.Args[1], t, d), l.signed(&in.Args[2], t, d)
	if t.Float() {
		l.float(in, d, a, b)
		return
	}
	multiplyIntegers(l, in, d, a, b)
}

// multiplyIntegers emits d = a·b, the low or the high half.
func multiplyIntegers(l *lowerer, in *ptx.Inst, d, a, b ir.Place) {
	t := in.Type
	switch {
	case in.Mods.Has(ptx.Hi) && t.Size() == 2:
		k := l.temp(d, false)
		l.op("mulU32", k, a, b)
		l.op("shr"+kindOf(t), d, k, l.constant(16))
	case in.Mods.Has(ptx.Hi):
		l.op("mulHi"+kindOf(t), d, a, b)
	default:
		l.op("mul"+plainOf(t), d, a, b)
	}
	l.trim(d, t)
}

// multiplyWide emits mul.wide or, with c, mad.wide.
func multiplyWide(l *lowerer, in *ptx.Inst, c *ptx.Operand) {
	t := in.Type
	double := map[ptx.Type]ptx.Type{ptx.U16: ptx.U32, ptx.S16: ptx.S32, ptx.U32: ptx.U64, ptx.S32: ptx.S64}[t]
	d := l.dst(&in.Args[0], double.Size() == 8)
	a, b := l.signed(&in.Args[1], t, d), l.signed(&in.Args[2], t, d)
	sign := "U"
	if t.Signed() {
		sign = "S"
	}
	switch {
	case t.Size() == 2 && c == nil:
		l.op("mulU32", d, a, b)
	case t.Size() == 2:
		l.op("madU32", d, a, b, l.src(c, double))
	case c == nil:
		l.op("wide"+sign, d, a, b)
	default:
		l.op("madWide"+sign, d, a, b, l.src(c, double))
	}
}

func lowerMad(l *lowerer, in *ptx.Inst) {
	t := in.Type
	if in.Mods.Has(ptx.Wide) {
		multiplyWide(l, in, &in.Args[3])
		return
	}
	d := l.dst(&in.Args[0], t.Size() == 8)
	if t.Float() {
		l.float(in, d, l.src(&in.Args[1], t), l.src(&in.Args[2], t), l.src(&in.Args[3], t))
		return
	}
	a, b, c := l.signed(&in.Args[1], t, d), l.signed(&in.Args[2], t, d), l.src(&in.Args[3], t)
	carry := in.Op.String() == "madc"
	switch {
	case carry || in.Mods.Has(ptx.CC):
		k := l.temp(d, t.Size() == 8)
		multiplyIntegers(l, in, k, a, b)
		addCarried(l, in, d, k, c, false, carry)
	case in.Mods.Has(ptx.SAT):
		k := l.temp(d, false)
		l.op("mulHiS32", k, a, b)
		l.op("addSatS32", d, k, c)
	case in.Mods.Has(ptx.Hi):
		k := l.temp(d, t.Size() == 8)
		multiplyIntegers(l, in, k, a, b)
		l.op("add"+plainOf(t), d, k, c)
		l.trim(d, t)
	default:
		l.op("mad"+plainOf(t), d, a, b, c)
		l.trim(d, t)
	}
}

func lowerDivide(l *lowerer, in *ptx.Inst) {
	t := in.Type
	d := l.dst(&in.Args[0], t.Size() == 8)
	a, b := l.signed(&in.Args[1], t, d), l.signed(&in.Args[2], t, d)
	if t.Float() {
		l.float(in, d, a, b)
		return
	}
	l.op(in.Op.String()+kindOf(t), d, a, b)
	l.trim(d, t)
}

func lowerMinMax(l *lowerer, in *ptx.Inst) {
	t := in.Type
	d := l.dst(&in.Args[0], t.Size() == 8)
	a, b := l.signed(&in.Args[1], t, d), l.signed(&in.Args[2], t, d)
	switch {
	case len(in.Args) > 3:
		l.lanes(floatFunc(in), d, same(t), a, b, l.src(&in.Args[3], t))
		return
	case t == ptx.U16x2 || t == ptx.S16x2 || in.Mods.Has(ptx.Relu):
		l.lanes(packedFunc(in), d, same(t), a, b)
		return
	case t.Float():
		l.float(in, d, a, b)
		return
	}
	l.op(in.Op.String()+kindOf(t), d, a, b)
	l.trim(d, t)
}

func lowerAbsNeg(l *lowerer, in *ptx.Inst) {
	t := in.Type
	d := l.dst(&in.Args[0], t.Size() == 8)
	a := l.signed(&in.Args[1], t, d)
	name := in.Op.String()
	switch {
	case t.Float():
		l.op(name+kindOf(t), d, l.flushed(in, a, d))
	case name == "neg":
		l.op("neg"+plainOf(t), d, a)
	default:
		l.op("abs"+kindOf(t), d, a)
	}
	l.trim(d, t)
}

// lowerFunction lowers functions of one floating-point operand.
func lowerFunction(l *lowerer, in *ptx.Inst) {
	t := in.Type
	d := l.dst(&in.Args[0], t.Size() == 8)
	l.float(in, d, l.src(&in.Args[1], t))
}

func lowerLogic(l *lowerer, in *ptx.Inst) {
	if in.Type == ptx.Pred {
		op := map[string]ir.BoolOp{"and": ir.BoolAnd, "or": ir.BoolOr, "xor": ir.BoolXor}[in.Op.String()]
		a, notA := l.pred(&in.Args[1])
		b, notB := l.pred(&in.Args[2])
		l.predicates(&in.Args[0], a, notA, b, notB, op)
		return
	}
	d := l.dst(&in.Args[0], in.Type.Size() == 8)
	l.op(in.Op.String()+plainOf(in.Type), d, l.src(&in.Args[1], in.Type), l.src(&in.Args[2], in.Type))
}

// predicates emits d = a op b.
func (l *lowerer) predicates(d *ptx.Operand, a ir.Place, notA bool, b ir.Place, notB bool, op ir.BoolOp) {
	if d.Kind == ptx.Sink {
		return
	}
	l.emit(ir.Instr{Op: ir.OpPredicates, Dst: l.reg(d.Reg), A: a, NotA: notA, C: b, NotC: notB, Combine: op})
}

func lowerNot(l *lowerer, in *ptx.Inst) {
	if in.Type == ptx.Pred {
		a, not := l.pred(&in.Args[1])
		l.predicates(&in.Args[0], a, !not, ir.Place{}, false, ir.BoolNone)
		return
	}
	t := in.Type
	d, a := l.dst(&in.Args[0], t.Size() == 8), l.src(&in.Args[1], t)
	if in.Op.String() == "cnot" {
		p := l.tempPred()
		l.op("cmpeq"+plainOf(t), p, a, l.constant(0))
		l.choose(d, l.constant(1), l.constant(0), p, false)
		return
	}
	l.op("not"+plainOf(t), d, a)
	l.trim(d, t)
}

func lowerShift(l *lowerer, in *ptx.Inst) {
	t := in.Type
	d := l.dst(&in.Args[0], t.Size() == 8)
	a, b := l.signed(&in.Args[1], t, d), l.src(&in.Args[2], ptx.U32)
	kind := plainOf(t)
	if in.Op.String() == "shr" {
		kind = kindOf(t)
	}
	l.op(in.Op.String()+kind, d, a, b)
	l.trim(d, t)
}

// lowerTernary lowers integer operations given by lane functions.
func lowerTernary(l *lowerer, in *ptx.Inst) {
	wide := same(in.Type)
	d := l.dst(&in.Args[0], wide[0])
	var src []ir.Place
	for i := 1; i < len(in.Args); i++ {
		t := in.Type
		if in.Form[i] == 'c' {
			t, wide[i] = ptx.U32, false
		}
		src = append(src, l.signed(&in.Args[i], t, d))
	}
	switch name := integerRow(in); {
	case in.Op.String() == "sad":
		most, least := l.temp(d, wide[0]), l.temp(d, wide[0])
		l.op("max"+kindOf(in.Type), most, src[0], src[1])
		l.op("min"+kindOf(in.Type), least, src[0], src[1])
		l.op("sub"+plainOf(in.Type), most, most, least)
		l.op("add"+plainOf(in.Type), d, most, src[2])
	case in.Op.String() == "mad24":
		k := l.temp(d, false)
		l.op(name, k, src[0], src[1])
		l.op(arith.Pick(in.Mods.Has(ptx.SAT), "addU32", "addSatS32"), d, k, src[2])
	case in.Op.String() == "shf":
		k := l.temp(arith.Pick(src[2].Kind == ir.Single, d, src[2]), false)
		if in.Mods.Has(ptx.Wrap) {
			l.op("andU32", k, src[2], l.constant(31))
		} else {
			l.op("minU32", k, src[2], l.constant(32))
		}
		l.op(name, d, src[0], src[1], k)
	case in.Op.String() == "copysign":
		sign := arith.Pick(wide[0], uint64(1)<<31, 1<<63)
		k, m := l.temp(d, wide[0]), l.temp(d, wide[0])
		n := plainBits(in.Type)
		l.op("and"+n, k, src[0], l.constant(sign))
		l.op("and"+n, m, src[1], l.constant(sign-1))
		l.op("or"+n, d, k, m)
	case arith.HasRow(name):
		l.op(name, d, src...)
	default:
		l.lanes(integerFunc(in), d, wide, src...)
	}
	l.trim(d, in.Type)
}

// integerRow returns the name of an instruction's row operation, if there is one.
func integerRow(in *ptx.Inst) string {
	name := in.Op.String()
	switch name {
	case "mul24", "mad24":
		name = "mul24" + arith.Pick(in.Mods.Has(ptx.Hi), "", "Hi")
	case "shf":
		name += arith.Pick(in.Mods.Has(ptx.R), "Left", "Right")
	case "dp4a":
		return name + kindOf(in.Type)[:1] + kindOf(in.Type2)[:1]
	case "prmt":
		if in.Mods.First(ptx.RN, ptx.F4E, ptx.B4E, ptx.RC8, ptx.ECL, ptx.ECR, ptx.RC16) != ptx.RN {
			return ""
		}
	}
	return name + kindOf(in.Type)
}

// lowerQuaternary lowers operations with a fourth source.
func lowerQuaternary(l *lowerer, in *ptx.Inst) {
	t := in.Type
	wide := same(t)
	d := l.dst(&in.Args[0], wide[0])
	a, b := l.src(&in.Args[1], t), l.src(&in.Args[2], t)
	if in.Op.String() == "lop3" {
		if in.Args[4].Kind != ptx.Integer {
			l.fail("the table of lop3 is not a constant")
			return
		}
		l.lanes(lop3(uint8(in.Args[4].Imm)), d, wide, a, b, l.src(&in.Args[3], t))
		lowerLop3Pair(l, in, d)
		return
	}
	// bfi: position and length share one operand.
	k := l.temp(d, false)
	l.op("packU16", k, l.src(&in.Args[3], ptx.U32), l.src(&in.Args[4], ptx.U32))
	l.op("bfi"+plainOf(t), d, a, b, k)
}

// lowerCount lowers instructions that look at the bits of one operand.
func lowerCount(l *lowerer, in *ptx.Inst) {
	wide := in.Type.Size() == 8
	wideD := wide && in.Op.String() == "brev"
	d := l.dst(&in.Args[0], wideD)
	a := l.src(&in.Args[1], in.Type)
	if name := integerRow(in); arith.HasRow(name) {
		l.op(name, d, a)
		return
	}
	l.lanes(integerFunc(in), d, [4]bool{wideD, wide}, a)
}

// lowerLop3Pair emits the second result of lop3: whether the first is not zero,
// combined with a predicate.
func lowerLop3Pair(l *lowerer, in *ptx.Inst, d ir.Place) {
	if in.Args[0].Pair == ptx.None {
		return
	}
	l.op("cmpneU32", l.reg(in.Args[0].Pair), d, l.constant(0))
	c := &l.code[len(l.code)-1]
	c.Combine = boolOf(in)
	c.C, c.NotC = l.pred(&in.Args[5])
}
