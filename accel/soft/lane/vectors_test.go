package lane

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// The tests of this package can be run without vector kernels, or with those of
// AVX2 only: PEGASUS_TEST_VECTORS=0 or 1.
func TestMain(m *testing.M) {
	if s := os.Getenv("PEGASUS_TEST_VECTORS"); s != "" {
		vectors = min(vectors, int(s[0]-'0'))
	}
	os.Exit(m.Run())
}

// eachLevel runs a test with the kernels of each level that the processor has.
func eachLevel(t *testing.T, f func(t *testing.T)) {
	defer func(was int) { vectors = was }(vectors)
	for level := range vectors + 1 {
		vectors = level
		t.Run(fmt.Sprintf("vectors%d", level), f)
	}
}

// specials are values at which arithmetic is different.
var specials = []uint64{
	0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff, 31, 32, 33, 63, 64, 65,
	0x3f800000, 0xbf800000, 0x3f800001, 0x33800000, 0x007fffff, 0x00800000, 0x807fffff, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
	0x7fc00000, 0xffc12345, 0x7f812345, 0x4f000000, 0x4effffff, 0xcf000000, 0x4f800000, 0x4f7fffff, 0x477fff00, 0xc3000000, 0xc3170000, 0x43010000, 0x40490fdb, 0x4d7fffff, 0x4d800000, 0xcd800000, 0x7e800000, 0xff000000,
	1 << 63, 1<<63 - 1, 1<<64 - 1, 1 << 32, 1<<32 - 1 + 1<<31, 0x3ff0000000000000, 0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001,
	0x000fffffffffffff, 0x0010000000000000, 0x41e0000000000000, 0x41dfffffffc00000, 0xc1e0000000000000, 0x43e0000000000000, 0x47efffffe0000000, 0x47effffff0000000, 0x36a0000000000000, 0x3690000000000000,
}

// fillRow fills a row with random lanes, some of them special, as 32-bit or 64-bit values.
func fillRow(r *rand.Rand, row *[maxLanes]uint64, wide bool) {
	special := func() uint64 { return specials[r.IntN(len(specials))] }
	for i := range row {
		switch r.IntN(4) {
		case 0:
			row[i] = special()
		case 1:
			row[i] = special() | special()<<32
		case 2:
			row[i] = r.Uint64()
		default: // numbers of moderate size
			exponent := func(bias uint64) uint64 { return bias - 20 + r.Uint64N(40) }
			if row[i] = r.Uint64()&(1<<63|1<<52-1) | exponent(1023)<<52; !wide {
				row[i] = r.Uint64()&0x807fffff807fffff | exponent(127)<<23 | exponent(127)<<55
			}
		}
	}
}

// operandBits are the widths of an operation's operands and of its result, 1 for bits.
func operandBits(t *testing.T, name string) (in []int, out int) {
	s, ok := rowTypes[name]
	if !ok {
		t.Fatalf("%s has no types", name)
	}
	for _, w := range strings.Fields(s) {
		n := 32
		switch {
		case w == "bit":
			n = 1
		case strings.HasSuffix(w, "64"):
			n = 64
		}
		in = append(in, n)
	}
	return in[1:], in[0]
}

// The vector kernels compute the same bits as the plain loops: for random and
// special values, all choices of single operands, and results in an operand's place.
func TestVectorKernels(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for level := 1; level <= vectorLevel(); level++ {
		for _, name := range slices.Sorted(maps.Keys(vectorRows[level-1])) {
			t.Run(fmt.Sprintf("%d/%s", level, name), func(t *testing.T) {
				in, out := operandBits(t, name)
				r := random(7)
				for range rounds {
					compareKernels(t, r, vectorRows[level-1][name], plainRows[name], in, out)
				}
			})
		}
	}
}

func compareKernels(t *testing.T, r *rand.Rand, vector, plain rowFunc, in []int, out int) {
	t.Helper()
	n := 64 * (1 + r.IntN(maxLanes/64))
	if out != 1 {
		n = blockLanes * (1 + r.IntN(maxLanes/blockLanes))
	}
	for scalars := range 1 << len(in) {
		var rows [3][maxLanes]uint64
		var p [3]unsafe.Pointer
		for i := range in {
			if in[i] == 1 && scalars>>i&1 != 0 {
				return // a mask is always a row
			}
			fillRow(r, &rows[i], in[i] == 64)
			p[i] = unsafe.Pointer(&rows[i])
		}
		const guard = 0x1234567812345678
		want, got := new([maxLanes + 1]uint64), new([maxLanes + 1]uint64)
		for i := range want {
			want[i], got[i] = guard, guard
		}
		plain(unsafe.Pointer(want), p[0], p[1], p[2], n, scalars)
		vector(unsafe.Pointer(got), p[0], p[1], p[2], n, scalars)
		sameRows(t, out, n, want, got, &rows, scalars)
		for i := range in { // the result replaces an operand
			if in[i] != out || scalars>>i&1 != 0 {
				continue
			}
			var over [maxLanes + 1]uint64
			copy(over[:], rows[i][:])
			q := p
			q[i] = unsafe.Pointer(&over)
			vector(q[i], q[0], q[1], q[2], n, scalars)
			copy(over[n*out/64:], want[n*out/64:])
			sameRows(t, out, n, want, &over, &rows, scalars)
		}
	}
}

// sameRows compares rows: n lanes of the given width, and the bytes behind them. The choice among NaNs of 64 bits is
// open.
func sameRows(t *testing.T, width, n int, want, got *[maxLanes + 1]uint64, in *[3][maxLanes]uint64, scalars int) {
	t.Helper()
	for i := range want {
		if want[i] == got[i] || width == 64 && i < n && nan64(want[i]) && nan64(got[i]) {
			continue
		}
		at := func(k, lane int) uint64 {
			if scalars>>k&1 != 0 {
				lane = 0
			}
			return in[k][lane]
		}
		t.Fatalf("%d lanes, scalars %b, word %d: got %x, want %x; operands %x %x %x (as 32 bits: words %d)", n, scalars, i, got[i], want[i], at(0, i), at(1, i), at(2, i), i)
	}
}
