package gen

import (
	"math"

	"pegasus/accel/soft/lane/asm"
	"pegasus/accel/soft/lane/ir"
)

// rows has the code of row operations, by their names in package arith. The results are those of the functions there, to
// the bit.
var rows map[string]func(e *emitter, in *ir.Instr)

func init() {
	rows = map[string]func(e *emitter, in *ir.Instr){
		"movU32": move, "movU64": move,
		"addU32": integer(asm.PADDD), "subU32": integer(asm.PSUBD), "mulU32": integer(asm.PMULLD),
		"andU32": integer(asm.PANDD), "orU32": integer(asm.PORD), "xorU32": integer(asm.PXORD),
		"minU32": integer(asm.PMINUD), "maxU32": integer(asm.PMAXUD), "minS32": integer(asm.PMINSD), "maxS32": integer(asm.PMAXSD),
		"shlU32": integer(asm.PSLLVD), "shrU32": integer(asm.PSRLVD), "shrS32": integer(asm.PSRAVD),
		"addU64": integer(asm.PADDQ), "subU64": integer(asm.PSUBQ), "mulU64": integer(asm.PMULLQ),
		"andU64": integer(asm.PANDQ), "orU64": integer(asm.PORQ), "xorU64": integer(asm.PXORQ),
		"shlU64": shiftWide(asm.PSLLVQ), "shrU64": shiftWide(asm.PSRLVQ), "shrS64": shiftWide(asm.PSRAVQ),
		"madU32": multiplyAdd, "notU32": not, "negU32": negate,
		"bfeU32": extract,
		"cvtU16": extend(16, asm.PSRLD), "cvtS16": extend(16, asm.PSRAD), "cvtU8": extend(24, asm.PSRLD), "cvtS8": extend(24, asm.PSRAD),
		"wideU": multiplyWide(asm.PMULUDQ, asm.MOVZXDQ), "wideS": multiplyWide(asm.PMULDQ, asm.MOVSXDQ),
		"madWideU": multiplyWide(asm.PMULUDQ, asm.MOVZXDQ), "madWideS": multiplyWide(asm.PMULDQ, asm.MOVSXDQ),
		"cvtU64U32": widen(asm.MOVZXDQ), "cvtS64S32": widen(asm.MOVSXDQ), "cvtU32U64": truncate,
		"addF32": float(asm.ADDPS), "subF32": float(asm.SUBPS), "mulF32": float(asm.MULPS), "divF32": float(asm.DIVPS),
		"fmaF32": fuse, "sqrtF32": squareRoot, "rcpF32": reciprocal,
		"negF32": signs(asm.PXORD, 1<<31), "absF32": signs(asm.PANDD, 1<<31-1),
		"minF32": lesser(asm.FloatLT, asm.PORD), "maxF32": lesser(asm.FloatGT, asm.PANDD),
		"cvtF32S32": fromInteger(asm.CVTDQ2PS), "cvtF32U32": fromInteger(asm.CVTUDQ2PS), "cvtS32F32": toSigned,
		"rsqrtF32": function(rsqrt, rsqrtLimits, false), "rsqrtFtzF32": function(rsqrt, rsqrtLimits, true),
		"ex2F32": function(power2, power2Limits, false), "ex2FtzF32": function(power2, power2Limits, true),
		"lg2F32": function(logarithm2, logarithm2Limits, false), "lg2FtzF32": function(logarithm2, logarithm2Limits, true),
	}
	for name, how := range map[string]byte{"eq": asm.EQ, "ne": asm.NE, "lt": asm.LT, "le": asm.LE} {
		rows["cmp"+name+"U32"], rows["cmp"+name+"U64"] = compare(asm.CMPUD, how), compareWide(asm.CMPUQ, how)
		if how != asm.EQ && how != asm.NE {
			rows["cmp"+name+"S32"], rows["cmp"+name+"S64"] = compare(asm.CMPD, how), compareWide(asm.CMPQ, how)
		}
	}
	for name, how := range map[string]byte{
		"eq": asm.FloatEQ, "ne": asm.FloatNE, "lt": asm.FloatLT, "le": asm.FloatLE,
		"equ": asm.FloatEQU, "neu": asm.FloatNEU, "ltu": asm.FloatLTU, "leu": asm.FloatLEU, "num": asm.FloatNum, "nan": asm.FloatNaN,
	} {
		rows["cmp"+name+"F32"] = compareFloats(how)
	}
}

