package lane

import (
	"bytes"
	"math"
	"testing"

	"pegasus/accel/ptx"
)

// surface is one of bytes that count up.
func surface(w, h, d int, f Format, channels int) *Texture {
	t := &Texture{Width: w, Height: h, Depth: d, Format: f, Channels: channels, Surface: true}
	t.PitchBytes = (w*t.ElementBytes() + 15) &^ 15
	t.SliceBytes = t.PitchBytes * max(h, 1)
	t.Data = make([]byte, t.SliceBytes*max(d, 1))
	for i := range t.Data {
		t.Data[i] = byte(i)
	}
	return t
}

const minus = 0xffffffff

// surfaceLoad is an instruction that reads a surface, or faults.
type surfaceLoad struct {
	instruction string
	surface     *Texture
	in          [4]uint32
	want        [4]uint32
	fault       int32
}

// surfaceLoads have values worked out by hand. Rows are 16 bytes apart.
func surfaceLoads() []surfaceLoad {
	line, flat, solid := surface(8, 0, 0, U8, 1), surface(4, 3, 0, U16, 2), surface(4, 3, 2, U8, 4)
	layers := with(solid, func(t *Texture) { t.Layered = true })
	lines := with(surface(8, 0, 3, U8, 1), func(t *Texture) { t.Layered = true })
	signed, halves := surface(4, 0, 0, S8, 2), surface(4, 0, 0, F16, 1)
	signed.Data[3] = 0x80
	halves.Data[2], halves.Data[3] = 0x00, 0xc1 // -2.5
	return []surfaceLoad{
		{"suld.b.1d.b32.trap %r5, [%tex, {%r1}];", line, [4]uint32{4}, [4]uint32{0x07060504}, 0},
		{"suld.b.1d.b32.trap %r5, [%tex, {%r1}];", line, [4]uint32{8}, [4]uint32{}, ptx.ErrIllegalAddress},
		{"suld.b.1d.b32.trap %r5, [%tex, {%r1}];", line, [4]uint32{minus}, [4]uint32{}, ptx.ErrIllegalAddress},
		{"suld.b.1d.b32.trap %r5, [%tex, {%r1}];", line, [4]uint32{2}, [4]uint32{}, ptx.ErrMisalignedAddress},
		{"suld.b.1d.b32.zero %r5, [%tex, {%r1}];", line, [4]uint32{8}, [4]uint32{}, 0},
		{"suld.b.1d.b32.clamp %r5, [%tex, {%r1}];", line, [4]uint32{80}, [4]uint32{0x07060504}, 0},
		{"suld.b.1d.b32.clamp %r5, [%tex, {%r1}];", line, [4]uint32{minus - 3}, [4]uint32{0x03020100}, 0},
		{"suld.b.1d.b32.clamp %r5, [%tex, {%r1}];", line, [4]uint32{99}, [4]uint32{}, ptx.ErrMisalignedAddress},
		{"suld.b.1d.b32.clamp %r5, [%tex, {%r1}];", line, [4]uint32{minus}, [4]uint32{}, ptx.ErrMisalignedAddress},
		{"suld.b.1d.v4.b32.clamp {%r5, %r6, %r7, %r8}, [%tex, {%r1}];", line, [4]uint32{}, [4]uint32{}, 0}, // wider than the surface
		{"suld.b.1d.b8.trap %h1, [%tex, {%r1}]; cvt.u32.u16 %r5, %h1;", line, [4]uint32{5}, [4]uint32{5}, 0},
		{"suld.b.1d.b16.trap %h1, [%tex, {%r1}]; cvt.u32.u16 %r5, %h1;", line, [4]uint32{6}, [4]uint32{0x0706}, 0},
		{"suld.b.1d.b64.trap %a3, [%tex, {%r1}]; mov.b64 {%r5, %r6}, %a3;", line, [4]uint32{}, [4]uint32{0x03020100, 0x07060504}, 0},
		{"suld.b.2d.cg.v2.b32.trap {%r5, %r6}, [%tex, {%r1, %r2}];", flat, [4]uint32{8, 2}, [4]uint32{0x2b2a2928, 0x2f2e2d2c}, 0},
		{"suld.b.2d.v2.b32.clamp {%r5, %r6}, [%tex, {%r1, %r2}];", flat, [4]uint32{8, 9}, [4]uint32{0x2b2a2928, 0x2f2e2d2c}, 0},
		{"suld.b.2d.v2.b32.trap {%r5, %r6}, [%tex, {%r1, %r2}];", flat, [4]uint32{8, 3}, [4]uint32{}, ptx.ErrIllegalAddress},
		{"suld.b.3d.v2.b32.trap {%r5, %r6}, [%tex, {%r1, %r2, %r3, %r4}];", solid, [4]uint32{0, 1, 1, 9}, [4]uint32{0x43424140, 0x47464544}, 0},
		{"suld.b.3d.b32.zero %r5, [%tex, {%r1, %r2, %r3, %r4}];", solid, [4]uint32{0, 1, 2, 9}, [4]uint32{}, 0},
		{"suld.b.a1d.b32.trap %r5, [%tex, {%r1, %r2}];", lines, [4]uint32{2, 4}, [4]uint32{0x27262524}, 0},
		{"suld.b.a2d.b32.trap %r5, [%tex, {%r1, %r2, %r3, %r4}];", layers, [4]uint32{1, 4, 2}, [4]uint32{0x57565554}, 0},
		{"suld.b.a2d.b32.clamp %r5, [%tex, {%r1, %r2, %r3, %r4}];", layers, [4]uint32{7, 4, 2}, [4]uint32{0x57565554}, 0},
		{"suld.b.a2d.b32.trap %r5, [%tex, {%r1, %r2, %r3, %r4}];", layers, [4]uint32{2, 4, 2}, [4]uint32{}, ptx.ErrIllegalAddress},
		{"suld.p.1d.v2.b32.trap {%r5, %r6}, [%tex, {%r1}];", signed, [4]uint32{1}, [4]uint32{2, 0xffffff80}, 0},
		{"suld.p.1d.v4.s32.trap {%r5, %r6, %r7, %r8}, [%tex, {%r1}];", signed, [4]uint32{1}, [4]uint32{2, 0xffffff80}, 0},
		{"suld.p.1d.f32.trap %r5, [%tex, {%r1}];", halves, [4]uint32{1}, floats(-2.5), 0},
		{"suld.p.1d.b32.trap %r5, [%tex, {%r1}];", halves, [4]uint32{4}, [4]uint32{}, ptx.ErrIllegalAddress},
		{"suld.b.1d.b32.trap %r5, [s, {%r1}];", line, [4]uint32{4}, [4]uint32{0x07060504}, 0},
		{"suld.b.1d.b32.trap %r5, [%tex, {0x80000000}];", line, [4]uint32{}, [4]uint32{}, ptx.ErrIllegalAddress},
	}
}

