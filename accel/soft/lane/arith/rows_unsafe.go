package arith

import (
	"strings"
	"unsafe"
)

// Get32, Get64, Put32 and Put64 access one lane of a row. The step from lane to lane is in bytes; 0 for a single value.
func Get32(p unsafe.Pointer, step, lane int) uint32 { return *(*uint32)(unsafe.Add(p, step*lane)) }
func Get64(p unsafe.Pointer, step, lane int) uint64 { return *(*uint64)(unsafe.Add(p, step*lane)) }
func Put32(p unsafe.Pointer, lane int, v uint32)    { *(*uint32)(unsafe.Add(p, 4*lane)) = v }
func Put64(p unsafe.Pointer, lane int, v uint64)    { *(*uint64)(unsafe.Add(p, 8*lane)) = v }

//go:generate go run ./internal/genrows

// RowFunc computes n lanes of d from a, b and c. Operands in the set scalars,
// 1 for the first, 2, 4, are single values. Unless there is but one lane, n is a
// multiple of BlockLanes, or of 64 if the result is a row of bits: rows have room for
// that. Pointers stay within the group's register file, because slots do.
type RowFunc func(d, a, b, c unsafe.Pointer, n int, scalars int)

// BlockLanes is the number of 32-bit lanes of the widest vectors.
const BlockLanes = 16

// VectorLevel is the level of usable vector kernels: none, those of AVX2, or those of AVX-512 as well. Tests set it to
// compare them.
var VectorLevel = detectVectorLevel()

// FastRow returns the fastest kernel of an operation, or nil.
func FastRow(name string) RowFunc {
	for level := VectorLevel; level > 0; level-- {
		if f := vectorRows[name][level-1]; f != nil {
			return f
		}
	}
	return plainRows[name]
}

// PlainRow returns the plain loop of an operation, or nil.
func PlainRow(name string) RowFunc { return plainRows[name] }

// HasRow reports whether there is a row operation of this name.
func HasRow(name string) bool { return plainRows[name] != nil }

// ComparesIntegers reports whether a row operation is a comparison of integers.
func ComparesIntegers(name string) bool {
	return strings.HasPrefix(name, "cmp") && !strings.Contains(name, "F")
}

// stepOf returns the distance between the lanes of an operand, in bytes.
func stepOf(scalars, operand, size int) int {
	if scalars>>operand&1 != 0 {
		return 0
	}
	return size
}

// bitAt returns bit i of a row of bits.
func bitAt(p unsafe.Pointer, i int) bool {
	return *(*uint64)(unsafe.Add(p, i>>6*8))>>(i&63)&1 != 0
}

// partly returns a row operation of one f32 operand by a vector kernel that stops at lanes that it doesn't support, and
// returns how many are left. The plain kernel computes these.
func partly(vector func(d, a, b, c unsafe.Pointer, n int, scalars int) int, plain RowFunc) RowFunc {
	return func(d, a, _, _ unsafe.Pointer, n int, scalars int) {
		for n > 0 {
			left := vector(d, a, nil, nil, n, scalars)
			d = unsafe.Add(d, (n-left)*4)
			a = unsafe.Add(a, (n-left)*stepOf(scalars, 0, 4))
			n = min(left, BlockLanes)
			plain(d, a, nil, nil, n, scalars)
			d = unsafe.Add(d, n*4)
			a = unsafe.Add(a, n*stepOf(scalars, 0, 4))
			n = left - n
		}
	}
}

// LaneFunc computes one lane. Operands and result are zero-extended bits.
type LaneFunc func(a, b, c uint64) uint64

// RowOf returns a row kernel of a function of single lanes, for operands of the given sizes.
func RowOf(f LaneFunc, wideD, wideA, wideB, wideC bool) RowFunc {
	load := func(p unsafe.Pointer, wide bool, step, i int) uint64 {
		switch {
		case p == nil:
			return 0
		case wide:
			return Get64(p, step, i)
		}
		return uint64(Get32(p, step, i))
	}
	size := func(wide bool) int { return Pick(wide, 4, 8) }
	return func(d, a, b, c unsafe.Pointer, n int, scalars int) {
		as, bs, cs := stepOf(scalars, 0, size(wideA)), stepOf(scalars, 1, size(wideB)), stepOf(scalars, 2, size(wideC))
		for i := range n {
			r := f(load(a, wideA, as, i), load(b, wideB, bs, i), load(c, wideC, cs, i))
			if wideD {
				Put64(d, i, r)
			} else {
				Put32(d, i, uint32(r))
			}
		}
	}
}
