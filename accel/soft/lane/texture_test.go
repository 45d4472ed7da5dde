package lane

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"pegasus/accel/ptx"
	"pegasus/test/seeds"
)

// reader is a kernel that executes an instruction with four words of each thread, %r1 to %r4, and stores %r5 to %r8.
func reader(directives, instruction string) []byte {
	return []byte(".version 7.0\n.target sm_75\n.address_size 64\n" + directives + `
.visible .entry k(.param .u64 in, .param .u64 out, .param .u64 handle)
{
.reg .b16 %h<4>; .reg .b32 %r<16>; .reg .b64 %a<8>; .reg .b64 %tex;
ld.param.u64 %a0, [in]; ld.param.u64 %a1, [out]; ld.param.u64 %tex, [handle];
mov.u32 %r0, %tid.x; mul.wide.u32 %a2, %r0, 16; add.u64 %a0, %a0, %a2; add.u64 %a1, %a1, %a2;
ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%a0];
mov.b32 %r5, 0; mov.b32 %r6, 0; mov.b32 %r7, 0; mov.b32 %r8, 0;
` + instruction + `
st.global.v4.b32 [%a1], {%r5, %r6, %r7, %r8};
ret;
}
`)
}

// reads runs a reader on textures by handle, as many threads as there are inputs.
func reads(t *testing.T, src []byte, textures map[uint64]*Texture, in [][4]uint32) (out [][4]uint32, fault *Fault) {
	t.Helper()
	d := newDevice(t)
	from, to := d.buffer(16*len(in)), d.buffer(16*len(in))
	for i, v := range in {
		for k := range v {
			from.setWord(4*i+k, v[k])
		}
	}
	im := d.load(src)
	for name, v := range im.named { // references stand for the texture under their line
		if v.Opaque != ptx.Plain && textures[uint64(len(name))] != nil {
			textures[im.layout.Address[v]] = textures[uint64(len(name))]
		}
	}
	k := d.kernel(im, "k")
	l := d.launch(k, x(1), x(len(in)), from, to, uint64(1))
	l.Texture = func(h uint64) *Texture { return textures[h] }
	fault = k.Run(l)
	out = make([][4]uint32, len(in))
	for i := range out {
		for c := range 4 {
			out[i][c] = to.word(4*i + c)
		}
	}
	return out, fault
}

func floats(v ...float32) (b [4]uint32) {
	for i := range v {
		b[i] = math.Float32bits(v[i])
	}
	return b
}

// grid is a texture of f32 elements, where the one at x, y, z is x + 10y + 100z.
func grid(w, h, d int) *Texture {
	t := &Texture{Width: w, Height: h, Depth: d, PitchBytes: 4 * w, SliceBytes: 4 * w * max(h, 1), Format: F32, Channels: 1,
		Address: [3]AddressMode{Clamp, Clamp, Clamp}}
	t.Data = make([]byte, t.SliceBytes*max(d, 1))
	for z := range max(d, 1) {
		for y := range max(h, 1) {
			for x := range w {
				binary.LittleEndian.PutUint32(t.Data[z*t.SliceBytes+y*t.PitchBytes+4*x:], math.Float32bits(float32(x+10*y+100*z)))
			}
		}
	}
	return t
}

// with returns a changed copy of a texture.
func with(t *Texture, change func(*Texture)) *Texture {
	c := *t
	change(&c)
	return &c
}

// textureForm is an instruction that reads a texture at a place.
type textureForm struct {
	instruction string
	texture     *Texture
	in          [4]uint32
	want        float32
}