func TestSurfaceLoads(t *testing.T) {
	for _, c := range surfaceLoads() {
		out, fault := reads(t, reader(".global .surfref s;", c.instruction), map[uint64]*Texture{1: c.surface}, [][4]uint32{c.in})
		switch {
		case fault != nil && fault.Result == c.fault:
		case fault != nil || c.fault != 0:
			t.Errorf("%s %x: %v, want %d", c.instruction, c.in, fault, c.fault)
		case out[0] != c.want:
			t.Errorf("%s %x: %x, want %x", c.instruction, c.in, out[0], c.want)
		}
	}
}

// surfaceStore is an instruction that changes a surface.
type surfaceStore struct {
	instruction string
	surface     *Texture
	in          [4]uint32
	at          int
	want        []byte // from there on; nothing else changes
}

func surfaceStores() []surfaceStore {
	return []surfaceStore{
		{"sust.b.1d.b8.trap [%tex, {%r1}], %h1;", surface(8, 0, 0, U8, 1), [4]uint32{3, 0x1fe}, 3, []byte{0xfe}},
		{"sust.b.1d.b16.trap [%tex, {%r1}], %h1;", surface(8, 0, 0, U8, 1), [4]uint32{2, 0xabcd}, 2, []byte{0xcd, 0xab}},
		{"sust.b.1d.b32.clamp [%tex, {%r1}], %r2;", surface(8, 0, 0, U8, 1), [4]uint32{100, 0xaabbccdd}, 4, []byte{0xdd, 0xcc, 0xbb, 0xaa}},
		{"sust.b.1d.b32.zero [%tex, {%r1}], %r2;", surface(8, 0, 0, U8, 1), [4]uint32{8, 0xaabbccdd}, 0, nil},
		{"sust.b.2d.v2.b32.trap [%tex, {%r1, %r2}], {%r3, %r4};", surface(4, 3, 0, F32, 1), [4]uint32{8, 1, 0xa3a2a1a0, 0xb3b2b1b0}, 24, []byte{0xa0, 0xa1, 0xa2, 0xa3, 0xb0, 0xb1, 0xb2, 0xb3}},
		{"sust.b.3d.v2.b64.zero [%tex, {%r1, %r2, %r3, %r4}], {%a3, 5};", surface(4, 3, 2, F32, 1), [4]uint32{0, 0, 1, 0}, 48, []byte{15: 0, 8: 5}},
		{"sust.b.a2d.b32.trap [%tex, {%r1, %r2, %r3, 0}], %r4;", with(surface(4, 3, 2, U8, 4), func(t *Texture) { t.Layered = true }), [4]uint32{1, 4, 2, 0x01010101}, 84, []byte{1, 1, 1, 1}},
		{"sust.p.1d.v4.b32.zero [%tex, {%r1}], {%r2, %r3, %r4, %r4};", surface(4, 0, 0, S8, 4), [4]uint32{1, 200, minus, 0x80000000}, 4, []byte{127, 0xff, 0x80, 0x80}},
		{"sust.p.1d.v4.b32.trap [%tex, {%r1}], {%r2, %r3, %r4, %r4};", surface(4, 0, 0, U16, 2), [4]uint32{1, 0x12345, 7, 9}, 4, []byte{0xff, 0xff, 7, 0}},
		{"sust.p.1d.f32.trap [%tex, {%r1}], %r2;", surface(4, 0, 0, F16, 1), [4]uint32{3, math.Float32bits(-2.5)}, 6, []byte{0x00, 0xc1}},
		{"sust.b.1d.b32.trap [s, {%r1}], %r2;", surface(8, 0, 0, U8, 1), [4]uint32{4, 0xaabbccdd}, 4, []byte{0xdd, 0xcc, 0xbb, 0xaa}},
		{"@!%p sust.b.1d.b32.trap [s, {%r1}], %r2;", surface(8, 0, 0, U8, 1), [4]uint32{4, 0xaabbccdd}, 4, nil},
		{"sured.b.add.1d.u32.trap [%tex, {%r1}], %r2;", surface(4, 0, 0, U32, 1), [4]uint32{4, 0x01010101}, 4, []byte{5, 6, 7, 8}},
		{"sured.b.min.1d.s32.trap [%tex, {%r1}], %r2;", surface(4, 0, 0, U32, 1), [4]uint32{4, minus}, 4, []byte{0xff, 0xff, 0xff, 0xff}},
		{"sured.b.min.1d.u32.trap [%tex, {%r1}], %r2;", surface(4, 0, 0, U32, 1), [4]uint32{4, minus}, 4, nil},
		{"sured.p.min.1d.b32.trap [%tex, {%r1}], %r2;", surface(4, 0, 0, S32, 1), [4]uint32{1, minus}, 4, []byte{0xff, 0xff, 0xff, 0xff}},
		{"sured.p.max.2d.b32.zero [%tex, {%r1, %r2}], %r3;", surface(4, 2, 0, U32, 1), [4]uint32{1, 1, minus}, 20, []byte{0xff, 0xff, 0xff, 0xff}},
		{"sured.p.max.2d.b32.zero [%tex, {%r1, %r2}], %r3;", surface(4, 2, 0, U32, 1), [4]uint32{1, 2, minus}, 0, nil},
		{"sured.b.or.1d.b32.clamp [%tex, {%r1}], %r2;", surface(4, 0, 0, U32, 1), [4]uint32{1000, 0xf0}, 12, []byte{0xfc}},
		{"sured.b.and.3d.b64.trap [%tex, {%r1, %r2, %r3, %r3}], %a3;", surface(4, 1, 2, U32, 1), [4]uint32{8, 0, 1, 0}, 24, make([]byte, 8)},
		{"sust.b.3d.v2.b32.trap [%tex, {%r1, %r2, %r3, 0}], {%r4, 7};", surface(4, 3, 2, F32, 1), [4]uint32{8, 1, 1, 5}, 72, []byte{5, 0, 0, 0, 7, 0, 0, 0}},
		{"sust.b.3d.v2.b32.clamp [%tex, {%r1, %r2, %r3, 0}], {%r4, 7};", surface(4, 3, 2, F32, 1), [4]uint32{8, 9, 9, 5}, 88, []byte{5, 0, 0, 0, 7, 0, 0, 0}},
		{"sured.b.add.2d.u32.trap [%tex, {%r1, %r2}], %r3;", surface(4, 2, 0, U32, 1), [4]uint32{4, 1, 0x01010101}, 20, []byte{21, 22, 23, 24}},
		{"sured.b.add.2d.u32.clamp [%tex, {%r1, %r2}], %r3;", surface(4, 2, 0, U32, 1), [4]uint32{4, 5, 0x01010101}, 20, []byte{21, 22, 23, 24}},
		{"sured.p.min.1d.b32.zero [%tex, {%r1}], %r2;", surface(4, 0, 0, U32, 1), [4]uint32{1, 5}, 4, []byte{5, 0, 0, 0}},
		{"sured.p.min.1d.b32.zero [%tex, {%r1}], %r2;", surface(4, 0, 0, U32, 1), [4]uint32{4, 5}, 0, nil},
	}
}

