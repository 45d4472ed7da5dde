package lane

import (
	"math"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// The vector kernels compute the same bits as the plain loops, for ordinary and special values.
func TestVectorKernels(t *testing.T) {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasFMA {
		if useAVX2 {
			t.Error("the vector kernels are used on a processor that lacks AVX2 or FMA")
		}
		return
	}
	defer func(was bool) { useAVX2 = was }(useAVX2)
	const n = 253
	special := []uint32{0, 1 << 31, 1, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000, 0x3f800001, 0x33800000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345}
	r := random(7)
	var in [3][n]uint32
	for round := range 200 {
		for k := range in {
			for i := range n {
				switch r.IntN(4) {
				case 0:
					in[k][i] = special[r.IntN(len(special))]
				case 1:
					in[k][i] = r.Uint32()
				default:
					in[k][i] = math.Float32bits(float32(r.NormFloat64()))
				}
			}
		}
		for _, name := range []string{"addF32", "subF32", "mulF32", "divF32", "fmaF32", "sqrtF32", "rcpF32"} {
			for set, f := range rowTable[name].rows {
				if f == nil {
					continue
				}
				var want, got [n]uint32
				args := [3]unsafe.Pointer{unsafe.Pointer(&in[0]), unsafe.Pointer(&in[1]), unsafe.Pointer(&in[2])}
				useAVX2 = false
				f(unsafe.Pointer(&want), args[0], args[1], args[2], n)
				useAVX2 = true
				f(unsafe.Pointer(&got), args[0], args[1], args[2], n)
				for i := range n {
					if want[i] != got[i] {
						t.Fatalf("round %d: %s, scalars %b, lane %d: %x %x %x: vector %x, plain %x", round, name, set, i, in[0][i], in[1][i], in[2][i], got[i], want[i])
					}
				}
			}
		}
	}
}