// textureForms have values worked out by hand.
func textureForms() []textureForm {
	line, flat, solid := grid(4, 0, 0), grid(4, 3, 0), grid(4, 3, 2)
	lines := with(grid(4, 0, 3), func(t *Texture) { t.Layered = true })
	layers := with(solid, func(t *Texture) { t.Layered = true })
	cube := with(grid(2, 2, 6), func(t *Texture) { t.Cube = true })
	cubes := with(grid(2, 2, 12), func(t *Texture) { t.Cube, t.Layered = true, true })
	linear := func(t *Texture) *Texture { return with(t, func(t *Texture) { t.Linear = true }) }
	normal := func(t *Texture, mode AddressMode) *Texture {
		return with(t, func(t *Texture) { t.Normalized, t.Address = true, [3]AddressMode{mode, mode, mode} })
	}
	const v = " {%r5, %r6, %r7, %r8}, [%tex, "
	return []textureForm{
		{"tex.1d.v4.f32.s32" + v + "{%r1}];", line, [4]uint32{2}, 2},
		{"tex.1d.v4.f32.s32" + v + "%r1];", line, [4]uint32{9}, 3},
		{"tex.1d.v4.f32.s32" + v + "{%r1}];", line, [4]uint32{0xffffffff}, 0},
		{"tex.1d.v4.f32.f32" + v + "{%r1}];", line, floats(2.9), 2},
		{"tex.1d.v4.f32.f32" + v + "{%r1}];", linear(line), floats(2.75), 2.25},
		{"tex.1d.v4.f32.f32" + v + "{%r1}];", linear(line), floats(0.25), 0},
		{"tex.1d.v4.f32.f32" + v + "{%r1}];", linear(line), floats(1.5 + 1./512), 1 + 1./256}, // the weight is rounded
		{"tex.2d.v4.f32.s32" + v + "{%r1, %r2}];", flat, [4]uint32{3, 1}, 13},
		{"tex.2d.v4.f32.f32" + v + "{%r1, %r2}];", linear(flat), floats(1, 2), 0.5 + 15},
		{"tex.3d.v4.f32.s32" + v + "{%r1, %r2, %r3, %r4}];", solid, [4]uint32{3, 2, 1, 77}, 123},
		{"tex.3d.v4.f32.s32" + v + "{%r1, %r2, %r3, %r4}];", solid, [4]uint32{3, 2, 9, 77}, 123},
		{"tex.3d.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", linear(solid), floats(1, 2, 1, 77), 0.5 + 15 + 50},
		{"tex.3d.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", normal(solid, Wrap), floats(1.25, -0.5, 1.75, 0), 1 + 10 + 100},
		{"tex.3d.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", normal(solid, Mirror), floats(1.25, -0.5, 1.75, 0), 2 + 10 + 0},
		{"tex.3d.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", normal(solid, Border), floats(0.5, 0.5, 1, 0), 0},
		{"tex.2d.v4.f32.f32" + v + "{%r1, %r2}];", linear(normal(flat, Wrap)), floats(0, 0.5), 1.5 + 10},
		{"tex.a1d.v4.f32.s32" + v + "{%r1, %r2}];", lines, [4]uint32{2, 3}, 203},
		{"tex.a1d.v4.f32.f32" + v + "{%r1, %r2}];", linear(lines), [4]uint32{7, math.Float32bits(3)}, 202.5},
		{"tex.a2d.v4.f32.s32" + v + "{%r1, %r2, %r3, %r4}];", layers, [4]uint32{1, 3, 2, 9}, 123},
		{"tex.a2d.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", linear(layers), [4]uint32{0xffffffff, math.Float32bits(1), math.Float32bits(2)}, 0.5 + 15 + 100},
		{"tex.cube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", cube, floats(2, -1, -1, 0), 0 + 11},
		{"tex.cube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", cube, floats(-2, 1, 1, 0), 100 + 1},
		{"tex.cube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", cube, floats(1, 2, -1, 0), 200 + 1},
		{"tex.cube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", cube, floats(-1, -2, -1, 0), 300 + 10},
		{"tex.cube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", cube, floats(1, 1, 2, 0), 400 + 1},
		{"tex.cube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", linear(cube), floats(0, 0, -2, 0), 500 + 5.5},
		{"tex.cube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", cube, floats(0, 0, 0, 0), 0},
		{"tex.acube.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}];", cubes, [4]uint32{1, math.Float32bits(-1)}, 700 + 11},
		{"tex.base.2d.v4.f32.f32" + v + "{%r1, %r2}];", flat, floats(1, 1), 11},
		{"tex.level.2d.v4.f32.f32" + v + "{%r1, %r2}], %r3;", flat, floats(1, 1, 5), 11},
		{"tex.level.a2d.v4.f32.f32" + v + "{%r1, %r2, %r3, %r3}], %r4;", layers, [4]uint32{1, 0, 0, 0}, 100},
		{"tex.grad.1d.v4.f32.f32" + v + "{%r1}], {%r2}, {%r3};", line, floats(1, 1, 1), 1},
		{"tex.grad.2d.v4.f32.f32" + v + "{%r1, %r2}], {%r3, %r3}, {%r4, %r4};", flat, floats(1, 1, 5), 11},
		{"tex.grad.3d.v4.f32.f32" + v + "{%r1, %r2, %r3, %r4}], {%r3, %r3, %r3, %r3}, {%r4, %r4, %r4, %r4};", solid, floats(1, 1, 1), 111},
		{"{ .reg .b64 %s; mov.u64 %s, smooth; tex.1d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%tex, %s, {%r1}]; }", line, floats(2.75), 2.25},
		{"tex.1d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%tex, smooth, {%r1}];", line, floats(2.75), 2.25},
		{"tex.1d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [t, {%r1}];", line, floats(2.75), 2},
		{"tex.1d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [t, smooth, {%r1}];", line, floats(9), 1.5}, // half of the border's 0
		{"{ .reg .b64 %s; mov.u64 %s, old; tex.1d.v4.f32.s32 {%r5, %r6, %r7, %r8}, [%s, {%r1}]; }", line, [4]uint32{1}, 1},
	}
}

