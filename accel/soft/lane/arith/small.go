package arith

import (
	"math"

	"pegasus/accel/ptx"
)

// SmallFloat is a floating-point format of 16 bits or less. Values are computed
// as float64, exact or rounded to odd, and rounded to the format once.
type SmallFloat struct {
	Width    int // bits
	fraction int // bits of the fraction
	bias     int
	largest  uint64 // finite number
	infinity uint64 // 0 if there is none
	Nan      uint64 // the NaN that results have

	scale float64 // of a value after its exponent is read with the bias of float64
}

// SmallFloats has the formats by type; that of a pair is the format of its halves.
var SmallFloats = func() map[ptx.Type]*SmallFloat {
	m := map[ptx.Type]*SmallFloat{
		ptx.F16:  {Width: 16, fraction: 10, bias: 15, largest: 0x7bff, infinity: 0x7c00, Nan: 0x7fff},
		ptx.BF16: {Width: 16, fraction: 7, bias: 127, largest: 0x7f7f, infinity: 0x7f80, Nan: 0x7fff},
		ptx.E4M3: {Width: 8, fraction: 3, bias: 7, largest: 0x7e, Nan: 0x7f},
		ptx.E5M2: {Width: 8, fraction: 2, bias: 15, largest: 0x7b, infinity: 0x7c, Nan: 0x7f},
	}
	for _, f := range m {
		f.scale = math.Ldexp(1, 1023-f.bias)
	}
	for pair, t := range map[ptx.Type]ptx.Type{ptx.F16x2: ptx.F16, ptx.BF16x2: ptx.BF16, ptx.E4M3x2: ptx.E4M3, ptx.E5M2x2: ptx.E5M2} {
		m[pair] = m[t]
	}
	return m
}()

// Sign returns the sign bit.
func (f *SmallFloat) Sign() uint64 { return 1 << (f.Width - 1) }

// Value returns the number that the bits represent. Higher bits of x are ignored.
func (f *SmallFloat) Value(x uint64) float64 {
	mag := x & (f.Sign() - 1)
	v := math.Float64frombits(mag<<(52-f.fraction)) * f.scale
	if mag > f.largest {
		if v = math.Inf(1); mag != f.infinity {
			return math.Float64frombits(quietNaN)
		}
	}
	if x&f.Sign() != 0 {
		return -v
	}
	return v
}

// quietNaN is the NaN of f64 that a NaN of a small format becomes.
const quietNaN = 0x7ff8000000000000

// Bits rounds v to the format.
func (f *SmallFloat) Bits(v float64, mode ptx.Mod) uint64 {
	if v != v {
		return f.Nan
	}
	b := math.Float64bits(v)
	neg := b>>63 != 0
	b &^= 1 << 63
	sign := uint64(0)
	if neg {
		sign = f.Sign()
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
func (f *SmallFloat) beyond() uint64 {
	if f.infinity != 0 {
		return f.infinity
	}
	return f.Nan
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

// Flush makes a subnormal number a zero of its sign.
func (f *SmallFloat) Flush(x uint64) uint64 {
	if x&(f.Sign()-1)>>f.fraction == 0 {
		return x & f.Sign()
	}
	return x
}

// IsNaN reports whether bits are a NaN.
func (f *SmallFloat) IsNaN(x uint64) bool {
	mag := x & (f.Sign() - 1)
	return mag > f.largest && mag != f.infinity
}

// Finish has the modifiers of a result.
type Finish struct {
	Sat, Relu, Finite, Flush bool
}

// Round rounds v and applies the modifiers.
func (f *SmallFloat) Round(v float64, mode ptx.Mod, e Finish) uint64 {
	if e.Sat {
		v = Saturate(v)
	}
	r := f.Bits(v, mode)
	nan := v != v
	switch {
	case e.Relu && !nan && r&f.Sign() != 0:
		return 0
	case e.Finite && !nan && r&(f.Sign()-1) > f.largest:
		return r&f.Sign() | f.largest
	case e.Flush:
		return f.Flush(r)
	}
	return r
}

// SmallSum returns x+y, exact or rounded to odd.
func SmallSum(x, y float64) float64 {
	s := x + y
	return RoundOdd(s, twoSum(x, y, s))
}

// SmallFused returns x·y+z, exact or rounded to odd.
func SmallFused(x, y, z float64) float64 {
	p := x * y // exact
	return SmallSum(p, z)
}