func TestSurfaceStores(t *testing.T) {
	for _, c := range surfaceStores() {
		before := bytes.Clone(c.surface.Data)
		copy(before[c.at:], c.want)
		src := reader(".global .surfref s;", ".reg .pred %p; setp.eq.u32 %p, %r0, %r0; cvt.u16.u32 %h1, %r2; mov.b64 %a3, 0; "+c.instruction)
		if _, fault := reads(t, src, map[uint64]*Texture{1: c.surface}, [][4]uint32{c.in}); fault != nil {
			t.Errorf("%s: %v", c.instruction, fault)
		} else if !bytes.Equal(c.surface.Data, before) {
			t.Errorf("%s: % x\nwant % x", c.instruction, c.surface.Data, before)
		}
	}
}

// Stores and reductions beyond the edges trap, and a reduction of too small an element faults.
func TestSurfaceTraps(t *testing.T) {
	for _, c := range []struct {
		instruction string
		surface     *Texture
		result      int32
	}{
		{"sust.b.1d.b32.trap [%tex, {%r1}], %r2;", surface(8, 0, 0, U8, 1), ptx.ErrIllegalAddress},
		{"sust.p.2d.v4.b32.trap [%tex, {%r2, %r1}], {%r2, %r2, %r2, %r2};", surface(8, 4, 0, U8, 4), ptx.ErrIllegalAddress},
		{"sured.b.add.2d.u32.trap [%tex, {%r1, %r2}], %r2;", surface(2, 4, 0, U32, 1), ptx.ErrIllegalAddress},
		{"sured.p.add.1d.b32.trap [%tex, {%r2}], %r2;", surface(8, 0, 0, U8, 1), ptx.ErrMisalignedAddress},
	} {
		_, fault := reads(t, reader("", c.instruction), map[uint64]*Texture{1: c.surface}, [][4]uint32{{8}})
		if fault == nil || fault.Result != c.result {
			t.Errorf("%s: %v, want %d", c.instruction, fault, c.result)
		}
	}
}

// Blocks that reduce to the same element lose nothing.
func TestSurfaceReductionOfBlocks(t *testing.T) {
	s := surface(1, 0, 0, U32, 1)
	clear(s.Data)
	d := newDevice(t)
	k := d.kernel(d.load([]byte(".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 s)\n{\n"+
		".reg .b64 %s; .reg .b32 %r;\nld.param.u64 %s, [s]; mov.u32 %r, 0;\nsured.b.add.1d.u32.trap [%s, {%r}], 3;\nret;\n}\n")), "k")
	l := d.launch(k, x(500), x(32), uint64(1))
	l.Texture = func(uint64) *Texture { return s }
	if f := k.Run(l); f != nil {
		t.Fatal(f)
	}
	if got := (buffer{mem: s.Data}).word(0); got != 3*500*32 {
		t.Errorf("%d, want %d", got, 3*500*32)
	}
}
