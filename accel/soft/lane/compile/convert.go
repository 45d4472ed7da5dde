package compile

import (
	"math"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

func lowerCvt(l *lowerer, in *ptx.Inst) {
	to, from := in.Type, in.Type2
	regTo, regFrom := to.Size(), from.Size()
	if in.Args[0].Kind == ptx.Register {
		regTo = l.body.Regs[in.Args[0].Reg].Size()
	}
	if in.Args[1].Kind == ptx.Register {
		regFrom = l.body.Regs[in.Args[1].Reg].Size()
	}
	d, s := l.dst(&in.Args[0], regTo == 8), l.src(&in.Args[1], from)
	ordinary := (regTo == 8) == (to.Size() == 8) && (regFrom == 8) == (from.Size() == 8) && regTo > 1 && regTo >= to.Size()
	if ordinary && convertByRows(l, in, d, s, regTo) {
		return
	}
	f := convert(in)
	if f == nil {
		l.fail("cvt.%s.%s is not implemented with these modifiers", to, from)
		return
	}
	keep := ^uint64(0)
	if regTo < 8 {
		keep = 1<<(8*regTo) - 1
	}
	wideS := s.Kind == ir.Row64 || s.Kind == ir.Single && regFrom == 8
	l.lanes(func(a, _, _ uint64) uint64 { return f(a) & keep }, d, [4]bool{regTo == 8, wideS}, s)
}

// convertByRows emits a conversion as row operations, one or a few. It reports whether there are any for it.
func convertByRows(l *lowerer, in *ptx.Inst, d, s ir.Place, regTo int) bool {
	to, from := in.Type, in.Type2
	switch {
	case arith.SmallFloats[to] != nil || arith.SmallFloats[from] != nil:
		return false
	case !to.Float() && !from.Float():
		return convertIntegers(l, in, d, s, regTo)
	case in.Mods.First(ptx.RN, ptx.RZ, ptx.RM, ptx.RP) != ptx.RN || to == ptx.F64 && in.Mods.Has(ptx.SAT):
		return false
	case !from.Float():
		l.op("cvt"+kindOf(to)+kindOf(from), d, l.extended(s, from, d))
	case !to.Float():
		return convertToIntegers(l, in, d, s, regTo)
	default:
		convertFloats(l, in, d, s)
	}
	if in.Mods.Has(ptx.SAT) {
		l.op("satF32", d, d)
	}
	return true
}

// extended returns an integer of 16 bits or less as one of 32.
func (l *lowerer) extended(s ir.Place, t ptx.Type, d ir.Place) ir.Place {
	if t.Size() > 2 {
		return s
	}
	k := l.temp(d, false)
	l.op(narrowRow(t), k, s)
	return k
}

// narrowRow names the operation that extends an integer of 16 or 8 bits.
func narrowRow(t ptx.Type) string {
	return "cvt" + kindOf(t)[:1] + map[int]string{1: "8", 2: "16"}[t.Size()]
}

// convertIntegers converts integers.
func convertIntegers(l *lowerer, in *ptx.Inst, d, s ir.Place, regTo int) bool {
	to, from := in.Type, in.Type2
	if in.Mods != (ptx.Mods{}) {
		return false
	}
	s = l.extended(s, from, d)
	if to.Size() < 8 && from.Size() == 8 {
		k := d
		if to.Size() < 4 {
			k = l.temp(d, false)
		}
		l.op("cvtU32U64", k, s)
		s = k
	}
	switch {
	case to.Size() == 8 && from.Size() == 8:
		l.op("movU64", d, s)
	case to.Size() == 8 && from.Signed():
		l.op("cvtS64S32", d, s)
	case to.Size() == 8:
		l.op("cvtU64U32", d, s)
	case to.Size() == 4 && from.Size() == 8:
	case to.Size() == 4:
		l.op("movU32", d, s)
	default:
		narrowInteger(l, d, s, to, regTo)
	}
	return true
}

// narrowInteger extends the lowest 16 or 8 bits to a register's normal form.
func narrowInteger(l *lowerer, d, s ir.Place, t ptx.Type, regTo int) {
	l.op(narrowRow(t), d, s)
	if regTo == 2 && t.Signed() {
		l.op("cvtU16", d, d)
	}
}

// roundingRows name the operations that round to whole numbers.
var roundingRows = map[ptx.Mod]string{ptx.RNI: "near", ptx.RMI: "floor", ptx.RPI: "ceil", ptx.RZI: "trunc"}

// convertToIntegers converts floating-point numbers to integers.
func convertToIntegers(l *lowerer, in *ptx.Inst, d, s ir.Place, regTo int) bool {
	to, from := in.Type, in.Type2
	if to.Size() < 4 && from == ptx.F64 {
		return false
	}
	mode := in.Mods.First(ptx.RN, ptx.RNI, ptx.RZI, ptx.RMI, ptx.RPI)
	if mode == ptx.RN {
		mode = ptx.RNI
	}
	if mode != ptx.RZI {
		k := l.temp(d, from == ptx.F64)
		if from == ptx.F32 {
			s = l.flushed(in, s, d)
		}
		l.op(roundingRows[mode]+kindOf(from), k, s)
		s = k
	}
	if to.Size() >= 4 {
		l.op("cvt"+kindOf(to)+kindOf(from), d, s)
		return true
	}
	l.op("cvtS32F32", d, s)
	least, most := int32(0), int32(1)<<(8*to.Size())-1
	if to.Signed() {
		least, most = -1<<(8*to.Size()-1), most>>1
	}
	l.op("minS32", d, d, l.constant(uint64(most)))
	l.op("maxS32", d, d, l.constant(uint64(uint32(least))))
	if regTo == 2 && to.Signed() {
		l.op("cvtU16", d, d)
	}
	return true
}

// convertFloats converts between f32 and f64, or rounds to whole numbers. The processor's conversion between the two keeps
// the sign of a NaN and the upper bits of its payload, and makes it quiet, as a GPU's does.
func convertFloats(l *lowerer, in *ptx.Inst, d, s ir.Place) {
	to, from := in.Type, in.Type2
	flushed := in.Mods.Has(ptx.FTZ)
	mode := in.Mods.First(ptx.RN, ptx.RNI, ptx.RZI, ptx.RMI, ptx.RPI)
	switch {
	case to == from && mode != ptx.RN:
		if to == ptx.F32 {
			s = l.flushed(in, s, d)
		}
		l.op(roundingRows[mode]+kindOf(to), d, s)
	case to == ptx.F64 && from == ptx.F64:
		l.op("movU64", d, s)
	case to == from:
		l.op("copyF32", d, l.flushed(in, s, d))
	case to == ptx.F64:
		l.op("cvtF64F32", d, l.flushed(in, s, d))
	default:
		l.op("cvtF32F64", d, s)
		if flushed {
			l.op("flushF32", d, d)
		}
	}
}

// extend interprets the low bits of a register as an integer of type t, with
// its sign extended to 64 bits.
func extend(x uint64, t ptx.Type) uint64 {
	n := 64 - 8*t.Size()
	if t.Signed() {
		return uint64(int64(x<<n) >> n)
	}
	return x << n >> n
}

// convert returns the conversion of one value; integers come with extension to the register.
func convert(in *ptx.Inst) func(uint64) uint64 {
	to, from := in.Type, in.Type2
	sat, flushed := in.Mods.Has(ptx.SAT), in.Mods.Has(ptx.FTZ)
	switch {
	case arith.SmallFloats[to] != nil || arith.SmallFloats[from] != nil:
		return smallConvert(in)
	case !to.Float() && !from.Float():
		return func(x uint64) uint64 {
			x = extend(x, from)
			if sat {
				x = clampInt(x, from, to)
			}
			return extend(x, to)
		}
	case !to.Float():
		round := integral(in)
		return func(x uint64) uint64 { return floatToInt(load(x, from, flushed), round, to, from) }
	case !from.Float():
		mode := rounding(in)
		return func(x uint64) uint64 { return store(intToFloat(extend(x, from), from, to, mode), to, sat, false) }
	}
	if in.Mods.First(ptx.RN, ptx.RNI, ptx.RZI, ptx.RMI, ptx.RPI) != ptx.RN {
		round := integral(in)
		return func(x uint64) uint64 { return store(round(load(x, from, flushed)), to, sat, flushed) }
	}
	mode := rounding(in)
	return func(x uint64) uint64 {
		v := load(x, from, flushed)
		if v != v && from == ptx.F64 && to == ptx.F32 && !sat {
			return arith.BitsOf(float32(v))
		}
		if to == ptx.F32 {
			v = float64(arith.Round32(v, 0, mode))
		}
		return store(v, to, sat, flushed)
	}
}

// integral returns the rounding to integers that an instruction has.
func integral(in *ptx.Inst) func(float64) float64 {
	switch in.Mods.First(ptx.RN, ptx.RNI, ptx.RZI, ptx.RMI, ptx.RPI) {
	case ptx.RZI:
		return math.Trunc
	case ptx.RMI:
		return math.Floor
	case ptx.RPI:
		return math.Ceil
	}
	return math.RoundToEven
}

// load returns the value of f32 or f64 bits.
func load(x uint64, t ptx.Type, flushed bool) float64 {
	if t == ptx.F64 {
		return math.Float64frombits(x)
	}
	v := arith.FloatOf(x)
	if flushed {
		v = arith.Flush(v)
	}
	return float64(v)
}

// store returns the bits of a value that fits the type.
func store(v float64, t ptx.Type, sat, flushed bool) uint64 {
	if sat {
		v = arith.Saturate(v)
	}
	if t == ptx.F64 {
		return math.Float64bits(v)
	}
	r := float32(v)
	if flushed {
		r = arith.Flush(r)
	}
	return arith.BitsOf(arith.CanonF32(r))
}

// clampInt saturates an integer to the range of another type.
func clampInt(x uint64, from, to ptx.Type) uint64 {
	n := 8 * to.Size()
	if to.Signed() {
		top := int64(1)<<(n-1) - 1
		if !from.Signed() {
			return min(x, uint64(top))
		}
		return uint64(max(min(int64(x), top), -top-1))
	}
	top := ^uint64(0) >> (64 - n)
	if from.Signed() && int64(x) < 0 {
		return 0
	}
	return min(x, top)
}

// floatToInt rounds and saturates. NaN gives 0, or the top bit if either side has 64 bits.
func floatToInt(v float64, round func(float64) float64, to, from ptx.Type) uint64 {
	n := 8 * to.Size()
	if v != v {
		if n == 64 || from == ptx.F64 {
			return extend(1<<(n-1), to)
		}
		return 0
	}
	v = round(v)
	if to.Signed() {
		limit := math.Ldexp(1, n-1)
		switch {
		case v >= limit:
			return uint64(1)<<(n-1) - 1
		case v <= -limit:
			return extend(uint64(1)<<(n-1), to)
		}
		return uint64(int64(v))
	}
	switch {
	case v >= math.Ldexp(1, n):
		return ^uint64(0) >> (64 - n)
	case v <= 0:
		return 0
	}
	return uint64(v)
}

// intToFloat converts a 64-bit integer with one rounding.
func intToFloat(x uint64, from, to ptx.Type, mode ptx.Mod) float64 {
	s, e := wholeOf(x, from.Signed())
	if to == ptx.F32 {
		return float64(arith.Round32(s, e, mode))
	}
	return arith.Round64(s, e, mode)
}

// wholeOf returns a 64-bit integer as the nearest float64 and the error of that.
func wholeOf(x uint64, signed bool) (s, e float64) {
	negative := signed && int64(x) < 0
	if negative {
		x = -x
	}
	// hi + lo is x, both exact.
	hi, lo := float64(x>>32)*(1<<32), float64(x&0xffffffff)
	s = hi + lo
	e = lo - (s - hi)
	if negative {
		return -s, -e
	}
	return s, e
}
