package lane

import "math"

// The approximate functions, by polynomials in float64 rounded once: within 1
// ulp, where the manual allows 2 and more.

// ex2 is 2 to the power of x.
func ex2(x float32) float32 {
	if !(x > -151 && x < 129) {
		switch {
		case x != x:
			return math.Float32frombits(nan32)
		case x > 0:
			return float32(math.Inf(1))
		}
		return 0
	}
	v := float64(x)
	n := math.Floor(v + 0.5)
	t := (v - n) * math.Ln2
	// e^t for |t| <= ln(2)/2
	p := 1 + t*(1+t*(1.0/2+t*(1.0/6+t*(1.0/24+t*(1.0/120+t*(1.0/720+t*(1.0/5040+t*(1.0/40320))))))))
	return float32(p * math.Float64frombits(uint64(int64(n)+1023)<<52))
}

// lg2 is the binary logarithm.
func lg2(x float32) float32 {
	if !(x > 0 && x <= math.MaxFloat32) {
		switch {
		case x == 0:
			return float32(math.Inf(-1))
		case x > 0:
			return x
		}
		return math.Float32frombits(nan32)
	}
	b := math.Float64bits(float64(x)) // never subnormal
	// x = m·2^e with m in [√½, √2)
	e := int64(b-0x3fe6a09e667f3bcd) >> 52
	m := math.Float64frombits(b - uint64(e)<<52)
	s := (m - 1) / (m + 1)
	q := s * s
	p := s * (2 + q*(2.0/3+q*(2.0/5+q*(2.0/7+q*(2.0/9+q*(2.0/11+q*(2.0/13+q*(2.0/15))))))))
	return float32(float64(e) + p*math.Log2E)
}

// sin32 is the sine.
func sin32(x float32) float32 {
	v := float64(x)
	if !(v > -1e6 && v < 1e6) {
		return canonF32(float32(math.Sin(v)))
	}
	k := math.Floor(v*(2/math.Pi) + 0.5)
	return quarter(v, k, int64(k))
}

// cos32 is the cosine.
func cos32(x float32) float32 {
	v := float64(x)
	if !(v > -1e6 && v < 1e6) {
		return canonF32(float32(math.Cos(v)))
	}
	k := math.Floor(v*(2/math.Pi) + 0.5)
	return quarter(v, k, int64(k)+1)
}

// quarter is the sine of v - k·π/2 + n·π/2.
func quarter(v, k float64, n int64) float32 {
	const hi, lo = 1.57079632673412561417e+00, 6.07710050650619224932e-11
	t := (v - k*hi) - k*lo
	q := t * t
	var r float64
	if n&1 == 0 {
		r = t * (1 + q*(-1.0/6+q*(1.0/120+q*(-1.0/5040+q*(1.0/362880+q*(-1.0/39916800)))))) // of -0, -0
	} else {
		r = 1 + q*(-1.0/2+q*(1.0/24+q*(-1.0/720+q*(1.0/40320+q*(-1.0/3628800+q*(1.0/479001600))))))
	}
	if n&2 != 0 {
		r = -r
	}
	return float32(r)
}
