package lane

import (
	"encoding/binary"
	"math"
	"math/big"
	"strings"
	"testing"
)

// approximation is an instruction with a result that may be off by some units in the last place: at
// most one, although the manual mostly allows more.
type approximation struct {
	op      string
	flushed bool
	exact   func(x float64) float64
}

var approximations = []approximation{
	{"rcp.approx.f32", false, func(x float64) float64 { return 1 / x }},
	{"rcp.approx.ftz.f32", true, func(x float64) float64 { return 1 / x }},
	{"sqrt.approx.f32", false, math.Sqrt},
	{"sqrt.approx.ftz.f32", true, math.Sqrt},
	{"rsqrt.approx.f32", false, func(x float64) float64 { return 1 / math.Sqrt(x) }},
	{"rsqrt.approx.ftz.f32", true, func(x float64) float64 { return 1 / math.Sqrt(x) }},
	{"ex2.approx.f32", false, math.Exp2},
	{"ex2.approx.ftz.f32", true, math.Exp2},
	{"lg2.approx.f32", false, math.Log2},
	{"lg2.approx.ftz.f32", true, math.Log2},
	{"sin.approx.f32", false, func(x float64) float64 { return math.Sin(reduced(x)) }},
	{"sin.approx.ftz.f32", true, func(x float64) float64 { return math.Sin(reduced(x)) }},
	{"cos.approx.f32", false, func(x float64) float64 { return math.Cos(reduced(x)) }},
	{"cos.approx.ftz.f32", true, func(x float64) float64 { return math.Cos(reduced(x)) }},
	{"tanh.approx.f32", false, math.Tanh},
}

var twoPi, _, _ = big.ParseFloat("6.2831853071795864769252867665590057683943387987502116419498891846156328125724179972560696506842341358", 10, 330, big.ToNearestEven)

// reduced is an angle without its full turns, for which a long pi is needed.
func reduced(x float64) float64 {
	if math.Abs(x) < 3 || math.IsInf(x, 0) || x != x {
		return x
	}
	v := new(big.Float).SetPrec(330).SetFloat64(x)
	turns, _ := new(big.Float).Quo(v, twoPi).Int(nil)
	v.Sub(v, new(big.Float).SetPrec(330).Mul(twoPi, new(big.Float).SetInt(turns)))
	r, _ := v.Float64()
	return r
}

// check reports whether got is as near to the exact result for x as it must be.
func (a *approximation) check(x, got float32) bool {
	if a.flushed {
		x = ftz32(x)
	}
	want := a.exact(float64(x))
	switch {
	case want != want:
		return math.Float32bits(got) == 0x7fffffff
	case math.IsInf(float64(got), 0) || math.IsInf(want, 0):
		return float32(want) == got
	case a.flushed && math.Abs(want) < 0x1p-126:
		return got == 0 || math.Abs(float64(got)) == 0x1p-126
	case want == 0:
		return got == 0 && math.Signbit(float64(got)) == math.Signbit(want)
	}
	_, e := math.Frexp(want)
	ulp := math.Ldexp(1, max(e-24, -149))
	return math.Abs(float64(got)-want) <= ulp
}

// approximate runs the instruction on n inputs with bits that begin at first and are a step apart.
func (a *approximation) approximate(t *testing.T, first, step uint32, n int) {
	d := newDevice(t)
	buf := d.buffer(4 * n)
	for i := range n {
		buf.setWord(i, first+step*uint32(i))
	}
	k := d.kernel(d.load(entry(`
	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r1, %r1, %r2, %t; mul.wide.u32 %a2, %r1, 4; add.u64 %a2, %a2, %o;
	ld.global.f32 %f1, [%a2]; `+a.op+` %f2, %f1; st.global.f32 [%a2], %f2;`)), "k")
	d.run(k, x(n/256), x(256), buf, 0)
	for i := range n {
		if x, got := f32(first+step*uint32(i)), buf.float(i); !a.check(x, got) {
			t.Fatalf("%s of %v (%#x) is %v (%#x), but should be %v", a.op, x, math.Float32bits(x), got, math.Float32bits(got), a.exact(float64(x)))
		}
	}
}

