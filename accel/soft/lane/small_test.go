package lane

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"pegasus/accel/soft/lane/internal/lanetest"
)

// oracle represents a format by the list of its numbers, and rounds by a search for the nearest one.
type oracle struct {
	width   int
	numbers []float64 // finite, not negative, by their bits
	above   float64   // the next number after the largest
	beyond  uint64    // the bits for values beyond
	nan     uint64
}

func newOracle(width, fraction, bias int, largest, beyond, nan uint64) *oracle {
	o := &oracle{width: width, beyond: beyond, nan: nan}
	number := func(i uint64) float64 {
		e, f := int(i>>fraction), float64(i&(1<<fraction-1))
		if e == 0 {
			return math.Ldexp(f, 1-bias-fraction)
		}
		return math.Ldexp(f+math.Ldexp(1, fraction), e-bias-fraction)
	}
	for i := range largest + 1 {
		o.numbers = append(o.numbers, number(i))
	}
	o.above = number(largest + 1)
	return o
}

var (
	halfOracle  = newOracle(16, 10, 15, 0x7bff, 0x7c00, 0x7fff)
	brainOracle = newOracle(16, 7, 127, 0x7f7f, 0x7f80, 0x7fff)
	e4m3Oracle  = newOracle(8, 3, 7, 0x7e, 0x7f, 0x7f)
	e5m2Oracle  = newOracle(8, 2, 15, 0x7b, 0x7c, 0x7f)
)

var oracles = map[string]*oracle{"f16": halfOracle, "bf16": brainOracle, "e4m3": e4m3Oracle, "e5m2": e5m2Oracle}

func (o *oracle) sign() uint64 { return 1 << (o.width - 1) }

func (o *oracle) value(x uint64) float64 {
	m := x & (o.sign() - 1)
	v := math.NaN()
	switch {
	case m < uint64(len(o.numbers)):
		v = o.numbers[m]
	case m == o.beyond && o.beyond != o.nan:
		v = math.Inf(1)
	}
	if x&o.sign() != 0 {
		v = -v
	}
	return v
}

// round finds the number for an exact value that is not zero. twice compares
// the double of its magnitude with another number.
func (o *oracle) round(twice func(x float64) int, neg bool, mode string) uint64 {
	at := func(i int) float64 {
		if i == len(o.numbers) {
			return o.above
		}
		return o.numbers[i]
	}
	// The value is at numbers[i], or above it and below the next.
	i := sort.Search(len(o.numbers), func(i int) bool { return twice(2*at(i+1)) < 0 })
	up := true
	if i == len(o.numbers) { // beyond even the next after the largest
		i--
	} else {
		c := twice(at(i) + at(i+1))
		up = c > 0 || c == 0 && i&1 == 1
		if twice(2*at(i)) == 0 {
			mode = "exact"
		}
	}
	switch mode {
	case "exact", "rz":
		up = false
	case "rm":
		up = neg
	case "rp":
		up = !neg
	}
	r := uint64(i)
	if up {
		if r++; int(r) == len(o.numbers) {
			r = o.beyond
		}
	}
	if neg {
		r |= o.sign()
	}
	return r
}

// rounded is round for any float64.
func (o *oracle) rounded(v float64, mode string) uint64 {
	sign := uint64(0)
	if math.Signbit(v) {
		sign = o.sign()
	}
	switch {
	case v != v:
		return o.nan
	case math.IsInf(v, 0):
		return sign | o.beyond
	case v == 0:
		return sign
	}
	return o.round(func(x float64) int { return cmp.Compare(2*math.Abs(v), x) }, v < 0, mode)
}

// roundedBig is round for big numbers but zero.
func (o *oracle) roundedBig(v *big.Float, mode string) uint64 {
	a := new(big.Float).Abs(v)
	a.Add(a, a)
	return o.round(func(x float64) int { return a.Cmp(big.NewFloat(x)) }, v.Sign() < 0, mode)
}