func move(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	nan := false
	if in.A.Kind == ir.Single {
		for _, r := range d {
			e.vecInto(r, e.arg(in.A, 0), in.Dst.Kind == ir.Row64)
		}
	} else {
		v := e.row(in.A)
		nan = v.nan
		for i, r := range d {
			e.Op2(asm.MOVD, r, v.regs[i], asm.Masking{})
		}
	}
	e.define(in.Dst, d, nan)
}

// vecInto emits dst = an operand.
func (e *emitter) vecInto(dst asm.Vec, o operand, wide bool) {
	o.mem.Broadcast = false
	switch {
	case !o.single:
		e.Op2(asm.MOVD, dst, o.reg, asm.Masking{})
	case wide:
		e.Op2M(asm.BROADCASTQ, dst, o.mem, asm.Masking{})
	default:
		e.Op2M(asm.BROADCASTD, dst, o.mem, asm.Masking{})
	}
}

// integer is an operation on lanes of one width.
func integer(o asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		for i, r := range d {
			e.op3(o, r, e.vec(e.arg(in.A, i), len(d) == 2), e.arg(in.B, i))
		}
		e.define(in.Dst, d, false)
	}
}

// shiftWide shifts lanes of 64 bits by numbers of 32 bits.
func shiftWide(o asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		b := e.vec(e.arg(in.B, 0), false)
		by := e.temp()
		for i, r := range d {
			e.half(asm.MOVZXDQ, by, b, i)
			e.Op3(o, r, e.vec(e.arg(in.A, i), true), by, asm.Masking{})
		}
		e.define(in.Dst, d, false)
	}
}

// half emits dst = half of the lanes of a register, converted to 64 bits.
func (e *emitter) half(o asm.Op, dst, from asm.Vec, i int) {
	if i == 1 {
		e.Op2(asm.HIGHHALF, dst, from, asm.Masking{}, 1)
		from = dst
	}
	e.Op2(o, dst, from, asm.Masking{})
}

func multiplyAdd(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	e.op3(asm.PMULLD, d[0], e.vec(e.arg(in.A, 0), false), e.arg(in.B, 0))
	e.op3(asm.PADDD, d[0], d[0], e.arg(in.C, 0))
	e.define(in.Dst, d, false)
}

func not(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	e.Op3M(asm.PXORD, d[0], e.vec(e.arg(in.A, 0), false), e.Word32(math.MaxUint32), asm.Masking{})
	e.define(in.Dst, d, false)
}

func negate(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	a := e.arg(in.A, 0)
	e.Op3(asm.PXORD, d[0], d[0], d[0], asm.Masking{})
	e.op3(asm.PSUBD, d[0], d[0], a)
	e.define(in.Dst, d, false)
}

// extract is C bits from bit B on; of both numbers only the lowest 8 bits count.
func extract(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	at, constAt := e.known.of(in.B)
	n, constN := e.known.of(in.C)
	a := e.vec(e.arg(in.A, 0), false)
	if at, n = at&0xff, n&0xff; constAt && constN && at < 32 && n < 32 {
		e.Shift(asm.PSRLD, d[0], a, uint8(at), asm.Masking{})
		e.Op3M(asm.PANDD, d[0], d[0], e.Word32(1<<n-1), asm.Masking{})
		e.define(in.Dst, d, false)
		return
	}
	t := e.temp()
	e.Op3M(asm.PANDD, t, e.vec(e.arg(in.B, 0), false), e.Word32(0xff), asm.Masking{})
	e.Op3(asm.PSRLVD, d[0], a, t, asm.Masking{})
	e.Op3M(asm.PANDD, t, e.vec(e.arg(in.C, 0), false), e.Word32(0xff), asm.Masking{})
	one := e.temp()
	e.set32(one, 1, asm.Masking{})
	e.Op3(asm.PSLLVD, t, one, t, asm.Masking{})
	e.Op3(asm.PSUBD, t, t, one, asm.Masking{})
	e.Op3(asm.PANDD, d[0], d[0], t, asm.Masking{})
	e.define(in.Dst, d, false)
}

// extend keeps the lower bits of 32, with zeroes or the sign above them.
func extend(by uint8, back asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		e.Shift(asm.PSLLD, d[0], e.vec(e.arg(in.A, 0), false), by, asm.Masking{})
		e.Shift(back, d[0], d[0], by, asm.Masking{})
		e.define(in.Dst, d, false)
	}
}

