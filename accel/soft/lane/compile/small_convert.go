package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// smallConvert is cvt of one value from or to a small format.
func smallConvert(in *ptx.Inst) func(uint64) uint64 {
	get, put := smallSource(in), smallTarget(in)
	if in.Mods.First(ptx.RN, ptx.RNI, ptx.RZI, ptx.RMI, ptx.RPI) == ptx.RN {
		return func(x uint64) uint64 { return put(get(x)) }
	}
	if to, from := in.Type, in.Type2; !to.Float() {
		round := integral(in)
		return func(x uint64) uint64 { return floatToInt(get(x), round, to, from) }
	}
	round := integral(in)
	return func(x uint64) uint64 { return put(round(get(x))) }
}

// smallSource reads the value to convert: exact, or rounded to odd.
func smallSource(in *ptx.Inst) func(uint64) float64 {
	from, flushed := in.Type2, in.Mods.Has(ptx.FTZ)
	if f := arith.SmallFloats[from]; f != nil {
		return f.Value
	}
	if from.Float() {
		return func(x uint64) float64 { return load(x, from, flushed) }
	}
	return func(x uint64) float64 {
		s, e := wholeOf(extend(x, from), from.Signed())
		return arith.RoundOdd(s, e)
	}
}

// smallTarget returns the function that rounds a value to cvt's target format, unless that is an integer.
func smallTarget(in *ptx.Inst) func(float64) uint64 {
	to, mode := in.Type, rounding(in)
	e := arith.Finish{Sat: in.Mods.Has(ptx.SAT), Relu: in.Mods.Has(ptx.Relu), Finite: in.Mods.Has(ptx.SatFinite)}
	if f := arith.SmallFloats[to]; f != nil {
		return func(v float64) uint64 { return f.Round(v, mode, e) }
	}
	flushed := in.Mods.Has(ptx.FTZ)
	return func(v float64) uint64 { return store(v, to, e.Sat, flushed) }
}

// lowerCvtPacked lowers conversions to and from pairs, and to tf32.
func lowerCvtPacked(l *lowerer, in *ptx.Inst) {
	d, a := l.dst(&in.Args[0], false), l.src(&in.Args[1], in.Type2)
	get, put := smallSource(in), smallTarget(in)
	step := arith.SmallFloats[in.Type].Width
	if !in.Type2.Paired() {
		l.lanes(func(a, b, _ uint64) uint64 { return put(get(a))<<step | put(get(b)) }, d, [4]bool{}, a, l.src(&in.Args[2], in.Type2))
		return
	}
	from := arith.SmallFloats[in.Type2].Width
	l.lanes(func(a, _, _ uint64) uint64 { return put(get(a>>from))<<step | put(get(a)) }, d, [4]bool{}, a)
}

// tf32Bits is f32 with 10 bits of fraction, in the upper bits.
func tf32Bits(in *ptx.Inst) arith.LaneFunc {
	relu, finite := in.Mods.Has(ptx.Relu), in.Mods.Has(ptx.SatFinite)
	nearestAway, nearest := in.Mods.Has(ptx.RNA), in.Mods.Has(ptx.RN)
	const kept, infinity, sign = uint64(0x1fff), uint64(0x7f800000), uint64(1 << 31)
	return func(x, _, _ uint64) uint64 {
		switch {
		case x&^sign > infinity:
			return arith.Nan32
		case relu && x&sign != 0:
			return 0
		case x&^sign == infinity:
		case nearestAway:
			x += kept/2 + 1
		case nearest:
			x += kept/2 + x>>13&1
		}
		x &^= kept
		if finite && x&^sign == infinity {
			x -= kept + 1
		}
		return x
	}
}

// lowerCvtPack lowers cvt.pack, which saturates two integers and puts them beside
// each other, below the lower bits of a third.
func lowerCvtPack(l *lowerer, in *ptx.Inst) {
	n := map[ptx.Type]int{ptx.U2: 2, ptx.S2: 2, ptx.U4: 4, ptx.S4: 4, ptx.U8: 8, ptx.S8: 8, ptx.U16: 16, ptx.S16: 16}[in.Type]
	lo, hi := int32(0), int32(1)<<n-1
	if in.Type == ptx.S2 || in.Type == ptx.S4 || in.Type.Signed() {
		lo, hi = -1<<(n-1), 1<<(n-1)-1
	}
	one := func(x uint64) uint64 { return uint64(max(min(int32(x), hi), lo)) & (1<<n - 1) }
	src := []ir.Place{l.src(&in.Args[1], ptx.S32), l.src(&in.Args[2], ptx.S32)}
	if len(in.Args) > 3 {
		src = append(src, l.src(&in.Args[3], ptx.B32))
	}
	l.lanes(func(a, b, c uint64) uint64 { return c<<(2*n) | one(a)<<n | one(b) }, l.dst(&in.Args[0], false), [4]bool{}, src...)
}
