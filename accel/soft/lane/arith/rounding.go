package arith

import (
	"math"
	"math/big"

	"pegasus/accel/ptx"
)

// Round32 rounds s+e, where |e| is at most half an ulp of s, to float32.
func Round32(s, e float64, mode ptx.Mod) float32 {
	x := RoundOdd(s, e)
	r := float32(x)
	if x != x || math.IsInf(x, 0) || mode == ptx.RN {
		return CanonF32(r)
	}
	v := float64(r)
	switch {
	case mode == ptx.RZ && math.Abs(v) > math.Abs(x):
		return math.Nextafter32(r, 0)
	case mode == ptx.RM && v > x:
		return math.Nextafter32(r, float32(math.Inf(-1)))
	case mode == ptx.RP && v < x:
		return math.Nextafter32(r, float32(math.Inf(1)))
	}
	return r
}

// Round64 rounds the exact sum s+e, of which s is the nearest number, by the mode.
func Round64(s, e float64, mode ptx.Mod) float64 {
	if e == 0 || s != s || math.IsInf(s, 0) {
		return s
	}
	switch {
	case mode == ptx.RZ && s != 0 && (e > 0) != (s > 0):
		return math.Nextafter(s, 0)
	case mode == ptx.RM && e < 0:
		return math.Nextafter(s, math.Inf(-1))
	case mode == ptx.RP && e > 0:
		return math.Nextafter(s, math.Inf(1))
	}
	return s
}

// zeroSum returns an exact zero sum of x and y with its sign: minus only when rounding down.
func zeroSum(x, y float64, mode ptx.Mod) float64 {
	if mode == ptx.RM && (math.Signbit(x) || math.Signbit(y)) {
		return math.Copysign(0, -1)
	}
	return x + y
}

// Sum32, product32, … compute f32 results from exact f32 values held in float64.
func Sum32(x, y float64, mode ptx.Mod) float32 {
	s := x + y
	if s == 0 {
		return float32(zeroSum(x, y, mode))
	}
	return Round32(s, twoSum(x, y, s), mode)
}

// Fused32 returns x·y+z.
func Fused32(x, y, z float64, mode ptx.Mod) float32 { return Sum32(x*y, z, mode) }

// Quotient32 returns x/y.
func Quotient32(x, y float64, mode ptx.Mod) float32 {
	q := x / y
	if q == 0 || q != q || math.IsInf(q, 0) || math.IsInf(y, 0) {
		return CanonF32(float32(q))
	}
	e := math.FMA(-q, y, x) // its sign, with y's, is that of the rest
	return Round32(q, math.Copysign(e, e*sign(y)), mode)
}

func sign(x float64) float64 { return math.Copysign(1, x) }

// Root32 returns the square root.
func Root32(x float64, mode ptx.Mod) float32 {
	r := math.Sqrt(x)
	if r == 0 || r != r || math.IsInf(r, 0) {
		return CanonF32(float32(r))
	}
	return Round32(r, math.FMA(-r, r, x), mode)
}

// exact64 rounds the result of an operation on big numbers.
func exact64(mode ptx.Mod, f func(z *big.Float), nearest float64) float64 {
	if nearest != nearest || math.IsInf(nearest, 0) && mode == ptx.RN {
		return nearest
	}
	z := new(big.Float).SetPrec(4400)
	f(z)
	if z.Sign() == 0 {
		return nearest
	}
	r, accuracy := z.Float64()
	if accuracy == big.Exact {
		return r
	}
	above := accuracy == big.Above
	switch {
	case mode == ptx.RZ && above == (r > 0) && r != 0:
		return math.Nextafter(r, 0)
	case mode == ptx.RM && above:
		return math.Nextafter(r, math.Inf(-1))
	case mode == ptx.RP && !above:
		return math.Nextafter(r, math.Inf(1))
	}
	return r
}

func finite(xs ...float64) bool {
	for _, x := range xs {
		if x != x || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// Arithmetic64 returns a directed f64 operation: add, sub, mul, fma, div or sqrt.
func Arithmetic64(op string, mode ptx.Mod) func(x, y, z float64) float64 {
	b := func(x float64) *big.Float { return new(big.Float).SetPrec(4400).SetFloat64(x) }
	switch op {
	case "add", "sub":
		minus := op == "sub"
		return func(x, y, _ float64) float64 {
			if minus {
				y = -y
			}
			s := x + y
			if s == 0 {
				return zeroSum(x, y, mode)
			}
			if !finite(x, y) {
				return s
			}
			return exact64(mode, func(r *big.Float) { r.Add(b(x), b(y)) }, s)
		}
	case "mul":
		return func(x, y, _ float64) float64 {
			if !finite(x, y) {
				return x * y
			}
			return exact64(mode, func(r *big.Float) { r.Mul(b(x), b(y)) }, x*y)
		}
	case "fma", "mad":
		return func(x, y, z float64) float64 {
			n := math.FMA(x, y, z)
			if !finite(x, y, z) {
				return n
			}
			if n == 0 && (x == 0 || y == 0) {
				return zeroSum(x*y, z, mode)
			}
			if n == 0 && mode == ptx.RM && z != 0 {
				n = math.Copysign(0, -1) // if the sum is exactly zero
			}
			return exact64(mode, func(r *big.Float) { r.Add(new(big.Float).SetPrec(4400).Mul(b(x), b(y)), b(z)) }, n)
		}
	case "div":
		return func(x, y, _ float64) float64 {
			if !finite(x, y) || y == 0 {
				return x / y
			}
			return exact64(mode, func(r *big.Float) { r.Quo(b(x), b(y)) }, x/y)
		}
	}
	return func(x, _, _ float64) float64 {
		if !finite(x) || x <= 0 {
			return math.Sqrt(x)
		}
		scale := 1.0
		if x < 0x1p-900 { // the remainder of x would be too small to be represented
			x, scale = x*0x1p200, 0x1p-100
		}
		r := math.Sqrt(x)
		return scale * Round64(r, math.FMA(-r, r, x), mode)
	}
}
