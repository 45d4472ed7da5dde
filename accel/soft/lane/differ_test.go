package lane

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// thread is what one thread of the reference interpreter knows: it runs alone,
// an instruction at a time.
type thread struct {
	r [8]uint32
	l [8]uint64
	p [4]bool
	c bool // carry
}

// step is an instruction of a random program: its text, and what it does to a
// thread, written without a look at the engine.
type step struct {
	text string
	do   func(t *thread)
	// jump, if not nil, says whether the thread goes to target.
	jump   func(t *thread) bool
	target int
}

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

var bigMode = map[string]big.RoundingMode{"rn": big.ToNearestEven, "rz": big.ToZero, "rm": big.ToNegativeInf, "rp": big.ToPositiveInf}

// rounded is an exact operation rounded to a format of prec bits with smallest
// exponent least, by big numbers alone.
func rounded(z *big.Float, mode string, prec uint, least, most int) float64 {
	if z.Sign() == 0 {
		return 0
	}
	e := z.MantExp(nil)
	p := int(prec)
	if e-p < least {
		p = e - least
	}
	tiny := math.Ldexp(1, least)
	neg := z.Sign() < 0
	sign := 1.0
	if neg {
		sign = -1
	}
	away := mode == "rp" && !neg || mode == "rm" && neg
	if p <= 0 { // below the smallest number
		half := new(big.Float).SetFloat64(tiny / 2)
		if least == -1074 {
			half = new(big.Float).SetMantExp(big.NewFloat(1), -1075)
		}
		abs := new(big.Float).Abs(z)
		if away || mode == "rn" && abs.Cmp(half) > 0 {
			return sign * tiny
		}
		return math.Copysign(0, sign)
	}
	r := new(big.Float).SetPrec(uint(p)).SetMode(bigMode[mode]).Set(z)
	if r.MantExp(nil) > most {
		if away || mode == "rn" {
			return math.Inf(int(sign))
		}
		return sign * math.Ldexp(1-math.Ldexp(1, -int(prec)), most)
	}
	v, _ := r.Float64()
	return v
}

func bigOf(x float64) *big.Float { return new(big.Float).SetPrec(5000).SetFloat64(x) }

// exactly computes add, sub, mul, fma, div or sqrt with any rounding.
func exactly(op, mode string, x, y, z float64, single bool) float64 {
	var n float64
	if op != "fma" {
		z = 0
	}
	switch op {
	case "add":
		n = x + y
	case "sub":
		n, y = x-y, -y
	case "mul":
		n = x * y
	case "fma":
		n = math.FMA(x, y, z)
	case "div":
		n = x / y
	case "sqrt":
		n, y = math.Sqrt(x), 0
	}
	for _, v := range []float64{x, y, z} {
		if v != v || math.IsInf(v, 0) {
			return n
		}
	}
	if op == "div" && y == 0 || op == "sqrt" && x <= 0 {
		return n
	}
	r := new(big.Float).SetPrec(5000)
	zero := n
	switch op {
	case "add", "sub":
		r.Add(bigOf(x), bigOf(y))
		if mode == "rm" && (math.Signbit(x) || math.Signbit(y)) {
			zero = math.Copysign(0, -1)
		}
	case "mul":
		r.Mul(bigOf(x), bigOf(y))
	case "fma":
		r.Mul(bigOf(x), bigOf(y))
		r.Add(r, bigOf(z))
		if mode == "rm" && (math.Signbit(x) != math.Signbit(y) || math.Signbit(z)) {
			zero = math.Copysign(0, -1)
		}
	case "div":
		r.Quo(bigOf(x), bigOf(y))
	case "sqrt":
		r.Sqrt(bigOf(x))
	}
	if r.Sign() == 0 {
		return zero
	}
	if single {
		return rounded(r, mode, 24, -149, 128)
	}
	return rounded(r, mode, 53, -1074, 1024)
}

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

