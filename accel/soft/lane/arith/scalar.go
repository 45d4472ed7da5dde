// Package arith has the arithmetic of PTX, on single values and on rows of lanes. The loops over rows are generated from
// one table, in Go and in vector instructions.
//
// Callers: accel/soft/lane/compile, accel/soft/lane/exec.
//
// Trust boundary: the functions are total. Callers of row kernels pass rows with the room that RowFunc describes.
package arith

import "math"

// canonical NaN of f32 results.
const Nan32 = 0x7fffffff

// Pick returns a, or b if second is set.
func Pick[T any](second bool, a, b T) T {
	if second {
		return b
	}
	return a
}

// CanonF32 replaces a NaN by the canonical one.
func CanonF32(x float32) float32 {
	if x != x {
		return math.Float32frombits(Nan32)
	}
	return x
}

// CanonBits32 is CanonF32 of the bits.
func CanonBits32(x uint32) uint32 {
	if x&^(1<<31) > 0x7f800000 {
		return Nan32
	}
	return x
}

// Flush makes subnormal values zeroes of the same sign.
func Flush(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return x
}

// Flush64 is Flush for f64.
func Flush64(x float64) float64 {
	if b := math.Float64bits(x); b&(0x7ff<<52) == 0 {
		return math.Float64frombits(b & (1 << 63))
	}
	return x
}

// upper64 clears the lower word of x.
func upper64(x float64) float64 { return math.Float64frombits(math.Float64bits(x) &^ 0xffffffff) }

// grossNaN is the result of the gross approximations for a NaN.
const grossNaN = 0x7fffffff00000000

// gross finishes a gross approximation, of which only the upper word of operand and result counts.
func gross(r float64) float64 {
	if r != r {
		return math.Float64frombits(grossNaN)
	}
	return Flush64(upper64(r))
}

// GrossRcp64 and GrossRsqrt64 are rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64.
func GrossRcp64(x, _, _ float64) float64   { return gross(1 / Flush64(upper64(x))) }
func GrossRsqrt64(x, _, _ float64) float64 { return gross(1 / math.Sqrt(Flush64(upper64(x)))) }

// Rsqrt64 is rsqrt.approx.f64, which unlike the gross approximation has the whole precision: it returns 1/√x, rounded
// once in nearly all cases.
func Rsqrt64(x float64) float64 {
	if !(x > 0) || x > math.MaxFloat64 {
		return 1 / math.Sqrt(x)
	}
	m, e := math.Frexp(x)
	if e&1 != 0 {
		m, e = 2*m, e-1
	}
	y := 1 / math.Sqrt(m)
	h := y * y // with its rounding error, for one step of Newton's method
	y = math.FMA(y/2, math.FMA(-m, h, 1)-m*math.FMA(y, y, -h), y)
	return math.Ldexp(y, -e/2)
}

// Saturate clamps to [0, 1]; NaN becomes +0.
func Saturate(x float64) float64 {
	switch {
	case x >= 1:
		return 1
	case x > 0:
		return x
	}
	return 0
}

// saturate32 clamps to [0, 1]; NaN becomes +0.
func saturate32(x float32) float32 {
	r := float32(0)
	if x > 0 {
		r = x
	}
	if x >= 1 {
		r = 1
	}
	return r
}

// quotientU64 returns a quotient; a division by zero gives all ones, as on devices.
func quotientU64(x, y uint64) uint64 {
	if y == 0 {
		return math.MaxUint64
	}
	return x / y
}

func remainderU64(x, y uint64) uint64 {
	if y == 0 {
		return x
	}
	return x % y
}

// quotientS64 returns a quotient; the most negative number divided by -1 wraps.
func quotientS64(x, y int64) int64 {
	if y == 0 {
		return -1
	}
	return x / y
}

func remainderS64(x, y int64) int64 {
	if y == 0 {
		return x
	}
	return x % y
}

// quotientU32, remainderU32, … compute in float64, which is exact enough: a fractional quotient is further from an
// integer than its rounding error.
func quotientU32(x, y uint32) uint32 {
	q := uint32(float64(x) / float64(y))
	if y == 0 {
		q = math.MaxUint32
	}
	return q
}

func remainderU32(x, y uint32) uint32 {
	r := x - quotientU32(x, y)*y
	if y == 0 {
		r = x
	}
	return r
}

func quotientS32(x, y int32) int32 {
	q := int32(float64(x) / float64(y))
	if y == 0 {
		q = -1
	}
	if y == -1 {
		q = -x
	}
	return q
}

func remainderS32(x, y int32) int32 {
	r := x - quotientS32(x, y)*y
	if y == 0 {
		r = x
	}
	return r
}

