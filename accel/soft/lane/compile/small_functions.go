package compile

import (
	"math"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
)

// smallFunc returns an operation on one value of a format, with all its modifiers.
func smallFunc(in *ptx.Inst) arith.LaneFunc {
	f := arith.SmallFloats[in.Type]
	var op func(x, y, z float64) float64
	switch in.Op.String() {
	case "add":
		op = func(x, y, _ float64) float64 { return arith.SmallSum(x, y) }
	case "sub":
		op = func(x, y, _ float64) float64 { return arith.SmallSum(x, -y) }
	case "mul":
		op = func(x, y, _ float64) float64 { return x * y }
	case "fma":
		op = arith.SmallFused
	case "ex2":
		op = func(x, _, _ float64) float64 { return math.Exp2(x) }
	case "tanh":
		op = func(x, _, _ float64) float64 { return math.Tanh(x) }
	case "min", "max":
		return smallExtremum(f, in)
	default: // abs, neg
		return smallSign(f, in)
	}
	flushed := in.Mods.Has(ptx.FTZ)
	e := arith.Finish{Sat: in.Mods.Has(ptx.SAT), Relu: in.Mods.Has(ptx.Relu), Flush: flushed}
	return func(a, b, c uint64) uint64 {
		if flushed {
			a, b, c = f.Flush(a), f.Flush(b), f.Flush(c)
		}
		return f.Round(op(f.Value(a), f.Value(b), f.Value(c)), ptx.RN, e)
	}
}

// smallSign is abs and neg.
func smallSign(f *arith.SmallFloat, in *ptx.Inst) arith.LaneFunc {
	abs, flushed := in.Op.String() == "abs", in.Mods.Has(ptx.FTZ)
	return func(a, _, _ uint64) uint64 {
		switch {
		case f.IsNaN(a):
			return f.Nan
		case flushed:
			a = f.Flush(a)
		}
		if abs {
			return a &^ f.Sign()
		}
		return a ^ f.Sign()
	}
}

// smallExtremum is min and max.
func smallExtremum(f *arith.SmallFloat, in *ptx.Inst) arith.LaneFunc {
	choose := smallChoice(f, in.Op.String() == "max", in.Mods.Has(ptx.NaNMod))
	flushed, xor := in.Mods.Has(ptx.FTZ), in.Mods.Has(ptx.XorSign)
	return func(a, b, _ uint64) uint64 {
		if flushed {
			a, b = f.Flush(a), f.Flush(b)
		}
		if !xor {
			return choose(a, b)
		}
		r := choose(a&^f.Sign(), b&^f.Sign())
		if !f.IsNaN(r) {
			r |= (a ^ b) & f.Sign()
		}
		return r
	}
}

// smallChoice returns the greater of two numbers, or the lesser; of a number and a NaN
// the number, unless either may make it a NaN.
func smallChoice(f *arith.SmallFloat, most, either bool) func(a, b uint64) uint64 {
	order := func(x uint64) int { // as the numbers are ordered, -0 below +0
		if x&f.Sign() != 0 {
			return -1 - int(x&^f.Sign())
		}
		return int(x)
	}
	return func(a, b uint64) uint64 {
		switch {
		case f.IsNaN(a) && (either || f.IsNaN(b)), f.IsNaN(b) && either:
			return f.Nan
		case f.IsNaN(b), !f.IsNaN(a) && order(a) > order(b) == most:
			return a
		}
		return b
	}
}

// pairwise applies an operation on values of n bits to both halves of pairs.
func pairwise(f arith.LaneFunc, n int) arith.LaneFunc {
	keep := uint64(1)<<n - 1
	return func(a, b, c uint64) uint64 {
		return f(a&keep, b&keep, c&keep) | f(a>>n&keep, b>>n&keep, c>>n&keep)<<n
	}
}

// floatOrder returns a comparison of floats.
func floatOrder(m ptx.Mod) func(x, y float64) bool {
	orNaN := func(f func(x, y float64) bool) func(x, y float64) bool {
		return func(x, y float64) bool { return x != x || y != y || f(x, y) }
	}
	switch m {
	case ptx.EQ:
		return func(x, y float64) bool { return x == y }
	case ptx.NE:
		return func(x, y float64) bool { return x < y || x > y }
	case ptx.LT:
		return func(x, y float64) bool { return x < y }
	case ptx.LE:
		return func(x, y float64) bool { return x <= y }
	case ptx.GT:
		return func(x, y float64) bool { return x > y }
	case ptx.GE:
		return func(x, y float64) bool { return x >= y }
	case ptx.NUM:
		return func(x, y float64) bool { return x == x && y == y }
	case ptx.NAN:
		return func(x, y float64) bool { return x != x || y != y }
	case ptx.EQU:
		return orNaN(floatOrder(ptx.EQ))
	case ptx.LTU:
		return orNaN(floatOrder(ptx.LT))
	case ptx.LEU:
		return orNaN(floatOrder(ptx.LE))
	case ptx.GTU:
		return orNaN(floatOrder(ptx.GT))
	case ptx.GEU:
		return orNaN(floatOrder(ptx.GE))
	}
	return func(x, y float64) bool { return x != y } // NEU, true for NaN as well
}
