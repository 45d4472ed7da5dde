package lane

import (
	"math"
	"math/bits"

	"pegasus/accel/ptx"
)

// floatFunc is a floating-point operation with all its modifiers, for forms
// without a row kernel.
func floatFunc(in *ptx.Inst) laneFunc {
	if in.Type == ptx.F64 {
		return float64Func(in)
	}
	f := float32Func(in)
	flushed, sat := in.Mods.Has(ptx.FTZ), in.Mods.Has(ptx.SAT)
	return func(a, b, c uint64) uint64 {
		x, y, z := float(a), float(b), float(c)
		if flushed {
			x, y, z = flush(x), flush(y), flush(z)
		}
		r := f(x, y, z)
		if flushed {
			r = flush(r)
		}
		if sat {
			r = float32(saturate(float64(r)))
		}
		return bits32(canonF32(r))
	}
}

func float32Func(in *ptx.Inst) func(x, y, z float32) float32 {
	mode := rounding(in)
	switch name := in.Op.String(); name {
	case "add":
		return func(x, y, _ float32) float32 { return sum32(float64(x), float64(y), mode) }
	case "sub":
		return func(x, y, _ float32) float32 { return sum32(float64(x), -float64(y), mode) }
	case "mul":
		return func(x, y, _ float32) float32 { return round32(float64(x)*float64(y), 0, mode) }
	case "fma", "mad":
		return func(x, y, z float32) float32 { return fused32(float64(x), float64(y), float64(z), mode) }
	case "div":
		switch {
		case in.Mods.Has(ptx.Approx):
			return func(x, y, _ float32) float32 { return quotientApprox(x, y) }
		case in.Mods.Has(ptx.Full):
			return func(x, y, _ float32) float32 { return x / y }
		}
		return func(x, y, _ float32) float32 { return quotient32(float64(x), float64(y), mode) }
	case "rcp":
		return func(x, _, _ float32) float32 { return quotient32(1, float64(x), mode) }
	case "sqrt":
		return func(x, _, _ float32) float32 { return root32(float64(x), mode) }
	case "rsqrt":
		return func(x, _, _ float32) float32 { return float32(1 / math.Sqrt(float64(x))) }
	case "sin":
		return func(x, _, _ float32) float32 { return sin32(x) }
	case "cos":
		return func(x, _, _ float32) float32 { return cos32(x) }
	case "tanh":
		return func(x, _, _ float32) float32 { return float32(math.Tanh(float64(x))) }
	case "min", "max":
		return extremum(in, pick(name == "max", lesser32, greater32))
	}
	return func(x, _, _ float32) float32 { return x }
}

// quotientApprox multiplies by a reciprocal that is lost if it is subnormal.
func quotientApprox(x, y float32) float32 {
	if a := math.Abs(float64(y)); a > 0x1p126 && a <= math.MaxFloat32 {
		return x * float32(math.Copysign(0, float64(y)))
	}
	return x / y
}

func extremum(in *ptx.Inst, f func(x, y float32) float32) func(x, y, _ float32) float32 {
	if in.Mods.Has(ptx.XorSign) {
		plain := f
		f = func(x, y float32) float32 {
			r := plain(abs32(x), abs32(y))
			if r != r {
				return r
			}
			sign := (math.Float32bits(x) ^ math.Float32bits(y)) & (1 << 31)
			return math.Float32frombits(math.Float32bits(r) | sign)
		}
	}
	if !in.Mods.Has(ptx.NaNMod) {
		return func(x, y, _ float32) float32 { return f(x, y) }
	}
	return func(x, y, _ float32) float32 {
		if x != x || y != y {
			return math.Float32frombits(nan32)
		}
		return f(x, y)
	}
}

func abs32(x float32) float32 { return float32(math.Abs(float64(x))) }

func float64Func(in *ptx.Inst) laneFunc {
	var f func(x, y, z float64) float64
	switch name := in.Op.String(); {
	case in.Mods.Has(ptx.Approx): // only the upper word counts
		f = func(x, _, _ float64) float64 {
			if x = flush64(x); name == "rsqrt" {
				x = math.Sqrt(x)
			}
			return flush64(math.Float64frombits(math.Float64bits(1/x) &^ 0xffffffff))
		}
	case name == "rcp":
		div := arithmetic64("div", rounding(in))
		f = func(x, _, _ float64) float64 { return div(1, x, 0) }
	default:
		f = arithmetic64(name, rounding(in))
	}
	return func(a, b, c uint64) uint64 {
		return math.Float64bits(f(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)))
	}
}

