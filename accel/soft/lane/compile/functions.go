package compile

import (
	"math"
	"math/bits"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
)

// floatFunc returns a floating-point operation with all its modifiers, for forms
// without a row kernel.
func floatFunc(in *ptx.Inst) arith.LaneFunc {
	if in.Type == ptx.F64 {
		return float64Func(in)
	}
	f := float32Func(in)
	flushed, sat := in.Mods.Has(ptx.FTZ), in.Mods.Has(ptx.SAT)
	return func(a, b, c uint64) uint64 {
		x, y, z := arith.FloatOf(a), arith.FloatOf(b), arith.FloatOf(c)
		if flushed {
			x, y, z = arith.Flush(x), arith.Flush(y), arith.Flush(z)
		}
		r := f(x, y, z)
		if flushed {
			r = arith.Flush(r)
		}
		if sat {
			r = float32(arith.Saturate(float64(r)))
		}
		return arith.BitsOf(arith.CanonF32(r))
	}
}

func float32Func(in *ptx.Inst) func(x, y, z float32) float32 {
	mode := rounding(in)
	switch name := in.Op.String(); name {
	case "add":
		return func(x, y, _ float32) float32 { return arith.Sum32(float64(x), float64(y), mode) }
	case "sub":
		return func(x, y, _ float32) float32 { return arith.Sum32(float64(x), -float64(y), mode) }
	case "mul":
		return func(x, y, _ float32) float32 { return arith.Round32(float64(x)*float64(y), 0, mode) }
	case "fma", "mad":
		return func(x, y, z float32) float32 { return arith.Fused32(float64(x), float64(y), float64(z), mode) }
	case "div":
		return func(x, y, _ float32) float32 { return arith.Quotient32(float64(x), float64(y), mode) }
	case "rcp":
		return func(x, _, _ float32) float32 { return arith.Quotient32(1, float64(x), mode) }
	case "sqrt":
		return func(x, _, _ float32) float32 { return arith.Root32(float64(x), mode) }
	case "min", "max":
		return extremum(in, arith.Pick(name == "max", arith.Lesser32, arith.Greater32))
	}
	return func(x, _, _ float32) float32 { return x }
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
	nan := in.Mods.Has(ptx.NaNMod)
	two := func(x, y, _ float32) float32 {
		if nan {
			return arith.Strict32(x, y, f(x, y))
		}
		return f(x, y)
	}
	if len(in.Args) < 4 {
		return two
	}
	abs := in.Mods.Has(ptx.Abs)
	return func(x, y, z float32) float32 {
		if abs {
			x, y, z = abs32(x), abs32(y), abs32(z)
		}
		return two(two(x, y, 0), z, 0)
	}
}

func abs32(x float32) float32 { return float32(math.Abs(float64(x))) }

func float64Func(in *ptx.Inst) arith.LaneFunc {
	var f func(x, y, z float64) float64
	switch name := in.Op.String(); {
	case in.Mods.Has(ptx.Approx) && in.Mods.Has(ptx.FTZ):
		f = arith.GrossRcp64
		if name == "rsqrt" {
			f = arith.GrossRsqrt64
		}
	case name == "rsqrt":
		f = func(x, _, _ float64) float64 { return arith.Rsqrt64(x) }
	case name == "rcp":
		div := arith.Arithmetic64("div", rounding(in))
		f = func(x, _, _ float64) float64 { return div(1, x, 0) }
	default:
		f = arith.Arithmetic64(name, rounding(in))
	}
	return func(a, b, c uint64) uint64 {
		return math.Float64bits(f(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)))
	}
}

// integerFunc returns an integer operation without a row kernel, or nil.
func integerFunc(in *ptx.Inst) arith.LaneFunc {
	t := in.Type
	width := t.Size() * 8
	switch in.Op.String() {
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
	case "dp2a", "dp4a":
		return dotProduct(in)
	case "prmt":
		return permute(in.Mods.First(ptx.RN, ptx.F4E, ptx.B4E, ptx.RC8, ptx.ECL, ptx.ECR, ptx.RC16))
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

// dotProduct returns dp2a, of two halves and two bytes, or dp4a, of four bytes each.
func dotProduct(in *ptx.Inst) arith.LaneFunc {
	bytes := map[bool]ptx.Type{false: ptx.U8, true: ptx.S8}
	a, b := bytes[in.Type.Signed()], bytes[in.Type2.Signed()]
	n, size, first := 4, 8, 0
	if in.Op.String() == "dp2a" {
		a, n, size = arith.Pick(in.Type.Signed(), ptx.U16, ptx.S16), 2, 16
		first = arith.Pick(in.Mods.Has(ptx.Hi), 0, 16)
	}
	return func(x, y, z uint64) uint64 {
		for i := range n {
			z += extend(x>>(size*i), a) * extend(y>>(first+8*i), b)
		}
		return z & 0xffffffff
	}
}

func lop3(table uint8) arith.LaneFunc {
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
func permute(mode ptx.Mod) arith.LaneFunc {
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

// testFunc is testp.
func testFunc(in *ptx.Inst) arith.LaneFunc {
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
