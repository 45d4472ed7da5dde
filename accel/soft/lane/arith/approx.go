package arith

import "math"

// The approximate functions, by polynomials in float64 rounded once: within 1
// ulp, where the manual allows 2 and more. The vector kernels are compiled from
// them, so they have no branches but for choices.

// roundMagic, when added, makes the lowest bits of the sum those of the nearest integer.
const roundMagic = 0x1.8p52

// ex2 returns 2 to the power of x.
func ex2(x float32) float32 {
	r := float32(power2(float64(x)))
	if x != x {
		r = math.Float32frombits(Nan32)
	}
	return r
}

// power2 returns 2 to the power of v, clamped to [-151, 129].
func power2(v float64) float64 {
	if !(v > -151) { // 0 as a float32
		v = -151
	}
	if v > 129 { // infinite as a float32
		v = 129
	}
	m := v + roundMagic
	t := (v - (m - roundMagic)) * math.Ln2
	// e^t for |t| <= ln(2)/2
	p := math.FMA(t, 1.0/40320, 1.0/5040)
	p = math.FMA(t, p, 1.0/720)
	p = math.FMA(t, p, 1.0/120)
	p = math.FMA(t, p, 1.0/24)
	p = math.FMA(t, p, 1.0/6)
	p = math.FMA(t, p, 1.0/2)
	p = math.FMA(t, p, 1)
	p = math.FMA(t, p, 1)
	return math.Float64frombits(math.Float64bits(p) + math.Float64bits(m)<<52)
}

// tanh32 returns the hyperbolic tangent.
func tanh32(x float32) float32 {
	e := power2(float64(2 * math.Log2E * float64(x))) // not fused with the sum there
	r := float32((e - 1) / (e + 1))
	if a := math.Float32bits(x) &^ (1 << 31); a < 0x39800000 { // 2^-12
		r = x
	}
	if x != x {
		r = math.Float32frombits(Nan32)
	}
	return r
}

// rsqrt returns 1/√x, by two steps from an estimate with an error of less than 4 %.
func rsqrt(x float32) float32 {
	v := float64(x)
	y := math.Float64frombits(0x5fe6eb50c7b537a9 - math.Float64bits(v)>>1)
	e := math.FMA(-(v * y), y, 1)
	y = math.FMA(y*e, math.FMA(e, 0.375, 0.5), y)
	e = math.FMA(-(v * y), y, 1)
	r := float32(math.FMA(y*e, math.FMA(e, 0.375, 0.5), y))
	if x == 0 { // an infinity of its sign
		r = math.Float32frombits(math.Float32bits(x) | 0x7f800000)
	}
	if x > math.MaxFloat32 {
		r = 0
	}
	if !(x >= 0) {
		r = math.Float32frombits(Nan32)
	}
	return r
}

// quotientApprox multiplies by a reciprocal that is flushed if it is subnormal.
func quotientApprox(x, y float32) float32 {
	r := x / y
	b := math.Float32bits(y)
	if a := b &^ (1 << 31); a > 0x7e800000 && a < 0x7f800000 { // 2^126, infinity
		r = x * math.Float32frombits(b&(1<<31))
	}
	return r
}

// lg2 returns the binary logarithm.
func lg2(x float32) float32 {
	b := math.Float64bits(float64(x)) // never subnormal
	// x = m·2^e with m in [√½, √2)
	const low = 0x3fe6a09e667f3bcd
	m := math.Float64frombits(b - (b-low)&(0xfff<<52))
	e := float64(int32((b-low)>>32) >> 20)
	s := (m - 1) / (m + 1)
	q := s * s
	p := math.FMA(q, 2.0/13, 2.0/11)
	p = math.FMA(q, p, 2.0/9)
	p = math.FMA(q, p, 2.0/7)
	p = math.FMA(q, p, 2.0/5)
	p = math.FMA(q, p, 2.0/3)
	p = math.FMA(q, p, 2)
	r := float32(math.FMA(s*p, math.Log2E, e))
	if x == 0 {
		r = math.Float32frombits(0xff800000) // -inf
	}
	if x > math.MaxFloat32 {
		r = x
	}
	if !(x >= 0) {
		r = math.Float32frombits(Nan32)
	}
	return r
}

// sin32 returns the sine.
func sin32(x float32) float32 {
	if near(x) {
		return sinNear(x)
	}
	return CanonF32(float32(math.Sin(float64(x))))
}

// cos32 returns the cosine.
func cos32(x float32) float32 {
	if near(x) {
		return cosNear(x)
	}
	return CanonF32(float32(math.Cos(float64(x))))
}

// near reports whether sinNear and cosNear are accurate for x.
func near(x float32) bool { return x > -0x1p28 && x < 0x1p28 }

func sinNear(x float32) float32 { return quarter(float64(x), 0) }
func cosNear(x float32) float32 { return quarter(float64(x), 1) }

// quarter returns the sine of v + n·π/2.
func quarter(v float64, n uint64) float32 {
	// hi + lo is π/2, with twice the bits of a float64.
	const hi, lo = 0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54
	m := float64(v*(2/math.Pi)) + roundMagic // rounded twice, also where Go would fuse it
	k := m - roundMagic
	t := math.FMA(k, -lo, math.FMA(k, -hi, v))
	q := t * t
	s := math.FMA(q, -1.0/39916800, 1.0/362880)
	s = math.FMA(q, s, -1.0/5040)
	s = math.FMA(q, s, 1.0/120)
	s = math.FMA(q, s, -1.0/6)
	s = t * math.FMA(q, s, 1) // of -0, -0
	c := math.FMA(q, 1.0/479001600, -1.0/3628800)
	c = math.FMA(q, c, 1.0/40320)
	c = math.FMA(q, c, -1.0/720)
	c = math.FMA(q, c, 1.0/24)
	c = math.FMA(q, c, -1.0/2)
	c = math.FMA(q, c, 1)
	n += math.Float64bits(m)
	r := s
	if n&1 != 0 {
		r = c
	}
	return float32(math.Float64frombits(math.Float64bits(r) ^ n&2<<62))
}