func compare[T float32 | float64 | int32 | uint32 | int64 | uint64](op string, x, y T) bool {
	nan := x != x || y != y
	switch op {
	case "eq":
		return x == y
	case "ne":
		return !nan && x != y
	case "lt", "lo":
		return x < y
	case "le", "ls":
		return x <= y
	case "gt", "hi":
		return x > y
	case "ge", "hs":
		return x >= y
	case "equ":
		return nan || x == y
	case "neu":
		return nan || x != y
	case "ltu":
		return nan || x < y
	case "leu":
		return nan || x <= y
	case "gtu":
		return nan || x > y
	case "geu":
		return nan || x >= y
	case "num":
		return !nan
	}
	return nan
}

// writer makes random programs.
type writer struct{ *rand.Rand }

func oneOf[T any](w writer, list ...T) T { return list[w.IntN(len(list))] }

func (w writer) special() uint64 {
	return oneOf[uint64](w, 0, 1, 1<<31, 1<<63, 0x7fffffff, math.MaxUint64, 0x7fffffffffffffff, 31, 32, 33, 63, 64, 65, 255, 0x8000, 0xff80,
		0x3f800000, 0x7f800000, 0xff800000, 0x7fc00001, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff, 0x4f000000, 0xcf000000, 0x5f000000, 0x47800000, 0x3f000000, 0x40200000, 0xbfc00000, 0x33800000,
		0x3ff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000001, 0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff, 0x41e0000000000000, 0x41dfffffffc00000, 0x43e0000000000000, 0x43f0000000000000, 0x3fe0000000000000, 0x4004000000000000, 0x36a0000000000000, 0x380fffffffffffff, 0x47efffffefffffff, 0x3cb0000000000000)
}

func (w writer) value() uint64 {
	switch w.IntN(5) {
	case 0:
		return w.Uint64()
	case 1:
		return uint64(math.Float32bits(float32(w.NormFloat64()))) | uint64(math.Float32bits(float32(w.NormFloat64()*1e9)))<<32
	case 2:
		return math.Float64bits(w.NormFloat64() * math.Ldexp(1, w.IntN(140)-70))
	}
	return w.special()
}

