package lane

import (
	"math"

	"pegasus/accel/ptx"
)

// fastConversions are those common in real programs that have row kernels,
// by destination and source type.
var fastConversions = map[[2]ptx.Type]string{
	{ptx.U64, ptx.U32}: "cvtU64U32", {ptx.S64, ptx.U32}: "cvtU64U32", {ptx.S64, ptx.S32}: "cvtS64S32", {ptx.U64, ptx.S32}: "cvtS64S32",
	{ptx.U32, ptx.U64}: "cvtU32U64", {ptx.U32, ptx.S64}: "cvtU32U64", {ptx.S32, ptx.U64}: "cvtU32U64", {ptx.S32, ptx.S64}: "cvtU32U64",
	{ptx.U32, ptx.U16}: "cvtU16", {ptx.S32, ptx.U16}: "cvtU16", {ptx.S32, ptx.S16}: "cvtS16", {ptx.U32, ptx.S16}: "cvtS16",
	{ptx.U32, ptx.U8}: "cvtU8", {ptx.S32, ptx.U8}: "cvtU8", {ptx.U16, ptx.U8}: "cvtU8", {ptx.S16, ptx.U8}: "cvtU8",
	{ptx.S32, ptx.S8}: "cvtS8", {ptx.U32, ptx.S8}: "cvtS8",
	{ptx.U16, ptx.U32}: "cvtU16", {ptx.U16, ptx.S32}: "cvtU16", {ptx.F64, ptx.F32}: "cvtF64F32",
}

func (l *lowerer) cvt(in *ptx.Inst) {
	to, from := in.Type, in.Type2
	regTo, regFrom := to.Size(), from.Size()
	if in.Args[0].Kind == ptx.Register {
		regTo = l.body.Regs[in.Args[0].Reg].Size()
	}
	if in.Args[1].Kind == ptx.Register {
		regFrom = l.body.Regs[in.Args[1].Reg].Size()
	}
	d, s := l.dst(&in.Args[0], regTo == 8), l.src(&in.Args[1], from)
	if name := fastConversion(in); name != "" && (regTo == 8) == (to.Size() == 8) && (regFrom == 8) == (from.Size() == 8) && regTo >= to.Size() {
		if to.Size() != 2 || regTo == 2 {
			l.op(name, d, s)
			return
		}
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
	wideS := s.kind == row64 || s.kind == single && regFrom == 8
	l.lanes(func(a, _, _ uint64) uint64 { return f(a) & keep }, d, [4]bool{regTo == 8, wideS}, s)
}

func fastConversion(in *ptx.Inst) string {
	if in.Mods == (ptx.Mods{}) {
		return fastConversions[[2]ptx.Type{in.Type, in.Type2}]
	}
	var rn, rzi, rmi ptx.Mods
	rn.Add(ptx.RN)
	rzi.Add(ptx.RZI)
	rmi.Add(ptx.RMI)
	switch {
	case in.Mods == rn && in.Type == ptx.F32 && in.Type2 == ptx.S32:
		return "cvtF32S32"
	case in.Mods == rn && in.Type == ptx.F32 && in.Type2 == ptx.U32:
		return "cvtF32U32"
	case in.Mods == rn && in.Type == ptx.F32 && in.Type2 == ptx.F64:
		return "cvtF32F64"
	case in.Mods == rmi && in.Type == ptx.F32 && in.Type2 == ptx.F32:
		return "floorF32"
	case in.Mods == rzi && in.Type == ptx.S32 && in.Type2 == ptx.F32:
		return "truncS32F32"
	case in.Mods == rzi && in.Type == ptx.U16 && in.Type2 == ptx.F32:
		return "truncU16F32"
	}
	return ""
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

// convert is the conversion of one value; integers come with extension to the register.
func convert(in *ptx.Inst) func(uint64) uint64 {
	to, from := in.Type, in.Type2
	sat, flushed := in.Mods.Has(ptx.SAT), in.Mods.Has(ptx.FTZ)
	switch {
	case smallFloats[to] != nil || smallFloats[from] != nil:
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
		if to == ptx.F32 {
			v = float64(round32(v, 0, mode))
		}
		return store(v, to, sat, flushed)
	}
}

// integral is the rounding to integers that an instruction asks for.
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

// load is the value of f32 or f64 bits.
func load(x uint64, t ptx.Type, flushed bool) float64 {
	if t == ptx.F64 {
		return math.Float64frombits(x)
	}
	v := float(x)
	if flushed {
		v = flush(v)
	}
	return float64(v)
}

// store is the bits of a value that fits the type.
func store(v float64, t ptx.Type, sat, flushed bool) uint64 {
	if sat {
		v = saturate(v)
	}
	if t == ptx.F64 {
		return math.Float64bits(v)
	}
	r := float32(v)
	if flushed {
		r = flush(r)
	}
	return bits32(canonF32(r))
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
		return float64(round32(s, e, mode))
	}
	return round64(s, e, mode)
}

// wholeOf is a 64-bit integer as the nearest float64 and what is missing.
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
