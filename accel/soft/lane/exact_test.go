package lane

import (
	"math"
	"math/big"
)

func f32(x uint32) float32 { return math.Float32frombits(x) }
func f64(x uint64) float64 { return math.Float64frombits(x) }

func b32(x float32) uint32 {
	if x != x {
		return 0x7fffffff
	}
	return math.Float32bits(x)
}

// b64 makes NaNs of f64 alike: their payload is open.
func b64(x float64) uint64 {
	if x != x {
		return 0x7ff8000000000000
	}
	return math.Float64bits(x)
}

func ftz32(x float32) float32 {
	if math.Abs(float64(x)) < 0x1p-126 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(5000).SetFloat64(x) }

func clamped(z *big.Int, width int, signed bool) uint64 {
	lo, hi := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(width))
	if signed {
		hi.Lsh(big.NewInt(1), uint(width-1))
		lo.Neg(hi)
	}
	hi.Sub(hi, big.NewInt(1))
	if z.Cmp(lo) < 0 {
		z = lo
	}
	if z.Cmp(hi) > 0 {
		z = hi
	}
	m := new(big.Int).And(z, new(big.Int).SetUint64(math.MaxUint64))
	return m.Uint64()
}

// toInt is cvt from a float.
func toInt(v float64, mode string, width int, signed, double bool) uint64 {
	if v != v {
		if double || width == 64 {
			return 1 << (width - 1)
		}
		return 0
	}
	if math.IsInf(v, 0) {
		v = math.Copysign(1e300, v)
	}
	switch mode {
	case "rni":
		v = math.RoundToEven(v)
	case "rzi":
		v = math.Trunc(v)
	case "rmi":
		v = math.Floor(v)
	case "rpi":
		v = math.Ceil(v)
	}
	z, _ := new(big.Float).SetFloat64(v).Int(nil)
	return clamped(z, width, signed)
}