// integers makes an instruction on 32- or 64-bit integers.
func (w writer) integers() step {
	d, a, b, c := w.IntN(8), w.IntN(8), w.IntN(8), w.IntN(8)
	if w.IntN(2) == 0 {
		return w.longs(d, a, b, c)
	}
	text := func(op string) string { return fmt.Sprintf("%s %%r%d, %%r%d, %%r%d", op, d, a, b) }
	two := func(op string, f func(x, y uint32) uint32) step {
		return step{text: text(op), do: func(t *thread) { t.r[d] = f(t.r[a], t.r[b]) }}
	}
	three := func(op string, f func(x, y, z uint32) uint32) step {
		return step{text: text(op) + fmt.Sprintf(", %%r%d", c), do: func(t *thread) { t.r[d] = f(t.r[a], t.r[b], t.r[c]) }}
	}
	return oneOf(w,
		two("add.u32", func(x, y uint32) uint32 { return x + y }),
		two("sub.s32", func(x, y uint32) uint32 { return x - y }),
		two("add.sat.s32", func(x, y uint32) uint32 {
			return uint32(clamped(big.NewInt(int64(int32(x))+int64(int32(y))), 32, true))
		}),
		two("sub.sat.s32", func(x, y uint32) uint32 {
			return uint32(clamped(big.NewInt(int64(int32(x))-int64(int32(y))), 32, true))
		}),
		two("mul.lo.s32", func(x, y uint32) uint32 { return x * y }),
		two("mul.hi.u32", func(x, y uint32) uint32 { return uint32(uint64(x) * uint64(y) >> 32) }),
		two("mul.hi.s32", func(x, y uint32) uint32 { return uint32(int64(int32(x)) * int64(int32(y)) >> 32) }),
		three("mad.lo.u32", func(x, y, z uint32) uint32 { return x*y + z }),
		three("mad.hi.s32", func(x, y, z uint32) uint32 { return uint32(int64(int32(x))*int64(int32(y))>>32) + z }),
		two("div.u32", func(x, y uint32) uint32 {
			if y == 0 {
				return math.MaxUint32
			}
			return x / y
		}),
		two("div.s32", func(x, y uint32) uint32 {
			if y == 0 {
				return math.MaxUint32
			}
			return uint32(int32(x) / int32(y))
		}),
		two("rem.s32", func(x, y uint32) uint32 {
			if y == 0 {
				return x
			}
			return uint32(int32(x) % int32(y))
		}),
		two("min.s32", func(x, y uint32) uint32 { return uint32(min(int32(x), int32(y))) }),
		two("max.u32", func(x, y uint32) uint32 { return max(x, y) }),
		two("shl.b32", func(x, y uint32) uint32 { return uint32(uint64(x) << min(y, 32)) }),
		two("shr.u32", func(x, y uint32) uint32 { return uint32(uint64(x) >> min(y, 32)) }),
		two("shr.s32", func(x, y uint32) uint32 { return uint32(int64(int32(x)) >> min(y, 32)) }),
		three("shf.l.wrap.b32", func(x, y, z uint32) uint32 { return uint32((uint64(y)<<32 | uint64(x)) << (z & 31) >> 32) }),
		three("shf.r.clamp.b32", func(x, y, z uint32) uint32 { return uint32((uint64(y)<<32 | uint64(x)) >> min(z, 32)) }),
		three("prmt.b32", func(x, y, z uint32) (r uint32) {
			for i := range 4 {
				s := z >> (4 * i) & 15
				v := byte((uint64(y)<<32 | uint64(x)) >> (8 * (s & 7)))
				if s&8 != 0 {
					v = byte(int8(v) >> 7)
				}
				r |= uint32(v) << (8 * i)
			}
			return r
		}),
		three("bfe.s32", func(x, y, z uint32) (r uint32) {
			pos, n := y&255, z&255
			if n == 0 {
				return 0
			}
			sign := x >> min(pos+n-1, 31) & 1
			for i := range uint32(32) {
				bit := sign
				if i < n && pos+i <= 31 {
					bit = x >> (pos + i) & 1
				}
				r |= bit << i
			}
			return r
		}),
		three("bfe.u32", func(x, y, z uint32) (r uint32) {
			pos, n := y&255, z&255
			for i := uint32(0); i < n && i < 32 && pos+i <= 31; i++ {
				r |= x >> (pos + i) & 1 << i
			}
			return r
		}),
		step{fmt.Sprintf("bfi.b32 %%r%d, %%r%d, %%r%d, %%r%d, %%r%d", d, a, b, c, c), func(t *thread) {
			pos, n, r := t.r[c]&255, t.r[c]&255, t.r[b]
			for i := uint32(0); i < n && pos+i <= 31; i++ {
				r = r&^(1<<(pos+i)) | t.r[a]>>i&1<<(pos+i)
			}
			t.r[d] = r
		}, nil, 0},
		step{fmt.Sprintf("lop3.b32 %%r%d, %%r%d, %%r%d, %%r%d, 0x%x", d, a, b, c, 37*a&255), func(t *thread) {
			var r uint32
			for i := range 32 {
				k := t.r[a]>>i&1<<2 | t.r[b]>>i&1<<1 | t.r[c]>>i&1
				r |= uint32(37*a&255) >> k & 1 << i
			}
			t.r[d] = r
		}, nil, 0},
		step{fmt.Sprintf("add.cc.u32 %%r%d, %%r%d, %%r%d", d, a, b), func(t *thread) {
			s := uint64(t.r[a]) + uint64(t.r[b])
			t.r[d], t.c = uint32(s), s>>32 != 0
		}, nil, 0},
		step{fmt.Sprintf("addc.cc.u32 %%r%d, %%r%d, %%r%d", d, a, b), func(t *thread) {
			s := uint64(t.r[a]) + uint64(t.r[b])
			if t.c {
				s++
			}
			t.r[d], t.c = uint32(s), s>>32 != 0
		}, nil, 0},
		step{fmt.Sprintf("mul.wide.s16 %%r%d, %%h0, %%h1", d), func(t *thread) { t.r[d] = uint32(int32(int16(t.r[0])) * int32(int16(t.r[1]))) }, nil, 0},
		step{"mov.b32 {%h0, _}, %r0; mov.b32 {%h1, _}, %r1; " + fmt.Sprintf("min.s16 %%h0, %%h0, %%h1; shr.s16 %%h0, %%h0, 3; mad.lo.s16 %%h1, %%h0, %%h1, %%h0; cvt.s32.s16 %%r%d, %%h1", d), func(t *thread) {
			x, y := int16(t.r[0]), int16(t.r[1])
			x = min(x, y) >> 3
			t.r[d] = uint32(int32(x*y + x))
		}, nil, 0},
	)
}

