package lane

import (
	"math"

	"pegasus/accel/ptx"
)

// smallFloat is a floating-point format of 16 bits or less. Values are computed
// as float64, exact or rounded to odd, and rounded to the format once.
type smallFloat struct {
	width    int // bits
	fraction int // bits of the fraction
	bias     int
	largest  uint64 // finite number
	infinity uint64 // 0 if there is none
	nan      uint64 // the NaN that results have

	scale float64 // of a value after its exponent is read with the bias of float64
}

var smallFloats = func() map[ptx.Type]*smallFloat {
	m := map[ptx.Type]*smallFloat{
		ptx.F16:  {width: 16, fraction: 10, bias: 15, largest: 0x7bff, infinity: 0x7c00, nan: 0x7fff},
		ptx.BF16: {width: 16, fraction: 7, bias: 127, largest: 0x7f7f, infinity: 0x7f80, nan: 0x7fff},
		ptx.E4M3: {width: 8, fraction: 3, bias: 7, largest: 0x7e, nan: 0x7f},
		ptx.E5M2: {width: 8, fraction: 2, bias: 15, largest: 0x7b, infinity: 0x7c, nan: 0x7f},
	}
	for _, f := range m {
		f.scale = math.Ldexp(1, 1023-f.bias)
	}
	for pair, t := range map[ptx.Type]ptx.Type{ptx.F16x2: ptx.F16, ptx.BF16x2: ptx.BF16, ptx.E4M3x2: ptx.E4M3, ptx.E5M2x2: ptx.E5M2} {
		m[pair] = m[t]
	}
	return m
}()

func (f *smallFloat) sign() uint64 { return 1 << (f.width - 1) }

// value returns the number that the bits represent. Higher bits of x are ignored.
func (f *smallFloat) value(x uint64) float64 {
	mag := x & (f.sign() - 1)
	v := math.Float64frombits(mag<<(52-f.fraction)) * f.scale
	if mag > f.largest {
		if v = math.Inf(1); mag != f.infinity {
			return math.Float64frombits(quietNaN)
		}
	}
	if x&f.sign() != 0 {
		return -v
	}
	return v
}

// quietNaN is the NaN of f64 that a NaN of a small format becomes.
const quietNaN = 0x7ff8000000000000

// bits rounds v to the format.
func (f *smallFloat) bits(v float64, mode ptx.Mod) uint64 {
	if v != v {
		return f.nan
	}
	b := math.Float64bits(v)
	neg := b>>63 != 0
	b &^= 1 << 63
	sign := uint64(0)
	if neg {
		sign = f.sign()
	}
	e := int(b>>52) - 1023
	m := b&(1<<52-1) | 1<<52
	switch e {
	case 1024:
		return sign | f.beyond()
	case -1023:
		m &^= 1 << 52 // zero or far too small to be seen
	}
	low := 1 - f.bias // exponent of the smallest normal number
	shift := min(52-f.fraction+max(low-e, 0), 63)
	r := m>>shift + carry(m&(1<<shift-1), 1<<(shift-1), m>>shift&1, neg, mode)
	if e > low {
		r += uint64(e-low) << f.fraction
	}
	if r <= f.largest {
		return sign | r
	}
	if mode == ptx.RZ || mode == ptx.RM && !neg || mode == ptx.RP && neg {
		return sign | f.largest
	}
	return sign | f.beyond()
}

// beyond returns the result for values that exceed all finite numbers.
func (f *smallFloat) beyond() uint64 {
	if f.infinity != 0 {
		return f.infinity
	}
	return f.nan
}

// carry returns the increment of the last place by rounding, if rest was cut off; half is its middle.
func carry(rest, half, last uint64, neg bool, mode ptx.Mod) uint64 {
	var up bool
	switch mode {
	case ptx.RZ:
	case ptx.RM:
		up = rest != 0 && neg
	case ptx.RP:
		up = rest != 0 && !neg
	default:
		up = rest > half || rest == half && last != 0
	}
	if up {
		return 1
	}
	return 0
}

// flush makes a subnormal number a zero of its sign.
func (f *smallFloat) flush(x uint64) uint64 {
	if x&(f.sign()-1)>>f.fraction == 0 {
		return x & f.sign()
	}
	return x
}

// isNaN reports whether bits are a NaN.
func (f *smallFloat) isNaN(x uint64) bool {
	mag := x & (f.sign() - 1)
	return mag > f.largest && mag != f.infinity
}

// finish has the modifiers of a result.
type finish struct {
	sat, relu, finite, flush bool
}

// round rounds v and applies the modifiers.
func (f *smallFloat) round(v float64, mode ptx.Mod, e finish) uint64 {
	if e.sat {
		v = saturate(v)
	}
	r := f.bits(v, mode)
	nan := v != v
	switch {
	case e.relu && !nan && r&f.sign() != 0:
		return 0
	case e.finite && !nan && r&(f.sign()-1) > f.largest:
		return r&f.sign() | f.largest
	case e.flush:
		return f.flush(r)
	}
	return r
}