// Approximate functions are within one unit in the last place of their value.
// Inputs are spread over all bit patterns; the soak test takes every one.
func TestApproximations(t *testing.T) {
	n := 1 << 19
	if testing.Short() {
		n = 1 << 15
	}
	for _, a := range approximations {
		a.approximate(t, 0x1234567, uint32(1<<32/n)|1, n)
		for _, edge := range []uint32{0, 0x00800000, 0x3f800000, 0x40490fdb, 0x7f800000, 0x80000000, 0x80800000, 0xbf800000, 0xff800000} {
			a.approximate(t, edge-128, 1, 256)
		}
	}
}

// div.approx gives 0 for divisors above 2^126, and NaN if the dividend is
// infinite; for others, and for div.full always, at most 2 ulp are lost.
func TestApproximateDivision(t *testing.T) {
	values := []float32{0, 1, -3, 0.1, 0x1p-126, 0x1p-149, 0x1.fffffep127, 0x1p126, 0x1.8p126, -0x1p127, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), float32(math.Copysign(0, -1)), 1e10, -1e-10}
	for _, op := range []string{"div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"} {
		d := newDevice(t)
		n := len(values) * len(values)
		buf := d.buffer(8 * n)
		for i := range n {
			buf.setFloat(2*i, values[i/len(values)])
			buf.setFloat(2*i+1, values[i%len(values)])
		}
		k := d.kernel(d.load(entry(`mul.wide.u32 %a2, %t, 8; add.u64 %a2, %a2, %o; ld.global.v2.f32 {%f1, %f2}, [%a2]; `+op+` %f3, %f1, %f2; st.global.f32 [%a2], %f3;`)), "k")
		d.run(k, x(1), x(n), buf, 0)
		for i := range n {
			a, b, got := values[i/len(values)], values[i%len(values)], buf.float(2*i)
			quotient := approximation{op: op, exact: func(float64) float64 { return float64(a) / float64(b) }}
			if strings.Contains(op, "ftz") {
				quotient.flushed = true
				quotient.exact = func(float64) float64 { return float64(ftz32(a)) / float64(ftz32(b)) }
			}
			if large := math.Abs(float64(b)); strings.Contains(op, "approx") && large > 0x1p126 && !math.IsInf(large, 0) {
				quotient.exact = func(float64) float64 { return float64(a) * math.Copysign(0, float64(b)) }
			}
			if !quotient.check(0, got) {
				t.Errorf("%s of %v and %v is %v", op, a, b, got)
			}
		}
	}
}

// rsqrt.approx.f64 has the whole precision, for subnormal numbers, too; only rsqrt.approx.ftz.f64 is a gross approximation.
func TestApproximateDoubles(t *testing.T) {
	const n = 1 << 12
	d := newDevice(t)
	buf := d.buffer(8 * n)
	values := make([]float64, n)
	for i := range values {
		fraction := 0x9e3779b97f4a7c15 * uint64(i+1) >> 12
		values[i] = math.Float64frombits(uint64(i)*0x7ff/n<<52 | fraction)
		binary.LittleEndian.PutUint64(buf.mem[8*i:], math.Float64bits(values[i]))
	}
	k := d.kernel(d.load(entry(`.reg .f64 %d;
	mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r1, %r1, %r2, %t; mul.wide.u32 %a2, %r1, 8; add.u64 %a2, %a2, %o;
	ld.global.f64 %d, [%a2]; rsqrt.approx.f64 %d, %d; st.global.f64 [%a2], %d;`)), "k")
	d.run(k, x(n/256), x(256), buf, 0)
	for i, v := range values {
		exact := new(big.Float).SetPrec(200).SetFloat64(v)
		exact.Quo(big.NewFloat(1), exact.Sqrt(exact))
		want, _ := exact.Float64()
		got := math.Float64frombits(buf.long(i))
		if math.Abs(got-want) > math.Nextafter(want, math.Inf(1))-want {
			t.Fatalf("rsqrt.approx.f64 of %v is %v, want %v", v, got, want)
		}
	}
}
