package exec

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/internal/lanetest"
	"pegasus/accel/soft/lane/ir"
)

// addresses are made of pieces that each have a step of their own, of multiples of size up to limit.
func addresses(r *rand.Rand, n int, size, limit uint64) []uint64 {
	var list []uint64
	for len(list) < n {
		first := r.Uint64N(limit/size) * size
		step := []uint64{0, size, size, size, 2 * size, -size, 4 * size, 1000 * size}[r.IntN(8)]
		for i := range uint64([]int{1, 2, 7, 16, 16, 32, 256}[r.IntN(7)]) {
			list = append(list, (first+i*step)%limit&-size)
		}
	}
	return list[:n]
}

// row holds values as rows of lanes do, with room behind them.
func row(values []uint64, wide bool) unsafe.Pointer {
	mem := make([]uint64, ir.MaxLanes+8)
	for i, v := range values {
		if wide {
			mem[i] = v
		} else {
			arith.Put32(unsafe.Pointer(&mem[0]), i, uint32(v))
		}
	}
	return unsafe.Pointer(&mem[0])
}

// The shape of addresses does not depend on the code that determines it.
func TestLook(t *testing.T) {
	lanetest.EachLevel(t, &arith.VectorLevel, func(t *testing.T) {
		r := lanetest.Random(8)
		for round := range 3000 {
			n := 1 + r.IntN(ir.MaxLanes)
			list := addresses(r, n, 4, []uint64{1 << 10, 1 << 31, 1 << 32, 1 << 63}[r.IntN(4)])
			for _, wide := range []bool{false, true} {
				step := 4
				if wide {
					step = 8
					if shift := r.Uint64(); r.IntN(2) == 0 {
						for i := range list {
							list[i] += shift
						}
					}
				}
				var got, want shape
				scale := uint64(1)
				if !wide {
					scale = []uint64{1, 4, 12, 1 << 16}[r.IntN(4)]
				}
				got.look(row(list, wide), step, n, scale)
				want.low, want.high = math.MaxUint64, 0
				want.lookPlain(0, row(list, wide), step, n, scale)
				for i := range n - 1 {
					if same := list[i] == list[i+1] || !wide && uint32(list[i]) == uint32(list[i+1]); same && !got.mayRepeat(n) {
						t.Fatalf("round %d: lanes %d and %d of %#x don't differ", round, i, i+1, list)
					}
				}
				got.spell()
				clear(got.runs[(n+chunk-1)/chunk:])
				if got.differ, got.line, got.spelled = false, false, false; bits.TrailingZeros64(got.bits) != bits.TrailingZeros64(want.bits) {
					t.Fatalf("round %d, %d bytes: %#x\nhave bits %#x, want %#x", round, step, list, got.bits, want.bits)
				}
				if got.bits = want.bits; got != want {
					t.Fatalf("round %d, %d bytes: %#x\nlook like %+v\nnot       %+v", round, step, list, got, want)
				}
				for i, a := range list {
					if !wide {
						a = uint64(uint32(a)) * scale
					}
					if run := want.runs[i/chunk]; run.step != irregular && a != run.first+uint64(i%chunk)*uint64(run.step) || a < want.low || a > want.high || a&^want.bits != 0 {
						t.Fatalf("lane %d has %#x: %+v", i, a, want)
					}
				}
			}
		}
	})
}

// Vector loads and stores of lanes have the same effect as one after the other, and touch nothing else.
func TestTogether(t *testing.T) {
	lanetest.EachLevel(t, &arith.VectorLevel, func(t *testing.T) {
		testTogether[uint8, uint32](t)
		testTogether[uint16, uint32](t)
		testTogether[uint32, uint32](t)
		testTogether[uint64, uint64](t)
	})
}

func testTogether[T uint8 | uint16 | uint32 | uint64, S uint32 | uint64](t *testing.T) {
	const bytes = 4096
	size := uint64(unsafe.Sizeof(T(0)))
	r := lanetest.Random(9)
	for round := range 1000 {
		n := 1 + r.IntN(ir.MaxLanes)
		list := addresses(r, n, size, bytes)
		base := r.Uint64N(1 << 20)
		memory := make([]T, bytes/size)
		for i := range memory {
			memory[i] = T(r.Uint64())
		}
		values := make([]uint64, ir.MaxLanes)
		for i := range values {
			values[i] = uint64(S(r.Uint64()))
		}
		from := append([]uint64(nil), list...)
		for i := range from {
			from[i] += base
		}
		wide := r.IntN(2) == 0
		a := together{shape: new(shape), addresses: row(from, wide), step: 4, n: n, mem: unsafe.Pointer(&memory[0]), off: -base, scale: 1}
		if wide {
			a.step = 8
		}
		a.look(a.addresses, a.step, n, 1)
		size := unsafe.Sizeof(T(0))
		d := row(values, unsafe.Sizeof(S(0)) == 8)
		loadTogether[T, S](&a, vectorLoads[size], d)
		for i, got := range unsafe.Slice((*S)(d), ir.MaxLanes) {
			want := S(values[i])
			if i < n {
				want = S(memory[list[i]/uint64(size)])
			}
			if got != want {
				t.Fatalf("%T, round %d: lane %d of %d loads %#x, not %#x", T(0), round, i, n, got, want)
			}
		}
		want := slices.Clone(memory)
		for i, at := range list {
			want[at/uint64(size)] = T(values[i])
		}
		storeTogether[T, S](&a, vectorStores[size], row(values, unsafe.Sizeof(S(0)) == 8))
		if !slices.Equal(memory, want) {
			t.Fatalf("%T, round %d: %d lanes store to %#x otherwise than one by one", T(0), round, n, list)
		}
	}
}
