// Package lanetest has helpers for the tests of the packages that execute kernels.
//
// Callers: tests of accel/soft/lane and of the packages below it.
//
// Trust boundary: none.
package lanetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// Main runs the tests of a package. They can be run without vector kernels, or with those of AVX2 only:
// PEGASUS_TEST_VECTORS=0 or 1. level is that of package arith.
func Main(m *testing.M, level *int) {
	if s := os.Getenv("PEGASUS_TEST_VECTORS"); s != "" {
		*level = min(*level, int(s[0]-'0'))
	}
	os.Exit(m.Run())
}

// EachLevel runs a test with the vector kernels of each level that the processor has. level is that of package arith.
func EachLevel(t *testing.T, level *int, f func(t *testing.T)) {
	defer func(was int) { *level = was }(*level)
	for n := range *level + 1 {
		*level = n
		t.Run(fmt.Sprintf("vectors%d", n), f)
	}
}

// Random returns a source of random numbers.
func Random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Specials are values at which arithmetic is different.
var Specials = []uint64{
	0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 31, 32, 33, 63, 64, 65,
	0x3f800000, 0xbf800000, 0x3f800001, 0x33800000, 0x007fffff, 0x00800000, 0x807fffff, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
	0x7fc00000, 0xffc12345, 0x7f812345, 0x4f000000, 0x4effffff, 0xcf000000, 0x4f800000, 0x4f7fffff, 0x477fff00, 0xc3000000, 0xc3170000, 0x43010000, 0x40490fdb, 0x4d7fffff, 0x4d800000, 0xcd800000, 0x7e800000, 0xff000000,
	1 << 63, 1<<63 - 1, 1<<64 - 1, 1 << 32, 1<<32 - 1 + 1<<31, 0x3ff0000000000000, 0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001,
	0x000fffffffffffff, 0x0010000000000000, 0x41e0000000000000, 0x41dfffffffc00000, 0xc1e0000000000000, 0x43e0000000000000, 0x47efffffe0000000, 0x47effffff0000000, 0x36a0000000000000, 0x3690000000000000,
}