// highFunc is the high half of a product. Signed 16-bit operands come sign-extended to 32 bits.
func highFunc(t ptx.Type) laneFunc {
	switch t {
	case ptx.U16:
		return func(a, b, _ uint64) uint64 { return a * b >> 16 }
	case ptx.S16:
		return func(a, b, _ uint64) uint64 { return uint64(int64(int32(a)) * int64(int32(b)) >> 16) }
	case ptx.U32:
		return func(a, b, _ uint64) uint64 { return a * b >> 32 }
	case ptx.S32:
		return func(a, b, _ uint64) uint64 { return uint64(int64(int32(a)) * int64(int32(b)) >> 32) }
	case ptx.U64:
		return func(a, b, _ uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }
	}
	return func(a, b, _ uint64) uint64 {
		hi, _ := bits.Mul64(a, b)
		if int64(a) < 0 {
			hi -= b
		}
		if int64(b) < 0 {
			hi -= a
		}
		return hi
	}
}

func clampS32(x int64) uint64 {
	return uint64(uint32(max(min(x, math.MaxInt32), math.MinInt32)))
}

// integerFunc is an integer operation without a row kernel, or nil.
func integerFunc(in *ptx.Inst) laneFunc {
	t := in.Type
	width := t.Size() * 8
	switch in.Op.String() {
	case "mul24":
		return func(a, b, _ uint64) uint64 { return mul24(a, b, t.Signed(), in.Mods.Has(ptx.Hi)) }
	case "mad24":
		if in.Mods.Has(ptx.SAT) {
			return func(a, b, c uint64) uint64 {
				return clampS32(int64(int32(mul24(a, b, true, in.Mods.Has(ptx.Hi)))) + int64(int32(c)))
			}
		}
		return func(a, b, c uint64) uint64 { return mul24(a, b, t.Signed(), in.Mods.Has(ptx.Hi)) + c }
	case "sad":
		return func(a, b, c uint64) uint64 {
			if t.Signed() && width < 64 {
				a, b = extend(a, ptx.S32), extend(b, ptx.S32)
			}
			if less(a, b, t.Signed(), true) {
				a, b = b, a
			}
			return c + a - b
		}
	case "shf":
		return funnel(in.Mods.Has(ptx.R), in.Mods.Has(ptx.Wrap))
	case "bfe":
		return bitExtract(t)
	case "bmsk":
		wrap := in.Mods.Has(ptx.Wrap)
		return func(a, b, _ uint64) uint64 {
			if wrap {
				a, b = a&31, b&31
			}
			return (1<<min(b, 32) - 1) << min(a, 32) & 0xffffffff
		}
	case "szext":
		return signZero(t.Signed(), in.Mods.Has(ptx.Clamp))
	case "fns":
		return findSet
	case "prmt":
		return permute(in.Mods.First(ptx.RN, ptx.F4E, ptx.B4E, ptx.RC8, ptx.ECL, ptx.ECR, ptx.RC16))
	case "dp4a", "dp2a":
		return dot(in)
	case "copysign":
		top := uint64(1) << (width - 1)
		return func(a, b, _ uint64) uint64 { return b&^top | a&top }
	case "popc":
		return func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) }
	case "clz":
		return func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a) - (64 - width)) }
	case "brev":
		return func(a, _, _ uint64) uint64 { return bits.Reverse64(a) >> (64 - width) }
	case "bfind":
		amount := in.Mods.Has(ptx.ShiftAmt)
		return func(a, _, _ uint64) uint64 {
			if a = extend(a, t); t.Signed() && int64(a) < 0 {
				a = ^a
			}
			at := bits.Len64(a) - 1
			if at < 0 {
				return 0xffffffff
			}
			if amount {
				return uint64(width - 1 - at)
			}
			return uint64(at)
		}
	}
	return nil
}

func mul24(a, b uint64, signed, hi bool) uint64 {
	p := a & 0xffffff * (b & 0xffffff)
	if signed {
		p = uint64((int64(a<<40) >> 40) * (int64(b<<40) >> 40))
	}
	if hi {
		return p >> 16 & 0xffffffff
	}
	return p & 0xffffffff
}

// funnel shifts the pair b:a and gives the upper (left) or lower (right) word.
func funnel(right, wrap bool) laneFunc {
	return func(a, b, c uint64) uint64 {
		n := c & 0xffffffff
		if wrap {
			n &= 31
		} else {
			n = min(n, 32)
		}
		pair := b<<32 | a
		if right {
			return pair >> n & 0xffffffff
		}
		return pair << n >> 32
	}
}