func TestTextureForms(t *testing.T) {
	for _, c := range textureForms() {
		if strings.Contains(c.instruction, "[t, smooth") {
			c.in = floats(4)
		}
		src := reader(`.global .texref t; .tex .u32 old;
.global .samplerref smooth = { addr_mode_0 = clamp_to_border, filter_mode = linear };`, c.instruction)
		out, fault := reads(t, src, map[uint64]*Texture{1: c.texture, 3: c.texture}, [][4]uint32{c.in})
		if fault != nil {
			t.Errorf("%s: %v", c.instruction, fault)
		} else if want := floats(c.want, 0, 0, 1); out[0] != want {
			t.Errorf("%s %x of %dx%dx%d: %x, want %x", c.instruction, c.in, c.texture.Width, c.texture.Height, c.texture.Depth, out[0], want)
		}
	}
}

// gathers are of one channel each.
var gathers = []string{"tld4.r.2d.v4.u32.f32", "tld4.g.2d.v4.u32.f32", "tld4.b.2d.v4.u32.f32", "tld4.a.2d.v4.u32.f32"}

func TestTextureGather(t *testing.T) {
	tex := &Texture{Width: 3, Height: 3, PitchBytes: 12, Format: U8, Channels: 4, Address: [3]AddressMode{Clamp, Clamp, Clamp}, Data: make([]byte, 36)}
	for i := range tex.Data {
		tex.Data[i] = byte(i)
	}
	for channel, gather := range gathers {
		out, fault := reads(t, reader("", gather+" {%r5, %r6, %r7, %r8}, [%tex, {%r1, %r2}];"), map[uint64]*Texture{1: tex}, [][4]uint32{floats(1.2, 1.7), floats(0, 9)})
		if fault != nil {
			t.Fatal(fault)
		}
		c := uint32(channel)
		for i, want := range [][4]uint32{{24 + c, 28 + c, 16 + c, 12 + c}, {24 + c, 24 + c, 24 + c, 24 + c}} {
			if out[i] != want {
				t.Errorf("%s: %d, want %d", gather, out[i], want)
			}
		}
	}
}

// query is an instruction that reads a property of a texture or surface.
type query struct {
	form    string
	texture *Texture
	want    uint32
}

func (q *query) instruction() string {
	if strings.Contains(q.form, ".level") {
		return q.form + ".b32 %r5, [%tex], %r1;"
	}
	return q.form + ".b32 %r5, [%tex];"
}

