package arith

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pegasus/accel/soft/lane/internal/lanetest"
)

// fillRow fills a row with random lanes, some of them special, as 32-bit or 64-bit values.
func fillRow(r *rand.Rand, row *[testLanes]uint64, wide bool) {
	special := func() uint64 { return lanetest.Specials[r.IntN(len(lanetest.Specials))] }
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
	for level := 1; level <= detectVectorLevel(); level++ {
		for _, name := range slices.Sorted(maps.Keys(vectorRows)) {
			vector := vectorRows[name][level-1]
			if vector == nil {
				continue
			}
			t.Run(fmt.Sprintf("%d/%s", level, name), func(t *testing.T) {
				in, out := operandBits(t, name)
				r := lanetest.Random(7)
				for range rounds {
					compareKernels(t, r, vector, plainRows[name], in, out)
				}
			})
		}
	}
}

func compareKernels(t *testing.T, r *rand.Rand, vector, plain RowFunc, in []int, out int) {
	t.Helper()
	n := 64 * (1 + r.IntN(testLanes/64))
	if out != 1 {
		n = BlockLanes * (1 + r.IntN(testLanes/BlockLanes))
	}
	for scalars := range 1 << len(in) {
		var rows [3][testLanes]uint64
		var p [3]unsafe.Pointer
		for i := range in {
			if in[i] == 1 && scalars>>i&1 != 0 {
				return // a mask is always a row
			}
			fillRow(r, &rows[i], in[i] == 64)
			p[i] = unsafe.Pointer(&rows[i])
		}
		const guard = 0x1234567812345678
		want, got := new([testLanes + 1]uint64), new([testLanes + 1]uint64)
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
			var over [testLanes + 1]uint64
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
func sameRows(t *testing.T, width, n int, want, got *[testLanes + 1]uint64, in *[3][testLanes]uint64, scalars int) {
	t.Helper()
	for i := range want {
		if want[i] == got[i] || width == 64 && i < n && isNaN64(want[i]) && isNaN64(got[i]) {
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

func isNaN64(x uint64) bool { return x<<1 > 0x7ff<<53 }

// testLanes is the number of lanes of the longest rows.
const testLanes = 256