// smallSum, smallFused: exact, or rounded to odd.
func smallSum(x, y float64) float64 {
	s := x + y
	return odd(s, twoSum(x, y, s))
}

func smallFused(x, y, z float64) float64 {
	p := x * y // exact
	return smallSum(p, z)
}

// smallFunc returns an operation on one value of a format, with all its modifiers.
func smallFunc(in *ptx.Inst) laneFunc {
	f := smallFloats[in.Type]
	var op func(x, y, z float64) float64
	switch in.Op.String() {
	case "add":
		op = func(x, y, _ float64) float64 { return smallSum(x, y) }
	case "sub":
		op = func(x, y, _ float64) float64 { return smallSum(x, -y) }
	case "mul":
		op = func(x, y, _ float64) float64 { return x * y }
	case "fma":
		op = smallFused
	case "ex2":
		op = func(x, _, _ float64) float64 { return math.Exp2(x) }
	case "tanh":
		op = func(x, _, _ float64) float64 { return math.Tanh(x) }
	case "min", "max":
		return smallExtremum(f, in)
	default: // abs, neg
		return smallSign(f, in)
	}
	flushed := in.Mods.Has(ptx.FTZ)
	e := finish{sat: in.Mods.Has(ptx.SAT), relu: in.Mods.Has(ptx.Relu), flush: flushed}
	return func(a, b, c uint64) uint64 {
		if flushed {
			a, b, c = f.flush(a), f.flush(b), f.flush(c)
		}
		return f.round(op(f.value(a), f.value(b), f.value(c)), ptx.RN, e)
	}
}

// smallSign is abs and neg.
func smallSign(f *smallFloat, in *ptx.Inst) laneFunc {
	abs, flushed := in.Op.String() == "abs", in.Mods.Has(ptx.FTZ)
	return func(a, _, _ uint64) uint64 {
		switch {
		case f.isNaN(a):
			return f.nan
		case flushed:
			a = f.flush(a)
		}
		if abs {
			return a &^ f.sign()
		}
		return a ^ f.sign()
	}
}

// smallExtremum is min and max.
func smallExtremum(f *smallFloat, in *ptx.Inst) laneFunc {
	choose := smallChoice(f, in.Op.String() == "max", in.Mods.Has(ptx.NaNMod))
	flushed, xor := in.Mods.Has(ptx.FTZ), in.Mods.Has(ptx.XorSign)
	return func(a, b, _ uint64) uint64 {
		if flushed {
			a, b = f.flush(a), f.flush(b)
		}
		if !xor {
			return choose(a, b)
		}
		r := choose(a&^f.sign(), b&^f.sign())
		if !f.isNaN(r) {
			r |= (a ^ b) & f.sign()
		}
		return r
	}
}

// smallChoice returns the greater of two numbers, or the lesser; of a number and a NaN
// the number, unless either may make it a NaN.
func smallChoice(f *smallFloat, most, either bool) func(a, b uint64) uint64 {
	order := func(x uint64) int { // as the numbers are ordered, -0 below +0
		if x&f.sign() != 0 {
			return -1 - int(x&^f.sign())
		}
		return int(x)
	}
	return func(a, b uint64) uint64 {
		switch {
		case f.isNaN(a) && (either || f.isNaN(b)), f.isNaN(b) && either:
			return f.nan
		case f.isNaN(b), !f.isNaN(a) && order(a) > order(b) == most:
			return a
		}
		return b
	}
}

// pairwise applies an operation on values of n bits to both halves of pairs.
func pairwise(f laneFunc, n int) laneFunc {
	keep := uint64(1)<<n - 1
	return func(a, b, c uint64) uint64 {
		return f(a&keep, b&keep, c&keep) | f(a>>n&keep, b>>n&keep, c>>n&keep)<<n
	}
}

// floatOrder returns a comparison of floats.
func floatOrder(m ptx.Mod) func(x, y float64) bool {
	orNaN := func(f func(x, y float64) bool) func(x, y float64) bool {
		return func(x, y float64) bool { return x != x || y != y || f(x, y) }
	}
	switch m {
	case ptx.EQ:
		return func(x, y float64) bool { return x == y }
	case ptx.NE:
		return func(x, y float64) bool { return x < y || x > y }
	case ptx.LT:
		return func(x, y float64) bool { return x < y }
	case ptx.LE:
		return func(x, y float64) bool { return x <= y }
	case ptx.GT:
		return func(x, y float64) bool { return x > y }
	case ptx.GE:
		return func(x, y float64) bool { return x >= y }
	case ptx.NUM:
		return func(x, y float64) bool { return x == x && y == y }
	case ptx.NAN:
		return func(x, y float64) bool { return x != x || y != y }
	case ptx.EQU:
		return orNaN(floatOrder(ptx.EQ))
	case ptx.LTU:
		return orNaN(floatOrder(ptx.LT))
	case ptx.LEU:
		return orNaN(floatOrder(ptx.LE))
	case ptx.GTU:
		return orNaN(floatOrder(ptx.GT))
	case ptx.GEU:
		return orNaN(floatOrder(ptx.GE))
	}
	return func(x, y float64) bool { return x != y } // NEU, true for NaN as well
}
