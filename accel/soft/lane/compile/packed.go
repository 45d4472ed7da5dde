package compile

import (
	"math/bits"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
)

// packedFunc returns an operation on the halves of a word, or one with .relu, which
// makes negative results zero.
func packedFunc(in *ptx.Inst) arith.LaneFunc {
	name, t := in.Op.String(), in.Type
	signed, relu := t != ptx.U16x2, in.Mods.Has(ptx.Relu)
	one := func(a, b int64) int64 {
		switch name {
		case "add":
			a += b
		case "min":
			a = min(a, b)
		default:
			a = max(a, b)
		}
		if relu {
			a = max(a, 0)
		}
		return a
	}
	if t == ptx.S32 {
		return func(a, b, _ uint64) uint64 { return uint64(uint32(one(int64(int32(a)), int64(int32(b))))) }
	}
	lo, hi := halves(signed)
	return func(a, b, _ uint64) uint64 {
		return uint64(one(lo(a), lo(b)))&0xffff | uint64(one(hi(a), hi(b)))&0xffff<<16
	}
}

// halves returns functions that extract the lower and the upper half of a word.
func halves(signed bool) (lo, hi func(x uint64) int64) {
	if signed {
		return func(x uint64) int64 { return int64(int16(x)) }, func(x uint64) int64 { return int64(int16(x >> 16)) }
	}
	return func(x uint64) int64 { return int64(uint16(x)) }, func(x uint64) int64 { return int64(uint16(x >> 16)) }
}

// signZero is szext: the lowest bits, sign- or zero-extended.
func signZero(signed, clamp bool) arith.LaneFunc {
	return func(a, b, _ uint64) uint64 {
		if clamp && b >= 32 {
			return a
		}
		if b &= 31; b == 0 {
			return 0
		}
		if signed {
			return uint64(uint32(int32(uint32(a)<<(32-b)) >> (32 - b)))
		}
		return a & (1<<b - 1)
	}
}

// findSet is fns: the n-th set bit from a place on, upward, or downward if n is negative.
func findSet(m, base, n uint64) uint64 {
	word, offset := uint32(m), int32(n)
	if base > 31 {
		return 0xffffffff
	}
	switch {
	case offset == 0:
		word &= 1 << base
		offset = 1
	case offset > 0:
		word &= ^uint32(0) << base
	default:
		word = bits.Reverse32(word & (1<<(base+1) - 1))
	}
	down := offset < 0
	for k := max(int64(offset), -int64(offset)); k > 1 && word != 0; k-- {
		word &= word - 1
	}
	switch {
	case word == 0:
		return 0xffffffff
	case down:
		return uint64(31 - bits.TrailingZeros32(word))
	}
	return uint64(bits.TrailingZeros32(word))
}
