package lane

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/internal/lanetest"
)

// hardPlace is a coordinate that is hard on a texture of n elements.
func hardPlace(r *rand.Rand, n int) uint32 {
	edges := []float32{0, -1e-45, 1e-45, 0.5, -0.5, 1, 1 << 20, 1 << 22, 1 << 23, 1 << 31, -1 << 31, 3e38, -3e38}
	switch r.IntN(6) {
	case 0:
		return r.Uint32()
	case 1:
		return uint32(lanetest.Specials[r.IntN(len(lanetest.Specials))])
	case 2:
		return math.Float32bits(edges[r.IntN(len(edges))])
	case 3: // where the weight is rounded from one 256th to the next
		x := float32(r.IntN(512*(n+2))-512) / 512
		return math.Float32bits(x) + uint32(r.IntN(3)) - 1
	}
	return math.Float32bits(r.Float32()*float32(n+2) - 1)
}

// Lanes that read a texture together get the same values as each would alone, and those that don't take part keep
// theirs.
func TestSampler(t *testing.T) {
	lanetest.EachLevel(t, &arith.VectorLevel, func(t *testing.T) {
		r := lanetest.Random(11)
		for _, format := range []Format{U8, U16, F32, U32} {
			for _, channels := range []int{1, 2, 3, 4} {
				for mode := range 8 {
					size := [][2]int{{1, 1}, {2, 2}, {7, 5}, {300, 200}, {64, 1}, {64, 0}, {1, 9}}[r.IntN(7)]
					tex := &Texture{Width: size[0], Height: size[1], Format: format, Channels: channels, Linear: mode&1 != 0, ReadFloat: mode&2 != 0,
						Address: [3]AddressMode{AddressMode(r.IntN(4)), Clamp, Clamp}, Border: [4]float32{1, 2, 3, 4}}
					tex.PitchBytes = tex.Width*tex.ElementBytes() + r.IntN(3)*4
					tex.Data = make([]byte, (max(tex.Height, 1)-1)*tex.PitchBytes+tex.Width*tex.ElementBytes())
					for i := range tex.Data {
						tex.Data[i] = byte(r.Uint32() | r.Uint32())
					}
					testSampler(t, r, tex, mode&4 != 0)
				}
			}
		}
	})
}

func testSampler(t *testing.T, r *rand.Rand, tex *Texture, part bool) {
	t.Helper()
	in := make([][4]uint32, 1+r.IntN(300))
	for i := range in {
		in[i] = [4]uint32{hardPlace(r, tex.Width), hardPlace(r, max(tex.Height, 1)), r.Uint32()}
	}
	dims, places := 2, "%r1, %r2"
	if tex.Height == 0 {
		dims, places = 1, "%r1"
	}
	guard := ""
	if part {
		guard = "@%p "
	}
	src := reader("", fmt.Sprintf(".reg .pred %%p; setp.lt.s32 %%p, %%r3, 0;\n%stex.%dd.v4.u32.f32 {%%r5, %%r6, %%r7, %%r8}, [%%tex, {%s}];", guard, dims, places))
	out, fault := reads(t, src, map[uint64]*Texture{1: tex}, in)
	if fault != nil {
		t.Fatal(fault)
	}
	for i, v := range in {
		var want [4]uint32
		if !part || int32(v[2]) < 0 {
			want = tex.Read(dims, [3]uint32{v[0], v[1]})
		}
		if out[i] != want {
			d := *tex
			d.Data = nil
			t.Fatalf("%+v at %x (%v, %v): %x, want %x", d, v, math.Float32frombits(v[0]), math.Float32frombits(v[1]), out[i], want)
		}
	}
}
