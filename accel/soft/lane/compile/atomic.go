package compile

import (
	"math"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// atomicOf returns the operation of an atom or red instruction, or nil.
func atomicOf(op ptx.Mod, t ptx.Type, shared bool) *ir.Atomic {
	a := &ir.Atomic{Size: t.Size()}
	wide := a.Size == 8
	switch op {
	case ptx.Add:
		switch {
		case t.Half():
			f := arith.SmallFloats[t]
			add := func(o, b, _ uint64) uint64 { return f.Bits(arith.SmallSum(f.Value(o), f.Value(b)), ptx.RN) }
			if a.Apply = add; t.Paired() {
				a.Apply = ir.AtomicFunc(pairwise(add, 16))
			}
		case t == ptx.F32 && shared:
			a.Apply = func(o, b, _ uint64) uint64 { return arith.BitsOf(arith.CanonF32(arith.FloatOf(o) + arith.FloatOf(b))) }
		case t == ptx.F32:
			a.Apply = func(o, b, _ uint64) uint64 {
				return arith.BitsOf(arith.CanonF32(arith.Flush(arith.Flush(arith.FloatOf(o)) + arith.Flush(arith.FloatOf(b)))))
			}
			a.ApplyPrivate = func(o, b, _ uint64) uint64 { return arith.BitsOf(arith.CanonF32(arith.FloatOf(o) + arith.FloatOf(b))) }
		case t == ptx.F64:
			a.Apply = func(o, b, _ uint64) uint64 {
				return math.Float64bits(math.Float64frombits(o) + math.Float64frombits(b))
			}
		default:
			a.Apply, a.Adds = func(o, b, _ uint64) uint64 { return o + b }, true
		}
	case ptx.Min, ptx.Max:
		max := op == ptx.Max
		if t.Half() {
			f := smallChoice(arith.SmallFloats[t], max, false)
			if a.Apply = func(o, b, _ uint64) uint64 { return f(o, b) }; t.Paired() {
				a.Apply = ir.AtomicFunc(pairwise(arith.LaneFunc(a.Apply), 16))
			}
			return a
		}
		if t.Float() {
			return nil
		}
		a.Apply = func(o, b, _ uint64) uint64 {
			if arith.Less(o, b, t.Signed(), wide) != max {
				return o
			}
			return b
		}
	case ptx.Inc:
		a.Apply = func(o, b, _ uint64) uint64 {
			if o >= b {
				return 0
			}
			return o + 1
		}
	case ptx.Dec:
		a.Apply = func(o, b, _ uint64) uint64 {
			if o == 0 || o > b {
				return b
			}
			return o - 1
		}
	case ptx.And:
		a.Apply = func(o, b, _ uint64) uint64 { return o & b }
	case ptx.Or:
		a.Apply = func(o, b, _ uint64) uint64 { return o | b }
	case ptx.Xor:
		a.Apply = func(o, b, _ uint64) uint64 { return o ^ b }
	case ptx.Exch:
		a.Apply = func(_, b, _ uint64) uint64 { return b }
	case ptx.CAS:
		a.Apply = func(o, b, c uint64) uint64 {
			if o == b {
				return c
			}
			return o
		}
	}
	return a
}