// multiplyWide multiplies lanes of 32 bits to 64, and adds C if there is one.
func multiplyWide(o, extend asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		a, b := e.vec(e.arg(in.A, 0), false), e.vec(e.arg(in.B, 0), false)
		t := e.temp()
		for i, r := range d {
			e.half(extend, r, a, i)
			e.half(extend, t, b, i)
			e.Op3(o, r, r, t, asm.Masking{})
			if in.C.Kind != ir.Nowhere {
				e.op3(asm.PADDQ, r, r, e.arg(in.C, i))
			}
		}
		e.define(in.Dst, d, false)
	}
}

func widen(o asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		a := e.vec(e.arg(in.A, 0), false)
		for i, r := range d {
			e.half(o, r, a, i)
		}
		e.define(in.Dst, d, false)
	}
}

func truncate(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	t := e.temp()
	e.Op2(asm.MOVQD, d[0], e.vec(e.arg(in.A, 0), true), asm.Masking{})
	e.Op2(asm.MOVQD, t, e.vec(e.arg(in.A, 1), true), asm.Masking{})
	e.Op3(asm.INSERTHALF, d[0], d[0], t, asm.Masking{}, 1)
	e.define(in.Dst, d, false)
}

// compare is a comparison of 32 bits.
func compare(o asm.Op, how byte) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		e.compare(o, spare, e.vec(e.arg(in.A, 0), false), e.arg(in.B, 0), how)
		e.setPredicates(in)
	}
}

func compareWide(o asm.Op, how byte) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		e.compare(o, spare2, e.vec(e.arg(in.A, 1), true), e.arg(in.B, 1), how)
		e.compare(o, spare, e.vec(e.arg(in.A, 0), true), e.arg(in.B, 0), how)
		e.MaskOp(asm.KUNPACK, spare, spare2, spare)
		e.setPredicates(in)
	}
}

func compareFloats(how byte) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		e.compare(asm.CMPPS, spare, e.vec(e.float(in.A), false), e.float(in.B), how)
		e.setPredicates(in)
	}
}

// float is an operation of f32 that has a NaN for a NaN.
func float(o asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		e.op3(o, d[0], e.vec(e.float(in.A), false), e.float(in.B))
		e.define(in.Dst, d, true)
	}
}

// fuse is A·B + C, in the register of C if that is not needed any more.
func fuse(e *emitter, in *ir.Instr) {
	a, b := e.float(in.A), e.float(in.B)
	if a.single {
		a, b = b, a
	}
	x := e.vec(a, false)
	if in.C.Kind != ir.Single {
		c := e.row(in.C)
		if _, needed := e.next(c); !c.fixed && (!needed || same(in.C, in.Dst)) {
			r := c.regs[0]
			c.regs = nil
			e.op3(asm.FMADD231PS, r, x, b)
			e.define(in.Dst, []asm.Vec{r}, true)
			return
		}
	}
	d := e.result(in.Dst)
	e.vecInto(d[0], e.float(in.C), false)
	e.op3(asm.FMADD231PS, d[0], x, b)
	e.define(in.Dst, d, true)
}

func squareRoot(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	e.Op2(asm.SQRTPS, d[0], e.vec(e.float(in.A), false), asm.Masking{})
	e.define(in.Dst, d, true)
}

func reciprocal(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	a := e.float(in.A)
	e.set32(d[0], math.Float32bits(1), asm.Masking{})
	e.op3(asm.DIVPS, d[0], d[0], a)
	e.define(in.Dst, d, true)
}

// signs changes the sign bits of f32, also those of NaNs.
func signs(o asm.Op, bits uint32) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		e.Op3M(o, d[0], e.vec(e.float(in.A), false), e.Word32(bits), asm.Masking{})
		e.define(in.Dst, d, true)
	}
}