func (w writer) longs(d, a, b, c int) step {
	text := func(op string) string { return fmt.Sprintf("%s %%l%d, %%l%d, %%l%d", op, d, a, b) }
	two := func(op string, f func(x, y uint64) uint64) step {
		return step{text: text(op), do: func(t *thread) { t.l[d] = f(t.l[a], t.l[b]) }}
	}
	return oneOf(w,
		two("add.u64", func(x, y uint64) uint64 { return x + y }),
		two("mul.lo.s64", func(x, y uint64) uint64 { return x * y }),
		two("mul.hi.u64", func(x, y uint64) uint64 { h, _ := bits.Mul64(x, y); return h }),
		two("mul.hi.s64", func(x, y uint64) uint64 {
			p := new(big.Int).Mul(big.NewInt(int64(x)), big.NewInt(int64(y)))
			return uint64(p.Rsh(p, 64).Int64())
		}),
		two("div.s64", func(x, y uint64) uint64 {
			if y == 0 {
				return math.MaxUint64
			}
			return uint64(int64(x) / int64(y))
		}),
		two("rem.u64", func(x, y uint64) uint64 {
			if y == 0 {
				return x
			}
			return x % y
		}),
		two("max.s64", func(x, y uint64) uint64 { return uint64(max(int64(x), int64(y))) }),
		step{fmt.Sprintf("shr.s64 %%l%d, %%l%d, %%r%d", d, a, b), func(t *thread) { t.l[d] = uint64(int64(t.l[a]) >> min(t.r[b], 63)) }, nil, 0},
		step{fmt.Sprintf("shl.b64 %%l%d, %%l%d, %%r%d", d, a, b), func(t *thread) { t.l[d] = t.l[a] << t.r[b] }, nil, 0},
		step{fmt.Sprintf("mul.wide.s32 %%l%d, %%r%d, %%r%d", d, a, b), func(t *thread) { t.l[d] = uint64(int64(int32(t.r[a])) * int64(int32(t.r[b]))) }, nil, 0},
		step{fmt.Sprintf("mad.wide.u32 %%l%d, %%r%d, %%r%d, %%l%d", d, a, b, c), func(t *thread) { t.l[d] = uint64(t.r[a])*uint64(t.r[b]) + t.l[c] }, nil, 0},
		step{fmt.Sprintf("mov.b64 {%%r%d, %%r%d}, %%l%d", d, (d+1)&7, a), func(t *thread) { t.r[d], t.r[(d+1)&7] = uint32(t.l[a]), uint32(t.l[a]>>32) }, nil, 0},
		step{fmt.Sprintf("mov.b64 %%l%d, {%%r%d, %%r%d}", d, a, b), func(t *thread) { t.l[d] = uint64(t.r[a]) | uint64(t.r[b])<<32 }, nil, 0},
		step{fmt.Sprintf("clz.b64 %%r%d, %%l%d", d, a), func(t *thread) { t.r[d] = uint32(bits.LeadingZeros64(t.l[a])) }, nil, 0},
		step{fmt.Sprintf("subc.cc.u64 %%l%d, %%l%d, %%l%d", d, a, b), func(t *thread) {
			carry := uint64(0)
			if t.c {
				carry = 1
			}
			s, r := bits.Add64(t.l[a], ^t.l[b], carry)
			t.l[d], t.c = s, r != 0
		}, nil, 0},
		step{fmt.Sprintf("madc.hi.cc.u32 %%r%d, %%r%d, %%r%d, %%r%d", d, a, b, c), func(t *thread) {
			s := uint64(t.r[a])*uint64(t.r[b])>>32 + uint64(t.r[c])
			if t.c {
				s++
			}
			t.r[d], t.c = uint32(s), s>>32 != 0
		}, nil, 0},
	)
}