func queries() []query {
	tex := &Texture{Width: 5, Height: 3, Depth: 2, PitchBytes: 16, SliceBytes: 64, Format: S16, Channels: 1, ReadFloat: true, Normalized: true, Linear: true,
		Address: [3]AddressMode{Wrap, Clamp, Border}, Data: make([]byte, 128)}
	array := with(tex, func(t *Texture) {
		t.Layered, t.Format, t.ReadFloat, t.Normalized, t.Address[0] = true, F16, false, false, Mirror
	})
	surface := with(tex, func(t *Texture) { t.Surface, t.ReadFloat, t.Format, t.Channels = true, false, U8, 2 })
	return []query{
		{"txq.width", tex, 5}, {"txq.level.width", tex, 5}, {"txq.height", tex, 3}, {"txq.depth", tex, 2}, {"txq.array_size", tex, 0}, {"txq.array_size", array, 2}, {"txq.depth", array, 0},
		{"txq.channel_data_type", tex, 0x10d1}, {"txq.channel_data_type", array, 0x10dd}, {"txq.channel_order", tex, 0x10b0},
		{"txq.normalized_coords", tex, 1}, {"txq.normalized_coords", array, 0}, {"txq.filter_mode", tex, 1}, {"txq.num_mipmap_levels", tex, 1}, {"txq.num_samples", tex, 1},
		{"txq.addr_mode_0", tex, 0}, {"txq.addr_mode_0", array, 1}, {"txq.addr_mode_1", tex, 3}, {"txq.addr_mode_2", tex, 4}, {"txq.force_unnormalized_coords", tex, 0},
		{"suq.width", surface, 5}, {"suq.height", surface, 3}, {"suq.depth", surface, 2}, {"suq.channel_data_type", surface, 0x10da}, {"suq.channel_order", surface, 0x10b2}, {"suq.memory_layout", surface, 0},
	}
}

func TestTextureQueries(t *testing.T) {
	for _, c := range queries() {
		out, fault := reads(t, reader("", c.instruction()), map[uint64]*Texture{1: c.texture}, [][4]uint32{{}, {}})
		if fault != nil || out[0][0] != c.want || out[1][0] != c.want {
			t.Errorf("%s: %#x, want %#x (%v)", c.form, out[0][0], c.want, fault)
		}
	}
}

// A sampler answers for itself.
func TestSamplerQueries(t *testing.T) {
	const samplers = ".global .samplerref s = { addr_mode_0 = mirror, addr_mode_1 = clamp_to_border, filter_mode = linear, force_unnormalized_coords = 1 };\n.global .samplerref plain;"
	for query, want := range map[string]uint32{
		"addr_mode_0.b32 %r5, [s]": 1, "addr_mode_1.b32 %r5, [s]": 4, "addr_mode_2.b32 %r5, [s]": 0, "filter_mode.b32 %r5, [s]": 1,
		"force_unnormalized_coords.b32 %r5, [s]": 1, "filter_mode.b32 %r5, [plain]": 0, "force_unnormalized_coords.b32 %r5, [plain]": 0,
	} {
		opcode, sampler, _ := strings.Cut(strings.TrimSuffix("txq."+query, "]"), "[")
		for _, text := range []string{"txq." + query + ";", "mov.u64 %a3, " + sampler + "; " + opcode + "[%a3];"} {
			out, fault := reads(t, reader(samplers, text), nil, [][4]uint32{{}, {}})
			if fault != nil || out[0][0] != want || out[1][0] != want {
				t.Errorf("%s: %d, want %d (%v)", text, out[0][0], want, fault)
			}
		}
	}
	if _, err := ptx.Parse(reader(samplers, "txq.width.b32 %r5, [s];")); err == nil {
		t.Error("a sampler has a width")
	}
}

// A handle that names nothing, or something else, is a fault.
func TestTextureHandles(t *testing.T) {
	tex := grid(4, 4, 0)
	surface := with(tex, func(t *Texture) { t.Surface = true })
	for _, c := range []struct {
		instruction string
		texture     *Texture
	}{
		{"tex.2d.v4.f32.s32 {%r5, %r6, %r7, %r8}, [%tex, {%r1, %r2}];", surface},
		{"tld4.r.2d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%tex, {%r1, %r2}];", nil},
		{"txq.width.b32 %r5, [%tex];", surface},
		{"suq.width.b32 %r5, [%tex];", tex},
		{"suld.b.2d.b32.trap %r5, [%tex, {%r1, %r2}];", tex},
		{"sust.b.2d.b32.zero [%tex, {%r1, %r2}], %r3;", tex},
		{"sured.b.add.2d.u32.clamp [%tex, {%r1, %r2}], %r3;", nil},
		{"tex.2d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%tex, %a0, {%r1, %r2}];", tex},
		{"tex.2d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [ref, {%r1, %r2}];", tex},
	} {
		_, fault := reads(t, reader(".global .texref ref;", c.instruction), map[uint64]*Texture{1: c.texture}, [][4]uint32{{}})
		if fault == nil || fault.Result != ptx.ErrIllegalAddress {
			t.Errorf("%s: %v", c.instruction, fault)
		}
	}
}