// lesser is the minimum, or the maximum: the other operand if one is NaN; of zeroes, their signs decide.
func lesser(how byte, equal asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		x, y := e.vec(e.float(in.A), false), e.vec(e.float(in.B), false)
		e.Op2(asm.MOVD, d[0], y, asm.Masking{})
		e.Compare(asm.CMPPS, spare, x, y, asm.Masking{}, how)
		e.Op2(asm.MOVD, d[0], x, asm.Under(spare))
		e.Compare(asm.CMPPS, spare, y, y, asm.Masking{}, asm.FloatNaN)
		e.Op2(asm.MOVD, d[0], x, asm.Under(spare))
		e.Compare(asm.CMPPS, spare, x, y, asm.Masking{}, asm.FloatEQ)
		e.Op3(equal, d[0], x, y, asm.Under(spare))
		e.define(in.Dst, d, true)
	}
}

func fromInteger(o asm.Op) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		e.Op2(o, d[0], e.vec(e.arg(in.A, 0), false), asm.Masking{})
		e.define(in.Dst, d, false)
	}
}

// toSigned drops the fraction and saturates; the processor has the least number for all that is out of range.
func toSigned(e *emitter, in *ir.Instr) {
	d := e.result(in.Dst)
	a := e.vec(e.float(in.A), false)
	e.Op2(asm.CVTTPS2DQ, d[0], a, asm.Masking{})
	e.CompareM(asm.CMPPS, spare, a, e.Word32(math.Float32bits(1<<31)), asm.Masking{}, asm.FloatGE)
	e.set32(d[0], math.MaxInt32, asm.Under(spare))
	e.Compare(asm.CMPPS, spare, a, a, asm.Masking{}, asm.FloatNaN)
	e.Op3(asm.PXORD, d[0], d[0], d[0], asm.Under(spare))
	e.define(in.Dst, d, false)
}

// function is a function of f32 that is computed in f64. compute has the same steps as the one in package arith; it may
// use four temporary registers from t on. limits sets the results of special operands.
func function(compute func(e *emitter, v, t asm.Vec), limits func(e *emitter, d, x asm.Vec, flush bool), flush bool) func(e *emitter, in *ir.Instr) {
	return func(e *emitter, in *ir.Instr) {
		d := e.result(in.Dst)
		x := e.vec(e.float(in.A), false)
		if flush {
			// The flushed operand takes the place of the result until the end.
			e.Op2(asm.MOVD, d[0], x, asm.Masking{})
			e.flush(d[0])
			x = d[0]
		}
		r, v := asm.Vec(31), asm.Vec(30)
		t := e.temps
		if t > 27 {
			panic("gen: no temporary registers for a function")
		}
		for i := range 2 {
			e.half(asm.CVTPS2PD, v, x, i)
			compute(e, v, t)
			if i == 0 {
				e.Op2(asm.CVTPD2PS, r, v, asm.Masking{})
			} else {
				e.Op2(asm.CVTPD2PS, v, v, asm.Masking{})
				e.Op3(asm.INSERTHALF, r, r, v, asm.Masking{}, 1)
			}
		}
		limits(e, r, x, flush)
		e.Op2(asm.MOVD, d[0], r, asm.Masking{})
		e.define(in.Dst, d, false)
	}
}

// flush makes subnormal numbers zeroes of the same sign.
func (e *emitter) flush(r asm.Vec) {
	const subnormal = 0x20
	e.Compare(asm.CLASS, brief, 0, r, asm.Masking{}, subnormal)
	e.Op3M(asm.PANDD, r, r, e.Word32(1<<31), asm.Under(brief))
}

// special sets d to constant bits where x compares so with a number.
func (e *emitter) special(d, x asm.Vec, how byte, with float32, bits uint32) {
	e.CompareM(asm.CMPPS, brief, x, e.Word32(math.Float32bits(with)), asm.Masking{}, how)
	e.set32(d, bits, asm.Under(brief))
}

// fma emits x = x·y + a constant.
func (e *emitter) fma(x, y asm.Vec, c float64) {
	e.Op3M(asm.FMADD213PD, x, y, e.Float64(c), asm.Masking{})
}

// rsqrt is 1/√v, by two steps from an estimate.
func rsqrt(e *emitter, v, t asm.Vec) {
	y, u, w := t, t+1, t+2
	e.set64(y, 0x5fe6eb50c7b537a9)
	e.Shift(asm.PSRLQ, u, v, 1, asm.Masking{})
	e.Op3(asm.PSUBQ, y, y, u, asm.Masking{})
	step := func() {
		e.Op3(asm.MULPD, u, v, y, asm.Masking{})
		e.Op3M(asm.FNMADD213PD, u, y, e.Float64(1), asm.Masking{}) // the relative error
		e.set64(w, math.Float64bits(0.375))
		e.Op3M(asm.FMADD213PD, w, u, e.Float64(0.5), asm.Masking{})
		e.Op3(asm.MULPD, u, y, u, asm.Masking{})
	}
	step()
	e.Op3(asm.FMADD231PD, y, u, w, asm.Masking{})
	step()
	e.Op3(asm.FMADD213PD, u, w, y, asm.Masking{})
	e.Op2(asm.MOVQ, v, u, asm.Masking{})
}