// arithmetic computes add, sub, mul or fma exactly and rounds once.
func (o *oracle) arithmetic(op string, a, b, c uint64) uint64 {
	x, y, z := o.value(a), o.value(b), o.value(c)
	var n float64
	exact := new(big.Float).SetPrec(2000)
	if !math.IsNaN(x+y+z) && !math.IsInf(x, 0) && !math.IsInf(y, 0) && !math.IsInf(z, 0) {
		bx, by := bigOf(x), bigOf(y)
		switch op {
		case "add":
			exact.Add(bx, by)
		case "sub":
			exact.Sub(bx, by)
		case "mul":
			exact.Mul(bx, by)
		case "fma":
			exact.Add(new(big.Float).SetPrec(2000).Mul(bx, by), bigOf(z))
		}
	}
	switch op {
	case "add":
		n = x + y
	case "sub":
		n = x - y
	case "mul":
		n = x * y
	case "fma":
		n = math.FMA(x, y, z)
	}
	if exact.Sign() != 0 {
		return o.roundedBig(exact, "rn")
	}
	return o.rounded(n, "rn")
}

// registerTypes are the types of registers by the letter of their name.
var registerTypes = map[byte]string{'h': "b16", 'r': "b32", 'l': "b64"}

// each executes one instruction for many operands: values[k][i] is source i of
// the k-th. Letters are those of forms.txt.
func each(t *testing.T, form string, dst byte, src string, values [][]uint64) []uint64 {
	t.Helper()
	const threads = 256
	var b strings.Builder
	b.WriteString(".version 8.4\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in)\n{\n")
	b.WriteString(".reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .b64 %a<4>; .reg .b32 %t<4>; .reg .pred %p<4>;\n")
	b.WriteString("ld.param.u64 %a0, [out]; ld.param.u64 %a1, [in]; mov.u32 %t0, %tid.x; mov.u32 %t1, %ctaid.x; mad.lo.u32 %t0, %t1, 256, %t0;\n")
	fmt.Fprintf(&b, "mul.wide.u32 %%a2, %%t0, 8; add.u64 %%a0, %%a0, %%a2; mul.wide.u32 %%a2, %%t0, %d; add.u64 %%a1, %%a1, %%a2;\n", 8*len(src))
	args := fmt.Sprintf("%%%c7", dst)
	if dst == 'p' {
		args = "%p0|%p1"
	}
	for i, s := range src {
		fmt.Fprintf(&b, "ld.global.%s %%%c%d, [%%a1+%d];\n", registerTypes[byte(s)], s, i, 8*i)
		args += fmt.Sprintf(", %%%c%d", s, i)
	}
	fmt.Fprintf(&b, "%s %s;\n", form, args)
	if dst == 'p' {
		b.WriteString("selp.b32 %r6, 1, 0, %p0; selp.b32 %r7, 2, 0, %p1; or.b32 %r7, %r7, %r6; st.global.b32 [%a0], %r7;\n")
	} else {
		fmt.Fprintf(&b, "st.global.%s [%%a0], %%%c7;\n", registerTypes[dst], dst)
	}
	b.WriteString("ret;\n}\n")
	d := newDevice(t)
	blocks := (len(values) + threads - 1) / threads
	out, in := d.buffer(8*threads*blocks), d.buffer(8*len(src)*threads*blocks)
	for k, v := range values {
		for i, x := range v {
			in.setWord(2*(k*len(src)+i), uint32(x))
			in.setWord(2*(k*len(src)+i)+1, uint32(x>>32))
		}
	}
	im := d.load([]byte(b.String()))
	d.run(d.kernel(im, "k"), x(blocks), x(threads), out, in)
	r := make([]uint64, len(values))
	for k := range r {
		r[k] = out.long(k)
	}
	return r
}

// all are the values of 16 bits.
func all() (list [][]uint64) {
	for i := range uint64(1 << 16) {
		list = append(list, []uint64{i})
	}
	return list
}