func bitExtract(t ptx.Type) laneFunc {
	width := uint64(t.Size() * 8)
	return func(a, b, c uint64) uint64 {
		pos, n := b&0xff, c&0xff
		var fill uint64
		if t.Signed() && n > 0 && a>>min(pos+n-1, width-1)&1 != 0 {
			fill = ^uint64(0)
		}
		if n == 0 {
			return 0
		}
		r := a >> pos // zero beyond the width, for a is zero-extended
		if pos+n > width {
			if pos < width {
				r |= fill << (width - pos)
			} else {
				r = fill
			}
		}
		if n < 64 {
			r = r&(1<<n-1) | fill<<n
		}
		return r
	}
}

func bitInsert(width int) laneFunc {
	return func(a, b, c uint64) uint64 {
		pos, n := c&0xff, c>>8&0xff
		if pos >= uint64(width) {
			return b
		}
		m := (uint64(1)<<n - 1) << pos
		return b&^m | a<<pos&m
	}
}

func lop3(table uint8) laneFunc {
	return func(a, b, c uint64) (r uint64) {
		for i := range 8 {
			if table>>i&1 == 0 {
				continue
			}
			x, y, z := a, b, c
			if i&4 == 0 {
				x = ^x
			}
			if i&2 == 0 {
				y = ^y
			}
			if i&1 == 0 {
				z = ^z
			}
			r |= x & y & z
		}
		return r & 0xffffffff
	}
}

// permute picks bytes of the pair b:a, by selectors or by one of the named patterns.
func permute(mode ptx.Mod) laneFunc {
	patterns := map[ptx.Mod][4][4]uint64{
		ptx.F4E: {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}}, ptx.B4E: {{0, 7, 6, 5}, {1, 0, 7, 6}, {2, 1, 0, 7}, {3, 2, 1, 0}},
		ptx.RC8: {{0, 0, 0, 0}, {1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}}, ptx.ECL: {{0, 1, 2, 3}, {1, 1, 2, 3}, {2, 2, 2, 3}, {3, 3, 3, 3}},
		ptx.ECR: {{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}}, ptx.RC16: {{0, 1, 0, 1}, {2, 3, 2, 3}, {0, 1, 0, 1}, {2, 3, 2, 3}},
	}
	p, named := patterns[mode]
	return func(a, b, c uint64) (r uint64) {
		pair := b<<32 | a
		for i := range uint64(4) {
			s := c >> (4 * i) & 15
			if named {
				s = p[c&3][i]
			}
			v := pair >> (s & 7 * 8) & 0xff
			if s&8 != 0 {
				v = v >> 7 * 0xff
			}
			r |= v << (8 * i)
		}
		return r
	}
}

// dot is dp4a and dp2a.
func dot(in *ptx.Inst) laneFunc {
	part := func(x uint64, i, n int, signed bool) int64 {
		x >>= i * n
		if signed {
			return int64(x<<(64-n)) >> (64 - n)
		}
		return int64(x & (1<<n - 1))
	}
	sa, sb := in.Type.Signed(), in.Type2.Signed()
	if in.Op.String() == "dp4a" {
		return func(a, b, c uint64) uint64 {
			for i := range 4 {
				c += uint64(part(a, i, 8, sa) * part(b, i, 8, sb))
			}
			return c
		}
	}
	first := 0
	if in.Mods.Has(ptx.Hi) {
		first = 2
	}
	return func(a, b, c uint64) uint64 {
		for i := range 2 {
			c += uint64(part(a, i, 16, sa) * part(b, first+i, 8, sb))
		}
		return c
	}
}

// testFunc is testp.
func testFunc(in *ptx.Inst) laneFunc {
	t := in.Type
	kind := in.Mods.First(ptx.RN, ptx.Finite, ptx.Infinite, ptx.Number, ptx.NotANumber, ptx.Normal, ptx.Subnormal)
	least := 0x1p-126
	if t == ptx.F64 {
		least = 0x1p-1022
	}
	return func(a, _, _ uint64) uint64 {
		v := math.Abs(load(a, t, false))
		var r bool
		switch kind {
		case ptx.Finite:
			r = v <= math.MaxFloat64
		case ptx.Infinite:
			r = v > math.MaxFloat64
		case ptx.Number:
			r = v == v
		case ptx.NotANumber:
			r = v != v
		case ptx.Normal:
			r = v >= least && v <= math.MaxFloat64
		case ptx.Subnormal:
			r = v > 0 && v < least
		}
		if r {
			return 1
		}
		return 0
	}
}