// Lesser32 returns the smaller number, the other one if one is NaN. -0 is below +0.
func Lesser32(x, y float32) float32 {
	r := y
	if x < y || y != y {
		r = x
	}
	if x == y { // perhaps zeroes of different signs
		r = math.Float32frombits(math.Float32bits(x) | math.Float32bits(y))
	}
	return CanonF32(r)
}

// Greater32 returns the greater number, the other one if one is NaN. +0 is above -0.
func Greater32(x, y float32) float32 {
	r := y
	if x > y || y != y {
		r = x
	}
	if x == y { // perhaps zeroes of different signs
		r = math.Float32frombits(math.Float32bits(x) & math.Float32bits(y))
	}
	return CanonF32(r)
}

// lesser64 returns the smaller number, the other one if one is NaN. -0 is below +0.
func lesser64(x, y float64) float64 {
	r := y
	if x < y || y != y {
		r = x
	}
	if x == y { // perhaps zeroes of different signs
		r = math.Float64frombits(math.Float64bits(x) | math.Float64bits(y))
	}
	return r
}

func greater64(x, y float64) float64 {
	r := y
	if x > y || y != y {
		r = x
	}
	if x == y { // perhaps zeroes of different signs
		r = math.Float64frombits(math.Float64bits(x) & math.Float64bits(y))
	}
	return r
}

// Strict32 returns r, but NaN if x or y is NaN.
func Strict32(x, y, r float32) float32 {
	if x != x || y != y {
		r = math.Float32frombits(Nan32)
	}
	return r
}

// FMA32 rounds x·y+z once. The product is exact in float64; the sum is rounded
// twice, which only matters if the first rounding hit the middle between two
// float32 values, or if the result has fewer bits than a normal number.
func FMA32(x, y, z float32) float32 {
	s := float64(x)*float64(y) + float64(z)
	if doubtful(s) {
		return fma32Slow(x, y, z)
	}
	return float32(s)
}

// doubtful reports whether rounding s, itself rounded, to float32 may go wrong.
func doubtful(s float64) bool {
	b := math.Float64bits(s)
	return b&0x1fffffff == 0x10000000 || b<<1-normalLow >= normalSpan
}

// Bits, without the sign, of the float64 values that are normal float32 values
// (or finite ones beyond, which round to infinity in any case).
const (
	normalLow  = 0x3810000000000000 << 1
	normalSpan = 0x7ff0000000000000<<1 - normalLow
)

//go:noinline
func fma32Slow(x, y, z float32) float32 {
	p := float64(x) * float64(y)
	s := p + float64(z)
	if s != s {
		return math.Float32frombits(Nan32)
	}
	return float32(RoundOdd(s, twoSum(p, float64(z), s)))
}

// twoSum returns the exact error of s = a + b, or 0 if s is not finite.
func twoSum(a, b, s float64) float64 {
	if math.IsInf(s, 0) || s != s {
		return 0
	}
	t := s - a
	return (a - (s - t)) + (b - t)
}

// RoundOdd rounds s+e, where e is below an ulp of s, to odd: rounding the result again to fewer bits is then equivalent to
// one rounding.
func RoundOdd(s, e float64) float64 {
	b := math.Float64bits(s)
	switch {
	case e == 0 || b&1 != 0 || math.IsInf(s, 0):
		return s
	case s == 0:
		return math.Copysign(math.SmallestNonzeroFloat64, e)
	case (e > 0) == (s > 0):
		return math.Float64frombits(b + 1)
	}
	return math.Float64frombits(b - 1)
}

// truncS32, truncU32, truncS64 and truncU64 drop the fraction and saturate; NaN gives the top bit.
func truncS32(x float64) int32 {
	v := x
	if v >= 1<<31 {
		v = 1<<31 - 1
	}
	if !(v > -1<<31) {
		v = -1 << 31
	}
	return int32(v)
}

func truncU32(x float64) uint32 {
	v := x
	if v >= 1<<32 {
		v = 1<<32 - 1
	}
	if v < 0 {
		v = 0
	}
	if v != v {
		v = 1 << 31
	}
	return uint32(v)
}

func truncS64(x float64) int64 {
	v := x
	if !(v > -1<<63) {
		v = -1 << 63
	}
	if v >= 1<<63 {
		v = 0
	}
	r := int64(v)
	if x >= 1<<63 {
		r = math.MaxInt64
	}
	return r
}

func truncU64(x float64) uint64 {
	v := x
	if v < 0 {
		v = 0
	}
	if v != v {
		v = 1 << 63
	}
	if v >= 1<<64 {
		v = 0
	}
	r := uint64(v)
	if x >= 1<<64 {
		r = math.MaxUint64
	}
	return r
}