// agree compares the results of a form with the expected ones.
func agree(t *testing.T, form string, dst byte, src string, values [][]uint64, want func(v []uint64) uint64) {
	t.Helper()
	wrong := 0
	for k, got := range each(t, form, dst, src, values) {
		if w := want(values[k]); got != w {
			if wrong++; wrong <= 5 {
				t.Errorf("%s %x: got %x, want %x", form, values[k], got, w)
			}
		}
	}
	if wrong > 5 {
		t.Errorf("%s: %d of %d are wrong", form, wrong, len(values))
	}
}

// Every value of 16 bits has the right result in every operation on one.
func TestSmallUnary(t *testing.T) {
	if testing.Short() {
		t.Skip("many values in one goroutine: slow under the race detector, which finds nothing there")
	}
	for name, o := range map[string]*oracle{"f16": halfOracle, "bf16": brainOracle} {
		nan := func(x uint64) bool { v := o.value(x); return v != v }
		flushed := func(x uint64) uint64 {
			if v := o.value(x); math.Abs(v) < 0x1p-14 {
				return x & 0x8000
			}
			return x
		}
		or := func(x, r uint64) uint64 {
			if nan(x) {
				return 0x7fff
			}
			return r
		}
		agree(t, "neg."+name, 'h', "h", all(), func(v []uint64) uint64 { return or(v[0], v[0]^0x8000) })
		agree(t, "abs."+name, 'h', "h", all(), func(v []uint64) uint64 { return or(v[0], v[0]&0x7fff) })
		if name == "f16" {
			agree(t, "neg.ftz.f16", 'h', "h", all(), func(v []uint64) uint64 { return or(v[0], flushed(v[0])^0x8000) })
			agree(t, "ex2.approx.f16", 'h', "h", all(), func(v []uint64) uint64 { return o.rounded(math.Pow(2, o.value(v[0])), "rn") })
		}
		agree(t, "tanh.approx."+name, 'h', "h", all(), func(v []uint64) uint64 {
			x := o.value(v[0])
			r := -math.Expm1(-2*math.Abs(x)) / (1 + math.Exp(-2*math.Abs(x)))
			return o.rounded(math.Copysign(r, x), "rn")
		})
		agree(t, "cvt.f32."+name, 'r', "h", all(), func(v []uint64) uint64 { return uint64(b32(float32(o.value(v[0])))) })
		agree(t, "cvt.f64."+name, 'l', "h", all(), func(v []uint64) uint64 { return b64(o.value(v[0])) })
		agree(t, "cvt.sat."+name+"."+name, 'h', "h", all(), func(v []uint64) uint64 {
			x := o.value(v[0])
			if x != x {
				return 0
			}
			return o.rounded(math.Abs(min(max(x, 0), 1)), "rn")
		})
		agree(t, "cvt.rmi."+name+"."+name, 'h', "h", all(), func(v []uint64) uint64 { return o.rounded(math.Floor(o.value(v[0])), "rn") })
		agree(t, "cvt.rni.s32."+name, 'r', "h", all(), func(v []uint64) uint64 { return uint64(uint32(toInt(o.value(v[0]), "rni", 32, true, false))) })
		agree(t, "cvt.rzi.u8."+name, 'r', "h", all(), func(v []uint64) uint64 { return toInt(o.value(v[0]), "rzi", 8, false, false) })
		agree(t, "cvt.rpi.s64."+name, 'l', "h", all(), func(v []uint64) uint64 { return toInt(o.value(v[0]), "rpi", 64, true, false) })
		other, p := "bf16", brainOracle
		if name == "bf16" {
			other, p = "f16", halfOracle
		}
		for _, mode := range []string{"rn", "rz", "rm", "rp"} {
			agree(t, "cvt."+mode+"."+other+"."+name, 'h', "h", all(), func(v []uint64) uint64 { return p.rounded(o.value(v[0]), mode) })
			agree(t, "cvt."+mode+"."+name+".s16", 'h', "h", all(), func(v []uint64) uint64 { return o.rounded(float64(int16(v[0])), mode) })
		}
	}
	agree(t, "ex2.approx.ftz.bf16", 'h', "h", all(), func(v []uint64) uint64 {
		r := brainOracle.rounded(math.Pow(2, brainOracle.value(v[0])), "rn")
		if r < 0x80 {
			return 0
		}
		return r
	})
	for name, o := range map[string]*oracle{"e4m3": e4m3Oracle, "e5m2": e5m2Oracle} {
		agree(t, "cvt.rn.f16x2."+name+"x2", 'r', "h", all(), func(v []uint64) uint64 {
			return halfOracle.rounded(o.value(v[0]>>8), "rn")<<16 | halfOracle.rounded(o.value(v[0]&0xff), "rn")
		})
		agree(t, "cvt.rn.satfinite."+name+"x2.f16x2", 'h', "r", all(), func(v []uint64) uint64 { return o.saturated(halfOracle.value(v[0])) | o.saturated(0)<<8 })
	}
}

