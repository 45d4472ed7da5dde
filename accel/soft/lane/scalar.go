package lane

import "math"

// canonical NaN of f32 results.
const nan32 = 0x7fffffff

// canonF32 gives a result its canonical NaN.
func canonF32(x float32) float32 {
	if x != x {
		return math.Float32frombits(nan32)
	}
	return x
}

// canonF64 keeps a NaN's payload: the manual leaves it open.
func canonF64(x float64) float64 { return x }

func canonBits32(x uint32) uint32 {
	if x&^(1<<31) > 0x7f800000 {
		return nan32
	}
	return x
}

// flush makes subnormal values zeroes of the same sign.
func flush(x float32) float32 {
	if b := math.Float32bits(x); b&0x7f800000 == 0 {
		return math.Float32frombits(b & (1 << 31))
	}
	return x
}

func flush64(x float64) float64 {
	if b := math.Float64bits(x); b&(0x7ff<<52) == 0 {
		return math.Float64frombits(b & (1 << 63))
	}
	return x
}

// saturate clamps to [0, 1]; NaN becomes +0.
func saturate(x float64) float64 {
	switch {
	case x >= 1:
		return 1
	case x > 0:
		return x
	}
	return 0
}

// quotientU divides; by zero it gives all ones, as devices do.
func quotientU[T uint32 | uint64](x, y T) T {
	if y == 0 {
		return ^T(0)
	}
	return x / y
}

func remainderU[T uint32 | uint64](x, y T) T {
	if y == 0 {
		return x
	}
	return x % y
}

// quotientS divides; the most negative number by -1 wraps.
func quotientS[T int32 | int64](x, y T) T {
	if y == 0 {
		return -1
	}
	return x / y
}

func remainderS[T int32 | int64](x, y T) T {
	if y == 0 {
		return x
	}
	return x % y
}

func lesser32(x, y float32) float32 {
	switch {
	case x != x:
		return canonF32(y)
	case y != y || x < y:
		return x
	case x == y && math.Signbit(float64(x)):
		return x
	}
	return y
}

func greater32(x, y float32) float32 {
	switch {
	case x != x:
		return canonF32(y)
	case y != y || x > y:
		return x
	case x == y && !math.Signbit(float64(x)):
		return x
	}
	return y
}

func lesser64(x, y float64) float64 {
	switch {
	case x != x:
		return y
	case y != y || x < y:
		return x
	case x == y && math.Signbit(x):
		return x
	}
	return y
}

func greater64(x, y float64) float64 {
	switch {
	case x != x:
		return y
	case y != y || x > y:
		return x
	case x == y && !math.Signbit(x):
		return x
	}
	return y
}

// fma32 rounds x·y+z once. The product is exact in float64; the sum is rounded
// twice, which only matters if the first rounding hit the middle between two
// float32 values, or if the result has fewer bits than a normal number.
func fma32(x, y, z float32) float32 {
	s := float64(x)*float64(y) + float64(z)
	if doubtful(s) {
		return fma32Slow(x, y, z)
	}
	return float32(s)
}

// doubtful says whether rounding s, itself rounded, to float32 may go wrong.
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
		return math.Float32frombits(nan32)
	}
	return float32(odd(s, twoSum(p, float64(z), s)))
}

func fma64(x, y, z float64) float64 { return math.FMA(x, y, z) }

// twoSum is the exact error of s = a + b, or 0 if s is not finite.
func twoSum(a, b, s float64) float64 {
	if math.IsInf(s, 0) || s != s {
		return 0
	}
	t := s - a
	return (a - (s - t)) + (b - t)
}

// odd rounds s+e, where e is below an ulp of s, to odd: rounding the result
// again to fewer bits is then as if done once.
func odd(s, e float64) float64 {
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

func truncS32(x float32) int32 {
	switch {
	case x >= 1<<31:
		return math.MaxInt32
	case x >= -(1 << 31):
		return int32(x)
	case x != x:
		return 0
	}
	return math.MinInt32
}

func truncU16(x float32) uint32 {
	switch {
	case x >= 65535:
		return 65535
	case x >= 1:
		return uint32(int32(x))
	}
	return 0
}