// slow is an independent implementation of filtering: in exact fractions, one dimension after the other.
type slow struct {
	*Texture
	layer int
}

func (s slow) number(i [3]int, k int) *big.Rat {
	n := s.Extent()
	for d := range i {
		switch {
		case i[d] >= 0 && i[d] < n[d]:
		case s.Address[d] == Border:
			return new(big.Rat).Mul(new(big.Rat).SetFloat64(float64(s.Border[k])), s.one())
		case s.Address[d] == Wrap && s.Normalized:
			for ; i[d] < 0; i[d] += n[d] {
			}
			for ; i[d] >= n[d]; i[d] -= n[d] {
			}
		case s.Address[d] == Mirror && s.Normalized:
			for i[d] < 0 || i[d] >= n[d] {
				if i[d] < 0 {
					i[d] = -1 - i[d]
				} else {
					i[d] = 2*n[d] - 1 - i[d]
				}
			}
		default:
			i[d] = min(max(i[d], 0), n[d]-1)
		}
	}
	at := s.Data[(i[2]+s.layer)*s.SliceBytes+i[1]*s.PitchBytes+(i[0]*s.Channels+k)*s.Format.Bytes():]
	switch s.Format {
	case U8:
		return big.NewRat(int64(at[0]), 1)
	case S8:
		return big.NewRat(max(int64(int8(at[0])), s.least(-128)), 1)
	case U16:
		return big.NewRat(int64(binary.LittleEndian.Uint16(at)), 1)
	case S16:
		return big.NewRat(max(int64(int16(binary.LittleEndian.Uint16(at))), s.least(-32768)), 1)
	case F16: // the test stores small integers
		b := binary.LittleEndian.Uint16(at)
		r := big.NewRat(int64(1024+b&1023), 1024)
		for range int(b>>10) - 15 {
			r.Mul(r, big.NewRat(2, 1))
		}
		return r
	}
	return new(big.Rat).SetFloat64(float64(math.Float32frombits(binary.LittleEndian.Uint32(at))))
}

// least is the least of signed numbers that are read as -1…1.
func (s slow) least(n int64) int64 {
	if s.ReadFloat {
		return n + 1
	}
	return n
}

func (s slow) one() *big.Rat {
	if s.ReadFloat {
		if n, ok := map[Format]int64{U8: 255, S8: 127, U16: 65535, S16: 32767}[s.Format]; ok {
			return big.NewRat(n, 1)
		}
	}
	return big.NewRat(1, 1)
}

// read returns the texture's value at a position, filtered along dimension d and those below.
func (s slow) read(at [3]float32, i [3]int, d, k int) *big.Rat {
	if d < 0 {
		return s.number(i, k)
	}
	p := new(big.Rat).SetFloat64(float64(at[d]))
	if s.Normalized {
		p.Mul(p, big.NewRat(int64(s.Extent()[d]), 1))
	}
	if !s.Linear {
		i[d] = floor(p)
		return s.read(at, i, d-1, k)
	}
	p.Sub(p, big.NewRat(1, 2))
	i[d] = floor(p)
	w := p.Sub(p, big.NewRat(int64(i[d]), 1))
	w.Mul(w, big.NewRat(256, 1)).Add(w, big.NewRat(1, 2))
	w.SetFrac64(int64(floor(w)), 256)
	low := s.read(at, i, d-1, k)
	i[d]++
	high := s.read(at, i, d-1, k)
	return low.Add(low, w.Mul(w, high.Sub(high, low)))
}

func floor(r *big.Rat) int {
	return int(new(big.Int).Div(r.Num(), r.Denom()).Int64()) // Div rounds down for positive divisors
}