// saturated is rounding to nearest with .satfinite.
func (o *oracle) saturated(v float64) uint64 {
	r := o.rounded(v, "rn")
	if v == v && r&(o.sign()-1) >= uint64(len(o.numbers)) {
		return r&o.sign() | uint64(len(o.numbers)-1)
	}
	return r
}

// around are f32 values at, between and beside the numbers of a format.
func (o *oracle) around(r *rand.Rand) (list [][]uint64) {
	add := func(v float64) {
		x := math.Float32bits(float32(v))
		for _, d := range []uint32{0, 1, ^uint32(0)} {
			list = append(list, []uint64{uint64(x + d)}, []uint64{uint64((x + d) ^ 1<<31)})
		}
	}
	step := max(1, len(o.numbers)/3000)
	for i := 0; i < len(o.numbers); i += 1 + r.IntN(step) {
		next := o.above
		if i+1 < len(o.numbers) {
			next = o.numbers[i+1]
		}
		add(o.numbers[i])
		add(o.numbers[i]/2 + next/2)
	}
	add(o.above)
	for _, v := range []float64{0, 1, math.MaxFloat32, math.Inf(1), math.NaN(), 0x1p-149, 0x1p-126} {
		add(v)
	}
	return list
}

// Rounding of f32 to small formats is right in every mode.
func TestSmallFromF32(t *testing.T) {
	r := lanetest.Random(21)
	for _, name := range []string{"f16", "bf16"} {
		o := oracles[name]
		values := o.around(r)
		for _, mode := range []string{"rn", "rz", "rm", "rp"} {
			agree(t, "cvt."+mode+"."+name+".f32", 'h', "r", values, func(v []uint64) uint64 { return o.rounded(float64(f32(uint32(v[0]))), mode) })
		}
		agree(t, "cvt.rn.ftz."+name+".f32", 'h', "r", values, func(v []uint64) uint64 { return o.rounded(float64(ftz32(f32(uint32(v[0])))), "rn") })
		agree(t, "cvt.rn.satfinite."+name+".f32", 'h', "r", values, func(v []uint64) uint64 { return o.saturated(float64(f32(uint32(v[0])))) })
		agree(t, "cvt.rz.relu."+name+".f32", 'h', "r", values, func(v []uint64) uint64 {
			if x := o.rounded(float64(f32(uint32(v[0]))), "rz"); x&0x8000 == 0 {
				return x
			}
			return 0
		})
		var pairs [][]uint64
		for i := range values {
			pairs = append(pairs, []uint64{values[i][0], values[r.IntN(len(values))][0]})
		}
		agree(t, "cvt.rz."+name+"x2.f32", 'r', "rr", pairs, func(v []uint64) uint64 {
			return o.rounded(float64(f32(uint32(v[0]))), "rz")<<16 | o.rounded(float64(f32(uint32(v[1]))), "rz")
		})
	}
	for _, name := range []string{"e4m3", "e5m2"} {
		o := oracles[name]
		var pairs [][]uint64
		for _, v := range o.around(r) {
			pairs = append(pairs, []uint64{v[0], uint64(r.Uint32())})
		}
		agree(t, "cvt.rn.satfinite."+name+"x2.f32", 'h', "rr", pairs, func(v []uint64) uint64 {
			return o.saturated(float64(f32(uint32(v[0]))))<<8 | o.saturated(float64(f32(uint32(v[1]))))
		})
	}
}