func rsqrtLimits(e *emitter, d, x asm.Vec, _ bool) {
	e.CompareM(asm.CMPPS, brief, x, e.Word32(0), asm.Masking{}, asm.FloatEQ)
	e.Op3M(asm.PORD, d, x, e.Word32(0x7f800000), asm.Under(brief))
	e.special(d, x, asm.FloatGT, math.MaxFloat32, 0)
	e.special(d, x, asm.FloatLTU, 0, canonicalNaN)
}

// power2 is 2 to the power of v.
func power2(e *emitter, v, t asm.Vec) {
	const magic = 0x1.8p52
	m, p := t, t+1
	e.Op3M(asm.MAXPD, v, v, e.Float64(-151), asm.Masking{})
	e.Op3M(asm.MINPD, v, v, e.Float64(129), asm.Masking{})
	e.Op3M(asm.ADDPD, m, v, e.Float64(magic), asm.Masking{})
	e.Op3M(asm.SUBPD, p, m, e.Float64(magic), asm.Masking{})
	e.Op3(asm.SUBPD, v, v, p, asm.Masking{})
	e.Op3M(asm.MULPD, v, v, e.Float64(math.Ln2), asm.Masking{})
	e.set64(p, math.Float64bits(1.0/40320))
	for _, c := range []float64{1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1, 1} {
		e.fma(p, v, c)
	}
	e.Shift(asm.PSLLQ, m, m, 52, asm.Masking{})
	e.Op3(asm.PADDQ, v, p, m, asm.Masking{})
}

func power2Limits(e *emitter, d, x asm.Vec, flush bool) {
	e.Compare(asm.CMPPS, brief, x, x, asm.Masking{}, asm.FloatNaN)
	e.Op2(asm.MOVD, d, nanReg, asm.Under(brief))
	if flush {
		e.flush(d)
	}
}

// logarithm2 is the binary logarithm.
func logarithm2(e *emitter, v, t asm.Vec) {
	const low = 0x3fe6a09e667f3bcd
	x, q, p := t, t+1, t+2
	e.set64(q, low)
	e.Op3(asm.PSUBQ, x, v, q, asm.Masking{})
	e.Op3M(asm.PANDQ, q, x, e.Word64(0xfff<<52), asm.Masking{})
	e.Op3(asm.PSUBQ, v, v, q, asm.Masking{}) // the mantissa, in [√½, √2)
	e.Shift(asm.PSRAQ, x, x, 52, asm.Masking{})
	e.Op2(asm.CVTQQ2PD, x, x, asm.Masking{}) // the exponent
	e.Op3M(asm.ADDPD, q, v, e.Float64(1), asm.Masking{})
	e.Op3M(asm.SUBPD, v, v, e.Float64(1), asm.Masking{})
	e.Op3(asm.DIVPD, v, v, q, asm.Masking{})
	e.Op3(asm.MULPD, q, v, v, asm.Masking{})
	e.set64(p, math.Float64bits(2.0/13))
	for _, c := range []float64{2.0 / 11, 2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2} {
		e.fma(p, q, c)
	}
	e.Op3(asm.MULPD, v, v, p, asm.Masking{})
	e.set64(q, math.Float64bits(math.Log2E))
	e.Op3(asm.FMADD213PD, v, q, x, asm.Masking{})
}

func logarithm2Limits(e *emitter, d, x asm.Vec, flush bool) {
	e.special(d, x, asm.FloatEQ, 0, 0xff800000)
	e.CompareM(asm.CMPPS, brief, x, e.Word32(math.Float32bits(math.MaxFloat32)), asm.Masking{}, asm.FloatGT)
	e.Op2(asm.MOVD, d, x, asm.Under(brief))
	e.special(d, x, asm.FloatLTU, 0, canonicalNaN)
	if flush {
		e.flush(d)
	}
}