// floats makes an arithmetic instruction of f32 or f64.
func (w writer) floats() step {
	d, a, b, c := w.IntN(8), w.IntN(8), w.IntN(8), w.IntN(8)
	op, mode := oneOf(w, "add", "sub", "mul", "fma", "div", "sqrt"), oneOf(w, "rn", "rn", "rz", "rm", "rp")
	double, flushed, sat := w.IntN(3) == 0, w.IntN(4) == 0, w.IntN(6) == 0
	reg := "r"
	suffix := ".f32"
	if double {
		reg, suffix, flushed, sat = "l", ".f64", false, false
	}
	if op == "div" || op == "sqrt" {
		sat = false
	}
	text := op + "." + mode
	if flushed {
		text += ".ftz"
	}
	if sat {
		text += ".sat"
	}
	text += suffix + fmt.Sprintf(" %%%s%d, %%%s%d", reg, d, reg, a)
	if op != "sqrt" {
		text += fmt.Sprintf(", %%%s%d", reg, b)
	}
	if op == "fma" {
		text += fmt.Sprintf(", %%%s%d", reg, c)
	}
	if double {
		// The payload of a NaN is open.
		text += fmt.Sprintf("; setp.nan.f64 %%q, %%l%d, %%l%d; selp.b64 %%l%d, 0x7ff8000000000000, %%l%d, %%q", d, d, d, d)
		return step{text: text, do: func(t *thread) { t.l[d] = b64(exactly(op, mode, f64(t.l[a]), f64(t.l[b]), f64(t.l[c]), false)) }}
	}
	return step{text: text, do: func(t *thread) {
		x, y, z := f32(t.r[a]), f32(t.r[b]), f32(t.r[c])
		if flushed {
			x, y, z = ftz32(x), ftz32(y), ftz32(z)
		}
		r := float32(exactly(op, mode, float64(x), float64(y), float64(z), true))
		if flushed {
			r = ftz32(r)
		}
		if sat {
			switch {
			case !(r > 0):
				r = 0
			case r > 1:
				r = 1
			}
		}
		t.r[d] = b32(r)
	}}
}