// Integers and f64 round once.
func TestSmallFromWide(t *testing.T) {
	r := lanetest.Random(22)
	for _, name := range []string{"f16", "bf16"} {
		o := oracles[name]
		var whole, long [][]uint64
		for range 20000 {
			whole = append(whole, []uint64{r.Uint64() >> r.IntN(64)})
			v := o.numbers[r.IntN(len(o.numbers)-1)]
			b := math.Float64bits(v + (o.numbers[1]+v/1024)*float64(r.IntN(9))/8)
			long = append(long, []uint64{b + uint64(r.IntN(3)) - 1 ^ r.Uint64()>>63<<63})
		}
		for _, mode := range []string{"rn", "rz", "rm", "rp"} {
			agree(t, "cvt."+mode+"."+name+".u64", 'h', "l", whole, func(v []uint64) uint64 {
				if v[0] == 0 {
					return 0
				}
				return o.roundedBig(new(big.Float).SetUint64(v[0]), mode)
			})
			agree(t, "cvt."+mode+"."+name+".f64", 'h', "l", long, func(v []uint64) uint64 { return o.rounded(f64(v[0]), mode) })
		}
	}
}

// halfOperands makes operands of 16 bits: any, close to each other, and special ones.
func halfOperands(r *rand.Rand, n, sources int) (list [][]uint64) {
	special := []uint64{0, 0x8000, 1, 0x8001, 0x3ff, 0x400, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00, 0xffff, 0x3c00, 0x7f80, 0xff80, 0x7f7f, 0x3f80}
	for range n {
		v := make([]uint64, sources)
		for i := range v {
			switch r.IntN(4) {
			case 0:
				v[i] = special[r.IntN(len(special))]
			case 1:
				v[i] = uint64(0x3800 + r.IntN(0xa00) + r.IntN(2)<<15)
			default:
				v[i] = uint64(r.Uint32() & 0xffff)
			}
		}
		list = append(list, v)
	}
	return list
}

// Arithmetic is exact and rounded once.
func TestSmallArithmetic(t *testing.T) {
	if testing.Short() {
		t.Skip("many values in one goroutine: slow under the race detector, which finds nothing there")
	}
	r := lanetest.Random(23)
	for _, name := range []string{"f16", "bf16"} {
		o := oracles[name]
		for _, op := range []string{"add", "sub", "mul", "fma"} {
			letters := "hh"
			form := op + "."
			if op == "fma" {
				letters, form = "hhh", "fma.rn."
			}
			values := halfOperands(r, 30000, len(letters))
			result := func(v []uint64) uint64 { return o.arithmetic(op, v[0], v[1], v[len(v)-1]) }
			agree(t, form+name, 'h', letters, values, result)
			if name == "bf16" {
				continue
			}
			zero := func(x uint64) uint64 {
				if math.Abs(o.value(x)) < 0x1p-14 {
					return x & 0x8000
				}
				return x
			}
			flush := func(v []uint64) []uint64 {
				f := make([]uint64, len(v))
				for i := range v {
					f[i] = zero(v[i])
				}
				return f
			}
			rn := strings.TrimSuffix(form, ".")
			agree(t, rn+".ftz.f16", 'h', letters, values, func(v []uint64) uint64 { return zero(result(flush(v))) })
			agree(t, rn+".sat.f16", 'h', letters, values, func(v []uint64) uint64 {
				x := o.value(result(v))
				if x != x || x <= 0 {
					return 0
				}
				return o.rounded(min(x, 1), "rn")
			})
		}
		agree(t, "fma.rn.relu."+name, 'h', "hhh", halfOperands(r, 20000, 3), func(v []uint64) uint64 {
			if x := o.arithmetic("fma", v[0], v[1], v[2]); x&0x8000 == 0 {
				return x
			}
			return 0
		})
	}
}