// Filtering agrees with the slow implementation, in all dimensions, formats and modes.
func TestTextureFiltering(t *testing.T) {
	seed := seeds.Fixed(t)
	rnd := rand.New(rand.NewPCG(seed, 1))
	forms := []string{"tex.1d.v4.%s.f32 {%%r5, %%r6, %%r7, %%r8}, [%%tex, {%%r1}];", "tex.2d.v4.%s.f32 {%%r5, %%r6, %%r7, %%r8}, [%%tex, {%%r1, %%r2}];",
		"tex.3d.v4.%s.f32 {%%r5, %%r6, %%r7, %%r8}, [%%tex, {%%r1, %%r2, %%r3, %%r3}];", "tex.a2d.v4.%s.f32 {%%r5, %%r6, %%r7, %%r8}, [%%tex, {%%r4, %%r1, %%r2, %%r2}];"}
	for n := range 600 {
		tex := &Texture{Width: 1 + rnd.IntN(7), Channels: []int{1, 2, 4}[rnd.IntN(3)], Linear: rnd.IntN(4) > 0, Normalized: rnd.IntN(2) > 0,
			Format: []Format{U8, S8, U16, S16, F16, F32}[rnd.IntN(6)]}
		shape := rnd.IntN(len(forms))
		dims := min(shape+1, 3)
		if shape > 0 {
			tex.Height = 1 + rnd.IntN(6)
		}
		if shape > 1 {
			tex.Depth = 1 + rnd.IntN(5)
		}
		if tex.Layered = shape == 3; tex.Layered {
			dims = 2
		}
		tex.ReadFloat = tex.Format < F16 && rnd.IntN(2) > 0
		tex.PitchBytes = tex.Width*tex.ElementBytes() + 4*rnd.IntN(3)
		tex.SliceBytes = max(tex.Height, 1)*tex.PitchBytes + 4*rnd.IntN(3)
		tex.Data = make([]byte, max(tex.Depth, 1)*tex.SliceBytes)
		for i := range tex.Data {
			tex.Data[i] = byte(rnd.Uint32())
		}
		fill(tex, rnd)
		for d := range tex.Address {
			tex.Address[d] = AddressMode(rnd.IntN(4))
			tex.Border[d] = float32(rnd.IntN(9)) / 8
		}
		in := make([][4]uint32, 16)
		for i := range in {
			for d, n := range tex.Extent() {
				v := (rnd.Float32()*3 - 1) * float32(n)
				if tex.Normalized {
					v /= float32(n)
				}
				in[i][d] = math.Float32bits(v)
			}
			in[i][3] = uint32(rnd.IntN(max(tex.Depth, 1)))
		}
		kind := "u32"
		if tex.Float() {
			kind = "f32"
		}
		out, fault := reads(t, reader("", fmt.Sprintf(forms[shape], kind)), map[uint64]*Texture{1: tex}, in)
		if fault != nil {
			t.Fatal(fault)
		}
		for i := range in {
			at := [3]float32{math.Float32frombits(in[i][0]), math.Float32frombits(in[i][1]), math.Float32frombits(in[i][2])}
			s := slow{Texture: tex}
			if tex.Layered {
				s.layer = int(in[i][3])
			}
			for k := range tex.Channels {
				r := s.read(at, [3]int{}, dims-1, k)
				var want uint32
				if tex.Float() {
					f, _ := r.Quo(r, s.one()).Float32()
					want = math.Float32bits(f)
				} else {
					if tex.Linear {
						r.Add(r, big.NewRat(1, 2))
					} else if r.Sign() < 0 && !r.IsInt() {
						t.Fatal("an element is no whole number")
					}
					want = uint32(floor(r))
				}
				// The engine rounds twice where it divides.
				if d := int32(out[i][k] - want); d != 0 && (!tex.Float() || d > 1 || d < -1) {
					t.Fatalf("seed %d, texture %d, %+v at %v: channel %d is %#x, want %#x", seed, n, tex, at, k, out[i][k], want)
				}
			}
		}
	}
}