// others makes conversions, comparisons and selections.
func (w writer) others() step {
	d, a, b, c := w.IntN(8), w.IntN(8), w.IntN(8), w.IntN(4)
	mode, whole := oneOf(w, "rn", "rz", "rm", "rp"), oneOf(w, "rni", "rzi", "rmi", "rpi")
	width, signed := oneOf(w, 8, 16, 32, 64), w.IntN(2) == 0
	kind := oneOf(w, "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
	plain := oneOf(w, "eq", "ne", "lt", "le", "gt", "ge")
	intType := fmt.Sprintf("u%d", width)
	if signed {
		intType = fmt.Sprintf("s%d", width)
	}
	set := func(t *thread, v uint64) { // an integer of the type, into a register of 32 or 64 bits
		if signed {
			v = uint64(int64(v<<(64-width)) >> (64 - width))
		}
		if width == 64 {
			t.l[d] = v
		} else {
			t.r[d] = uint32(v)
		}
	}
	get := func(t *thread) *big.Int {
		v := uint64(t.r[a])
		if width == 64 {
			v = t.l[a]
		}
		if v <<= 64 - width; signed {
			return big.NewInt(int64(v) >> (64 - width))
		}
		return new(big.Int).SetUint64(v >> (64 - width))
	}
	reg := "r"
	if width == 64 {
		reg = "l"
	}
	float := func(z *big.Int, single bool) float64 {
		if z.Sign() == 0 {
			return 0
		}
		v := new(big.Float).SetPrec(200).SetInt(z)
		if single {
			return rounded(v, mode, 24, -149, 128)
		}
		return rounded(v, mode, 53, -1074, 1024)
	}
	return oneOf(w,
		step{fmt.Sprintf("cvt.%s.%s.f32 %%%s%d, %%r%d", whole, intType, reg, d, a), func(t *thread) {
			set(t, toInt(float64(f32(t.r[a])), whole, width, signed, false))
		}, nil, 0},
		step{fmt.Sprintf("cvt.%s.%s.f64 %%%s%d, %%l%d", whole, intType, reg, d, a), func(t *thread) {
			set(t, toInt(f64(t.l[a]), whole, width, signed, true))
		}, nil, 0},
		step{fmt.Sprintf("cvt.%s.f32.%s %%r%d, %%%s%d", mode, intType, d, reg, a), func(t *thread) { t.r[d] = b32(float32(float(get(t), true))) }, nil, 0},
		step{fmt.Sprintf("cvt.%s.f64.%s %%l%d, %%%s%d", mode, intType, d, reg, a), func(t *thread) { t.l[d] = b64(float(get(t), false)) }, nil, 0},
		step{fmt.Sprintf("cvt.%s.f32.f64 %%r%d, %%l%d", mode, d, a), func(t *thread) {
			if v := f64(t.l[a]); v == 0 || v != v || math.IsInf(v, 0) {
				t.r[d] = b32(float32(v))
			} else {
				t.r[d] = b32(float32(rounded(bigOf(v), mode, 24, -149, 128)))
			}
		}, nil, 0},
		step{fmt.Sprintf("cvt.sat.%s.s64 %%%s%d, %%l%d", intType, reg, d, a), func(t *thread) { set(t, clamped(big.NewInt(int64(t.l[a])), width, signed)) }, nil, 0},
		step{fmt.Sprintf("cvt.sat.%s.u32 %%%s%d, %%r%d", intType, reg, d, a), func(t *thread) { set(t, clamped(big.NewInt(int64(t.r[a])), width, signed)) }, nil, 0},
		step{fmt.Sprintf("cvt.%s.u64 %%%s%d, %%l%d", intType, reg, d, a), func(t *thread) { set(t, t.l[a]<<(64-width)>>(64-width)) }, nil, 0},
		step{fmt.Sprintf("setp.%s.f32 %%p%d|%%p%d, %%r%d, %%r%d", kind, c, (c+1)&3, a, b), func(t *thread) {
			r := compare(kind, f32(t.r[a]), f32(t.r[b]))
			t.p[c], t.p[(c+1)&3] = r, !r
		}, nil, 0},
		step{fmt.Sprintf("setp.%s.xor.ftz.f32 %%p%d, %%r%d, %%r%d, !%%p%d", kind, c, a, b, (c+2)&3), func(t *thread) {
			t.p[c] = compare(kind, ftz32(f32(t.r[a])), ftz32(f32(t.r[b]))) != !t.p[(c+2)&3]
		}, nil, 0},
		step{fmt.Sprintf("setp.%s.and.f64 %%p%d, %%l%d, %%l%d, %%p%d", kind, c, a, b, (c+2)&3), func(t *thread) {
			t.p[c] = compare(kind, f64(t.l[a]), f64(t.l[b])) && t.p[(c+2)&3]
		}, nil, 0},
		step{fmt.Sprintf("setp.%s.s32 %%p%d, %%r%d, %%r%d", plain, c, a, b), func(t *thread) { t.p[c] = compare(plain, int32(t.r[a]), int32(t.r[b])) }, nil, 0},
		step{fmt.Sprintf("setp.%s.u64 %%p%d, %%l%d, %%l%d", plain, c, a, b), func(t *thread) { t.p[c] = compare(plain, t.l[a], t.l[b]) }, nil, 0},
		step{fmt.Sprintf("set.%s.f32.f32 %%r%d, %%r%d, %%r%d", kind, d, a, b), func(t *thread) {
			r := compare(kind, f32(t.r[a]), f32(t.r[b]))
			if t.r[d] = 0; r {
				t.r[d] = 0x3f800000
			}
		}, nil, 0},
		step{fmt.Sprintf("selp.b64 %%l%d, %%l%d, %%l%d, %%p%d", d, a, b, c), func(t *thread) {
			if t.p[c] {
				t.l[d] = t.l[a]
			} else {
				t.l[d] = t.l[b]
			}
		}, nil, 0},
		step{fmt.Sprintf("slct.u32.f32 %%r%d, %%r%d, %%r%d, %%r%d", d, a, b, c), func(t *thread) {
			if f32(t.r[c]) >= 0 {
				t.r[d] = t.r[a]
			} else {
				t.r[d] = t.r[b]
			}
		}, nil, 0},
		step{fmt.Sprintf("min.f32 %%r%d, %%r%d, %%r%d", d, a, b), func(t *thread) { t.r[d] = b32(-larger(-f32(t.r[a]), -f32(t.r[b]))) }, nil, 0},
		step{fmt.Sprintf("max.f32 %%r%d, %%r%d, %%r%d", d, a, b), func(t *thread) { t.r[d] = b32(larger(f32(t.r[a]), f32(t.r[b]))) }, nil, 0},
		step{fmt.Sprintf("neg.ftz.f32 %%r%d, %%r%d", d, a), func(t *thread) { t.r[d] = b32(-ftz32(f32(t.r[a]))) }, nil, 0},
		step{fmt.Sprintf("not.pred %%p%d, %%p%d", c, b&3), func(t *thread) { t.p[c] = !t.p[b&3] }, nil, 0},
	)
}

// larger is max: -0 is less than +0, and a NaN loses.
func larger(x, y float32) float32 {
	switch {
	case x != x:
		return y
	case y != y || x > y:
		return x
	case x == y && x == 0 && math.Signbit(float64(y)):
		return x
	}
	return y
}

// next makes the i-th of n instructions; some are guarded, some jump, mostly onwards.
func (w writer) next(i, n int) step {
	var s step
	switch w.IntN(8) {
	case 0, 1:
		s = w.integers()
	case 2, 3:
		s = w.floats()
	case 4, 5:
		s = w.others()
	case 6:
		target, p := i+1+w.IntN(n-i), w.IntN(4)
		return step{fmt.Sprintf("@%%p%d bra L%d", p, target), func(*thread) {}, func(t *thread) bool { return t.p[p] }, target}
	default:
		// Backwards, a few times: %r7 counts.
		target := w.IntN(i + 1)
		return step{fmt.Sprintf("add.u32 %%n, %%n, 1; setp.lt.u32 %%q, %%n, 12; @%%q bra L%d", target), nil, nil, target}
	}
	if w.IntN(4) == 0 && !strings.Contains(s.text, ";") {
		p, not := w.IntN(4), w.IntN(2) == 0
		do := s.do
		s.do = func(t *thread) {
			if t.p[p] != not {
				do(t)
			}
		}
		if not {
			s.text = fmt.Sprintf("@!%%p%d %s", p, s.text)
		} else {
			s.text = fmt.Sprintf("@%%p%d %s", p, s.text)
		}
	}
	return s
}

// run executes the program for one thread.
func (t *thread) run(prog []step) {
	turns := 0
	for pc := 0; pc < len(prog); {
		s := &prog[pc]
		pc++
		switch {
		case s.do == nil:
			if turns++; turns < 12 {
				pc = s.target
			}
		case s.jump != nil:
			if s.jump(t) {
				pc = s.target
			}
		default:
			s.do(t)
		}
	}
}

// Random programs with branches and loops leave the same bits in all registers
// as a plain interpreter that runs thread after thread.
func TestAgainstInterpreter(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range 200 {
		if !differ(t, writer{rand.New(rand.NewPCG(seed, uint64(round)))}) {
			t.Fatalf("seed %d, round %d", seed, round)
		}
	}
}

func differ(t *testing.T, w writer) bool {
	const words = 8 + 16 // of a thread
	n, threads := 1+w.IntN(1+w.IntN(40)), oneOf(w, 1, 31, 33, 70, 256, 300)
	prog := make([]step, n)
	var text strings.Builder
	for i := range 8 {
		fmt.Fprintf(&text, "ld.global.b32 %%r%d, [%%at+%d]; ld.global.b64 %%l%d, [%%at+%d];\n", i, 4*i, i, 32+8*i)
	}
	text.WriteString("add.cc.u32 %n, 0, 0; mov.u32 %n, 0; mov.b32 {%h0, _}, %r0; mov.b32 {%h1, _}, %r1;\n")
	for i := range 4 {
		fmt.Fprintf(&text, "and.b32 %%m, %%r%d, 1; setp.ne.u32 %%p%d, %%m, 0;\n", i, i)
	}
	for i := range prog {
		prog[i] = w.next(i, n)
		if s := &prog[i]; strings.Contains(s.text, "mul.wide.s16") {
			s.text = "mov.b32 {%h0, _}, %r0; mov.b32 {%h1, _}, %r1; " + s.text
		}
		fmt.Fprintf(&text, "L%d: %s;\n", i, prog[i].text)
	}
	fmt.Fprintf(&text, "L%d:\n", n)
	for i := range 8 {
		fmt.Fprintf(&text, "st.global.b32 [%%at+%d], %%r%d; st.global.b64 [%%at+%d], %%l%d;\n", 4*i, i, 32+8*i, i)
	}
	src := `.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 data)
{ .reg .pred %p<4>; .reg .pred %q; .reg .b16 %h<2>; .reg .b32 %r<8>; .reg .b32 %n; .reg .b32 %m; .reg .b64 %l<8>; .reg .b64 %at; .reg .b64 %off;
ld.param.u64 %at, [data]; mov.u32 %m, %tid.x; mul.wide.u32 %off, %m, 96; add.u64 %at, %at, %off;
` + text.String() + "ret; }\n"
	d := newDevice(t)
	buf := d.buffer(4 * words * threads)
	want, began := make([]thread, threads), make([]thread, threads)
	for i := range want {
		for k := range 8 {
			want[i].r[k], want[i].l[k] = uint32(w.value()), w.value()
			buf.setWord(words*i+k, want[i].r[k])
			buf.setWord(words*i+8+2*k, uint32(want[i].l[k]))
			buf.setWord(words*i+9+2*k, uint32(want[i].l[k]>>32))
		}
		for k := range 4 {
			want[i].p[k] = want[i].r[k]&1 != 0
		}
		began[i] = want[i]
		want[i].run(prog)
	}
	d.run(d.kernel(d.load([]byte(src)), "k"), x(1), x(threads), buf)
	for i := range want {
		for k := range 8 {
			r, l := buf.word(words*i+k), buf.long(words/2*i+4+k)
			if r != want[i].r[k] || l != want[i].l[k] && !(nan64(l) && nan64(want[i].l[k])) {
				t.Errorf("thread %d of %d: %%r%d is %#x, want %#x; %%l%d is %#x, want %#x\n%sfrom %x", i, threads, k, r, want[i].r[k], k, l, want[i].l[k], text.String(), []any{began[i].r, began[i].l})
				return false
			}
		}
	}
	return true
}

func nan64(x uint64) bool { return f64(x) != f64(x) }