// The lesser and the greater by their order as numbers.
func TestSmallExtrema(t *testing.T) {
	r := lanetest.Random(24)
	for _, name := range []string{"f16", "bf16"} {
		o := oracles[name]
		values := halfOperands(r, 20000, 2)
		for _, op := range []string{"min", "max"} {
			choose := func(a, b uint64) uint64 {
				x, y := o.value(a), o.value(b)
				less := x < y || x == y && math.Signbit(x)
				switch {
				case x != x && y != y:
					return 0x7fff
				case x != x:
					return b
				case y != y:
					return a
				case less == (op == "min"):
					return a
				}
				return b
			}
			nan := func(v []uint64) bool { return math.IsNaN(o.value(v[0])) || math.IsNaN(o.value(v[1])) }
			agree(t, op+"."+name, 'h', "hh", values, func(v []uint64) uint64 { return choose(v[0], v[1]) })
			agree(t, op+".NaN."+name, 'h', "hh", values, func(v []uint64) uint64 {
				if nan(v) {
					return 0x7fff
				}
				return choose(v[0], v[1])
			})
			agree(t, op+".xorsign.abs."+name, 'h', "hh", values, func(v []uint64) uint64 {
				c := choose(v[0]&0x7fff, v[1]&0x7fff)
				if x := o.value(c); x != x {
					return c
				}
				return c | (v[0]^v[1])&0x8000
			})
		}
	}
}

// Pairs are two values, each on its own.
func TestSmallPairs(t *testing.T) {
	r := lanetest.Random(25)
	for _, name := range []string{"f16", "bf16"} {
		o := oracles[name]
		var values [][]uint64
		low, high := halfOperands(r, 5000, 3), halfOperands(r, 5000, 3)
		for i := range low {
			values = append(values, []uint64{low[i][0] | high[i][0]<<16, low[i][1] | high[i][1]<<16, low[i][2] | high[i][2]<<16})
		}
		agree(t, "fma.rn."+name+"x2", 'r', "rrr", values, func(v []uint64) uint64 {
			return o.arithmetic("fma", v[0]&0xffff, v[1]&0xffff, v[2]&0xffff) | o.arithmetic("fma", v[0]>>16, v[1]>>16, v[2]>>16)<<16
		})
		for i := range values {
			values[i] = values[i][:2]
		}
		less := func(a, b uint64) uint64 {
			if o.value(a) < o.value(b) {
				return 1
			}
			return 0
		}
		agree(t, "setp.lt."+name+"x2", 'p', "rr", values, func(v []uint64) uint64 { return less(v[0]&0xffff, v[1]&0xffff) | less(v[0]>>16, v[1]>>16)<<1 })
		agree(t, "set.lt.u32."+name+"x2", 'r', "rr", values, func(v []uint64) uint64 {
			return 0xffff*less(v[0]&0xffff, v[1]&0xffff) | 0xffff0000*less(v[0]>>16, v[1]>>16)
		})
		agree(t, "setp.geu."+name, 'p', "hh", low2(low), func(v []uint64) uint64 { return 1 << less(v[0], v[1]) })
	}
}

// low2 takes two sources of three.
func low2(list [][]uint64) (out [][]uint64) {
	for _, v := range list {
		out = append(out, v[:2])
	}
	return out
}