// Integers are filtered as on an H200: testdata/linear.txt documents its format.
func TestTextureAsOnAGPU(t *testing.T) {
	text, err := os.ReadFile("testdata/linear.txt")
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			rows = append(rows, line)
		}
	}
	for i, format := range []Format{U8, U16} {
		texture := &Texture{Width: 64, Height: 1, Format: format, Channels: 1, Linear: true, Address: [3]AddressMode{Clamp, Clamp, Clamp}}
		for k := range 64 {
			v := (64 - k) / 3
			if k%2 != 0 {
				v = k * []int{4, 1031}[i]
			}
			texture.Data = append(texture.Data, []byte{byte(v), byte(v >> 8)}[:1+i]...)
		}
		texture.PitchBytes = len(texture.Data)
		var want []uint32
		for _, w := range strings.Fields(rows[i]) {
			v, times := uint32(0), 1
			if n, err := fmt.Sscanf(w, "%d*%d", &v, &times); n == 0 {
				t.Fatal(w, err)
			}
			want = append(want, slices.Repeat([]uint32{v}, times)...)
		}
		var in [][4]uint32
		for k := range want {
			in = append(in, floats(0.25+float32(k)*17/1024, 0.5))
		}
		out, fault := reads(t, reader("", "tex.2d.v4.u32.f32 {%r5, %r6, %r7, %r8}, [%tex, {%r1, %r2}];"), map[uint64]*Texture{1: texture}, in)
		if fault != nil || len(want) != 1024 {
			t.Fatal(fault, len(want))
		}
		for k := range want {
			if out[k][0] != want[k] {
				t.Errorf("%d bits, point %d: %d, want %d", 8+8*i, k, out[k][0], want[k])
			}
		}
	}
}

// fill gives float textures numbers that can be distinguished exactly.
func fill(t *Texture, rnd *rand.Rand) {
	for i := 0; i+t.Format.Bytes() <= len(t.Data); i += t.Format.Bytes() {
		switch t.Format {
		case F16:
			binary.LittleEndian.PutUint16(t.Data[i:], uint16(15+rnd.IntN(4))<<10|uint16(rnd.IntN(1024)))
		case F32:
			binary.LittleEndian.PutUint32(t.Data[i:], math.Float32bits(float32(rnd.IntN(1<<12))))
		}
	}
}

// An error in a module's textures is reported with its line.
func TestTextureRefusals(t *testing.T) {
	for _, c := range []struct{ directives, instruction, why string }{
		{"", "tex.3d.v4.f32.s32 {%r5, %r6, %r7, %r8}, [%tex, {%r1, %r2}];", "lacks coordinates"},
		{"", "tex.2d.v4.f32.s32 {%r5, %r6, %r7, %r8}, [%r1, {%r1, %r2}];", "is not a texture"},
		{"", "tex.2d.v4.f32.s32 {%r5, %r6, %r7, %r8}, [%tex+8, {%r1, %r2}];", "is not a texture"},
		{"", "tex.2d.v4.f32.s32 {%r5, %r6, %r7, %r8}, [%tex];", "is not a texture"},
		{"", "tex.cube.v4.f32.s32 {%r5, %r6, %r7, %r8}, [%tex, {%r1, %r2, %r3, %r4}];", "unknown form"},
		{"", "tld4.1d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%tex, {%r1}];", "unknown form"},
		{".global .surfref s;", "tex.1d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [s, {%r1}];", "is not a texture"},
		{".global .texref s;", "suld.b.1d.b32.trap %r5, [s, {%r1}];", "is not a texture"},
		{".global .texref s;", "tex.1d.v4.f32.f32 {%r5, %r6, %r7, %r8}, [%tex, s, {%r1}];", "can't be a sampler"},
		{".global .texref s[2];", "", "arrays of .texref"},
		{".global .texref s = { width = 4 };", "", "initial values of .texref"},
		{".global .samplerref s = { addr_mode_0 = upside_down };", "", "can't have addr_mode_0 = upside_down"},
		{".const .texref s;", "", ".global ones"},
		{"", "suld.b.1d.b32 %r5, [%tex, {%r1}];", "unknown form"},
		{"", "suld.b.1d.v2.b32.trap %r5, [%tex, {%r1}];", "vector"},
		{"", "sured.p.add.1d.b64.trap [%tex, {%r1}], %a1;", "unknown form"},
	} {
		_, err := ptx.Parse(reader(c.directives, c.instruction))
		if err == nil || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "line") {
			t.Errorf("%s%s: %v, want %q", c.directives, c.instruction, err, c.why)
		}
	}
}
