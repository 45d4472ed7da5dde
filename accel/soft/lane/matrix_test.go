package lane

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pegasus/accel/ptx/cases"
	"pegasus/accel/soft/lane/internal/lanetest"
)

// where returns the row and column of element i of a thread in a matrix.
type where func(lane, i int) (row, col int)

// The figures of the manual: g is the group of four threads, t the thread in it.
func pick2(i, from int, then, otherwise int) int {
	if i < from {
		return otherwise
	}
	return then
}

var (
	accumulator = func(lane, i int) (int, int) { return lane/4 + pick2(i, 2, 8, 0), lane%4*2 + i&1 }

	a16x8half  = func(lane, i int) (int, int) { return lane/4 + pick2(i, 2, 8, 0), lane%4*2 + i&1 }
	b8x8half   = func(lane, i int) (int, int) { return lane%4*2 + i&1, lane / 4 }
	a16x16half = func(lane, i int) (int, int) {
		row := lane/4 + 8
		if i < 2 || i >= 4 && i < 6 {
			row = lane / 4
		}
		return row, lane%4*2 + i&1 + pick2(i, 4, 8, 0)
	}
	b16x8half = func(lane, i int) (int, int) { return lane%4*2 + i&1 + pick2(i, 2, 8, 0), lane / 4 }

	a16x4word = func(lane, i int) (int, int) { return lane/4 + 8*i, lane % 4 }
	b4x8word  = func(lane, i int) (int, int) { return lane % 4, lane / 4 }
	a16x8word = func(lane, i int) (int, int) { return lane/4 + i%2*8, lane%4 + pick2(i, 2, 4, 0) }
	b8x8word  = func(lane, i int) (int, int) { return lane%4 + 4*i, lane / 4 }
	// f64 m16n8k16 counts columns up by threes and ones.
	a16x16long = func(lane, i int) (int, int) {
		if i%2 == 0 {
			return lane / 4, i*2 + lane%4
		}
		return lane/4 + 8, i*2 - 2 + lane%4
	}
	b16x8long = func(lane, i int) (int, int) { return lane%4 + i*4, lane / 4 }
	a8x4      = func(lane, i int) (int, int) { return lane / 4, lane % 4 }

	a8x16byte  = func(lane, i int) (int, int) { return lane / 4, lane%4*4 + i }
	b16x8byte  = func(lane, i int) (int, int) { return lane%4*4 + i, lane / 4 }
	a16x16byte = func(lane, i int) (int, int) { return lane/4 + pick2(i, 4, 8, 0), lane%4*4 + i&3 }
	a16x32byte = func(lane, i int) (int, int) {
		row := lane/4 + 8
		if i < 4 || i >= 8 && i < 12 {
			row = lane / 4
		}
		return row, lane%4*4 + i&3 + pick2(i, 8, 16, 0)
	}
	b32x8byte = func(lane, i int) (int, int) { return lane%4*4 + i&3 + pick2(i, 4, 16, 0), lane / 4 }

	a8x32nibble  = func(lane, i int) (int, int) { return lane / 4, lane%4*8 + i }
	b32x8nibble  = func(lane, i int) (int, int) { return lane%4*8 + i, lane / 4 }
	a16x32nibble = func(lane, i int) (int, int) { return lane/4 + pick2(i, 8, 8, 0), lane%4*8 + i&7 }
	a16x64nibble = func(lane, i int) (int, int) {
		row := lane/4 + 8
		if i < 8 || i >= 16 && i < 24 {
			row = lane / 4
		}
		return row, lane%4*8 + i&7 + pick2(i, 16, 32, 0)
	}
	b64x8nibble = func(lane, i int) (int, int) { return lane%4*8 + i&7 + pick2(i, 8, 32, 0), lane / 4 }

	a8x128bit  = func(lane, i int) (int, int) { return lane / 4, lane%4*32 + i }
	b128x8bit  = func(lane, i int) (int, int) { return lane%4*32 + i, lane / 4 }
	a16x128bit = func(lane, i int) (int, int) { return lane/4 + pick2(i, 32, 8, 0), lane%4*32 + i&31 }
	a16x256bit = func(lane, i int) (int, int) {
		row := lane/4 + 8
		if i < 32 || i >= 64 && i < 96 {
			row = lane / 4
		}
		return row, lane%4*32 + i&31 + pick2(i, 64, 128, 0)
	}
	b256x8bit = func(lane, i int) (int, int) { return lane%4*32 + i&31 + pick2(i, 32, 128, 0), lane / 4 }
)

// product is a form of mma.
type product struct {
	form         string
	m, n, k      int
	d, ta, tb, c string
	a, b, cd     where
	least, most  int // of the numbers
	parts        int
	part         func(lane int) int
	multiply     func(a, b int) int
}

var widths = map[string]int{"b16": 16, "f16": 16, "bf16": 16, "f32": 32, "tf32": 32, "f64": 64, "s32": 32, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "b1": 1, "e4m3": 8, "e5m2": 8}

// encode returns the bits of a small integer in a type.
func encode(t string, v int) uint64 {
	switch t {
	case "f32", "tf32":
		return uint64(math.Float32bits(float32(v)))
	case "f64":
		return math.Float64bits(float64(v))
	case "f16", "bf16", "e4m3", "e5m2":
		return oracles[t].rounded(float64(v), "rn")
	}
	return uint64(v) & (1<<widths[t] - 1)
}

// matrix is a matrix of numbers.
type matrix struct {
	rows, cols int
	v          []int
}

func randomMatrix(r *rand.Rand, rows, cols, least, most int) matrix {
	m := matrix{rows, cols, make([]int, rows*cols)}
	for i := range m.v {
		m.v[i] = least + r.IntN(most-least+1)
	}
	return m
}

func (m *matrix) at(row, col int) *int { return &m.v[row*m.cols+col] }

// registers spreads matrices, one for each part of the warp, over registers.
func registers(t string, ms []matrix, w where, part func(lane int) int) (regs [32][]uint64) {
	width := widths[t]
	size := max(32, width)
	n := len(ms) * ms[0].rows * ms[0].cols / 32
	for lane := range regs {
		regs[lane] = make([]uint64, max(n*width/size, 1))
		for i := range n {
			row, col := w(lane, i)
			regs[lane][i*width/size] |= encode(t, *ms[part(lane)].at(row, col)) << (i * width % size)
		}
	}
	return regs
}

func vector(letter byte, first, n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("%%%c%d", letter, first+i))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// fragmentCase is an instruction on fragments, executed by one warp, or by both of two, with the expected registers of
// D.
func fragmentCase(form string, wideD, wideA bool, sources [3][32][]uint64, want [32][]uint64, warps int) cases.Case {
	letter, bits := map[bool]byte{false: 'r', true: 'l'}, map[bool]int{false: 32, true: 64}
	var b strings.Builder
	b.WriteString(".visible .entry k(.param .u64 out, .param .u64 in)\n{\n")
	b.WriteString(".reg .b32 %r<64>; .reg .b64 %l<64>; .reg .b64 %a<4>; .reg .b32 %t;\n")
	b.WriteString("ld.param.u64 %a0, [out]; ld.param.u64 %a1, [in]; mov.u32 %t, %tid.x; mul.wide.u32 %a2, %t, 256; add.u64 %a0, %a0, %a2;\n")
	b.WriteString("and.b32 %t, %t, 31; mul.wide.u32 %a2, %t, 512; add.u64 %a1, %a1, %a2;\n")
	in, after := make([]byte, 512*32), make([]byte, 256*32*warps)
	args, next := []string{vector(letter[wideD], 48, len(want[0]))}, 0
	for k, regs := range sources {
		wide := wideA
		if k == 2 {
			wide = wideD
		}
		args = append(args, vector(letter[wide], next, len(regs[0])))
		for i := range regs[0] {
			fmt.Fprintf(&b, "ld.global.b%d %%%c%d, [%%a1+%d];\n", bits[wide], letter[wide], next, 8*next)
			for lane := range regs {
				binary.LittleEndian.PutUint64(in[512*lane+8*next:], regs[lane][i])
			}
			next++
		}
	}
	fmt.Fprintf(&b, "%s %s;\n", form, strings.Join(args, ", "))
	for i := range want[0] {
		fmt.Fprintf(&b, "st.global.b%d [%%a0+%d], %%%c%d;\n", bits[wideD], 8*i, letter[wideD], 48+i)
		for lane := range 32 * warps {
			binary.LittleEndian.PutUint64(after[256*lane+8*i:], want[lane%32][i])
		}
	}
	b.WriteString("ret;\n}\n")
	return cases.New(form, form, b.String(), 32*warps, cases.Buffer{Before: make([]byte, len(after)), After: after}, cases.Buffer{Before: in})
}

func quad(lane int) int { return lane / 4 % 4 }
func whole(int) int     { return 0 }

// upper returns 4 for the threads of the upper half of a warp.
func upper(lane int) int { return lane / 16 * 4 }

func products() (list []product) {
	add := func(form string, d, ta, tb, c string, a, b, cd where, least, most int) {
		var m, n, k int
		fmt.Sscanf(form[strings.Index(form, ".m")+1:], "m%dn%dk%d", &m, &n, &k)
		suffix := ""
		if i := strings.Index(form, "+"); i > 0 {
			form, suffix = form[:i], form[i+1:]
		}
		p := product{form: fmt.Sprintf("mma.sync.aligned%s.%s.%s.%s.%s%s", form, d, ta, tb, c, suffix), m: m, n: n, k: k,
			d: d, ta: ta, tb: tb, c: c, a: a, b: b, cd: cd, least: least, most: most, parts: 1, part: whole}
		p.multiply = func(a, b int) int { return a * b }
		list = append(list, p)
	}
	for _, acc := range []string{"f16", "f32"} {
		add(".m16n8k8.row.col", acc, "f16", "f16", acc, a16x8half, b8x8half, accumulator, -9, 9)
		add(".m16n8k16.row.col", acc, "f16", "f16", acc, a16x16half, b16x8half, accumulator, -9, 9)
		add(".m16n8k32.row.col", acc, "e4m3", "e5m2", acc, a16x32byte, b32x8byte, accumulator, -4, 4)
	}
	add(".m16n8k16.row.col", "f32", "f16", "f16", "f16", a16x16half, b16x8half, accumulator, -9, 9)
	add(".m16n8k8.row.col", "f32", "bf16", "bf16", "f32", a16x8half, b8x8half, accumulator, -99, 99)
	add(".m16n8k16.row.col", "f32", "bf16", "bf16", "f32", a16x16half, b16x8half, accumulator, -99, 99)
	add(".m16n8k16.row.col", "f32", "e5m2", "e4m3", "f32", a16x16byte, b16x8byte, accumulator, -4, 4)
	add(".m16n8k4.row.col", "f32", "tf32", "tf32", "f32", a16x4word, b4x8word, accumulator, -99, 99)
	add(".m16n8k8.row.col", "f32", "tf32", "tf32", "f32", a16x8word, b8x8word, accumulator, -99, 99)
	add(".m8n8k4.row.col", "f64", "f64", "f64", "f64", a8x4, b4x8word, accumulator, -99, 99)
	add(".m16n8k4.row.col", "f64", "f64", "f64", "f64", a16x4word, b4x8word, accumulator, -99, 99)
	add(".m16n8k8.row.col", "f64", "f64", "f64", "f64", a16x8word, b8x8word, accumulator, -99, 99)
	add(".m16n8k16.row.col", "f64", "f64", "f64", "f64", a16x16long, b16x8long, accumulator, -99, 99)
	for _, ta := range []string{"u8", "s8"} {
		for _, tb := range []string{"u8", "s8"} {
			add(".m8n8k16.row.col", "s32", ta, tb, "s32", a8x16byte, b16x8byte, accumulator, -128, 255)
			add(".m16n8k16.row.col", "s32", ta, tb, "s32", a16x16byte, b16x8byte, accumulator, -128, 255)
			add(".m16n8k32.row.col+.satfinite", "s32", ta, tb, "s32", a16x32byte, b32x8byte, accumulator, -128, 255)
		}
	}
	for _, ta := range []string{"u4", "s4"} {
		add(".m8n8k32.row.col", "s32", ta, "s4", "s32", a8x32nibble, b32x8nibble, accumulator, -8, 15)
		add(".m16n8k32.row.col", "s32", ta, "u4", "s32", a16x32nibble, b32x8nibble, accumulator, -8, 15)
		add(".m16n8k64.row.col", "s32", ta, "s4", "s32", a16x64nibble, b64x8nibble, accumulator, -8, 15)
	}
	for _, op := range []string{"xor", "and"} {
		add(".m8n8k128.row.col+."+op+".popc", "s32", "b1", "b1", "s32", a8x128bit, b128x8bit, accumulator, 0, 1)
		add(".m16n8k128.row.col+."+op+".popc", "s32", "b1", "b1", "s32", a16x128bit, b128x8bit, accumulator, 0, 1)
		add(".m16n8k256.row.col+."+op+".popc", "s32", "b1", "b1", "s32", a16x256bit, b256x8bit, accumulator, 0, 1)
		for i := len(list) - 3; i < len(list); i++ {
			list[i].multiply = func(a, b int) int { return map[string]int{"xor": a ^ b, "and": a & b}[op] }
		}
	}
	quads := func(acc, layouts string, a, b, cd where) {
		add(".m8n8k4."+layouts, acc, "f16", "f16", acc, a, b, cd, -9, 9)
		list[len(list)-1].parts, list[len(list)-1].part = 4, quad
	}
	rowA := func(lane, i int) (int, int) { return lane%4 + upper(lane), i }
	colA := func(lane, i int) (int, int) { return i%4 + upper(lane), lane % 4 }
	rowB := func(lane, i int) (int, int) { return lane % 4, i + upper(lane) }
	colB := func(lane, i int) (int, int) { return i, lane%4 + upper(lane) }
	halfC := func(lane, i int) (int, int) { return lane%4 + upper(lane), i }
	floatC := func(lane, i int) (int, int) { return lane&1 + i&2 + upper(lane), i&4 + lane&2 + i&1 }
	quads("f16", "row.col", rowA, colB, halfC)
	quads("f32", "row.row", rowA, rowB, floatC)
	quads("f32", "col.col", colA, colB, floatC)
	quads("f16", "col.row", colA, rowB, halfC)
	return list
}

// wrapped returns a value wrapped to the range of a type.
func wrapped(t string, v int) int {
	switch t {
	case "u8", "u4":
		return v & (1<<widths[t] - 1)
	case "s8", "s4":
		n := 64 - widths[t]
		return v << n >> n
	}
	return v
}

// random is a product of matrices of small integers; plain multiplication gives the expected result.
func (p *product) random(r *rand.Rand) cases.Case {
	var as, bs, cs, ds []matrix
	for range p.parts {
		a, b := randomMatrix(r, p.m, p.k, p.least, p.most), randomMatrix(r, p.k, p.n, p.least, p.most)
		for i := range a.v {
			a.v[i] = wrapped(p.ta, a.v[i])
		}
		for i := range b.v {
			b.v[i] = wrapped(p.tb, b.v[i])
		}
		c := randomMatrix(r, p.m, p.n, -100, 100)
		d := matrix{p.m, p.n, append([]int(nil), c.v...)}
		for i := range p.m {
			for j := range p.n {
				for k := range p.k {
					*d.at(i, j) += p.multiply(*a.at(i, k), *b.at(k, j))
				}
			}
		}
		as, bs, cs, ds = append(as, a), append(bs, b), append(cs, c), append(ds, d)
	}
	sources := [3][32][]uint64{registers(p.ta, as, p.a, p.part), registers(p.tb, bs, p.b, p.part), registers(p.c, cs, p.cd, p.part)}
	return fragmentCase(p.form, p.d == "f64", p.ta == "f64", sources, registers(p.d, ds, p.cd, p.part), 2)
}

func TestMatrixProducts(t *testing.T) {
	r := lanetest.Random(31)
	for _, p := range products() {
		c := p.random(r)
		runCase(t, &c)
	}
}

// filled is a fragment with the same value in every register.
func filled(n int, v uint64) (regs [32][]uint64) {
	for lane := range regs {
		for range n {
			regs[lane] = append(regs[lane], v)
		}
	}
	return regs
}

// Sums are rounded, overflow and saturate according to their type.
func TestMatrixRounding(t *testing.T) {
	const half, float = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
	const whole = "mma.sync.aligned.m16n8k16.row.col"
	for _, c := range []struct {
		form       string
		nd, na, nb int
		a, b, c, d uint64
	}{
		{half, 2, 2, 1, 0x3c003c00, 0x3c003c00, 0x68006800, 0x68046804},  // 2048 + 8
		{half, 2, 2, 1, 0x30003000, 0x3c003c00, 0x68006800, 0x68006800},  // 2048 + 1, to even
		{half, 2, 2, 1, 0x30003000, 0x3c003c00, 0x68016801, 0x68026802},  // 2050 + 1, to even
		{half, 2, 2, 1, 0x7bff7bff, 0x3c003c00, 0, 0x7c007c00},           // too large
		{half, 2, 2, 1, 0x7c007c00, 0, 0, 0x7fff7fff},                    // ∞·0
		{half, 2, 2, 1, 0x00010001, 0x3c003c00, 0x00010001, 0x00090009},  // subnormal
		{float, 4, 2, 1, 0x30003000, 0x3c003c00, 0x4b800000, 0x4b800000}, // 2^24 + 1, to even
		{float, 4, 2, 1, 0x32003200, 0x3c003c00, 0x4b800000, 0x4b800001}, // 2^24 + 1.5
		{float, 4, 2, 1, 0x7e007e00, 0x3c003c00, 0, 0x7fffffff},          // NaN
		{float, 4, 2, 1, 0x7bff7bff, 0x7bff7bff, 0xff800000, 0xff800000}, // -∞
		{float, 4, 2, 1, 0x00010001, 0x00010001, 0, 0x29000000},          // 8·2^-48
		{whole + ".s32.s8.s8.s32", 4, 2, 1, 0x7f7f7f7f, 0x7f7f7f7f, 0x7fffffff, 0x8003f00f},
		{whole + ".satfinite.s32.s8.s8.s32", 4, 2, 1, 0x7f7f7f7f, 0x7f7f7f7f, 0x7fffffff, 0x7fffffff},
		{whole + ".satfinite.s32.u8.s8.s32", 4, 2, 1, 0xffffffff, 0x80808080, 0x80000000, 0x80000000},
		{"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 4, 4, 2, 0x3f801fff, 0x3f800000, 0, 0x41000000}, // lower bits are ignored
	} {
		one := fragmentCase(c.form, false, false, [3][32][]uint64{filled(c.na, c.a), filled(c.nb, c.b), filled(c.nd, c.c)}, filled(c.nd, c.d), 1)
		runCase(t, &one)
	}
}

// wmmaCase is a product of matrices that go through memory.
type wmmaCase struct {
	shape      string
	m, n, k    int
	in, acc, d string
	regsA      int
	regsB      int
	regsC      int
	regsD      int
	layouts    []string
}

var wmmaCases = []wmmaCase{
	{"m16n16k16", 16, 16, 16, "f16", "f32", "f32", 8, 8, 8, 8, []string{"row.row", "row.col", "col.row", "col.col"}},
	{"m32n8k16", 32, 8, 16, "f16", "f16", "f16", 8, 8, 4, 4, []string{"row.col", "col.row"}},
	{"m8n32k16", 8, 32, 16, "f16", "f16", "f32", 8, 8, 4, 8, []string{"col.col"}},
	{"m16n16k16", 16, 16, 16, "bf16", "f32", "f32", 4, 4, 8, 8, []string{"row.col"}},
	{"m8n32k16", 8, 32, 16, "bf16", "f32", "f32", 2, 8, 8, 8, []string{"row.row"}},
	{"m16n16k16", 16, 16, 16, "s8", "s32", "s32", 2, 2, 8, 8, []string{"row.col", "col.row"}},
	{"m32n8k16", 32, 8, 16, "u8", "s32", "s32", 4, 1, 8, 8, []string{"row.row"}},
	{"m16n16k8", 16, 16, 8, "tf32", "f32", "f32", 4, 4, 8, 8, []string{"row.col", "col.row"}},
	{"m8n8k4", 8, 8, 4, "f64", "f64", "f64", 1, 1, 2, 2, []string{"row.col", "col.row"}},
	{"m8n8k32", 8, 8, 32, "s4", "s32", "s32", 1, 1, 2, 2, []string{"row.col"}},
	{"m8n8k32", 8, 8, 32, "u4", "s32", "s32", 1, 1, 2, 2, []string{"row.col"}},
	{"m8n8k128", 8, 8, 128, "b1", "s32", "s32", 1, 1, 2, 2, []string{"row.col"}},
}

// types are the last modifiers of the product.
func (c *wmmaCase) types() string {
	switch types := c.d + "." + c.in + "." + c.in + "." + c.acc; c.in {
	case "f16":
		return c.d + "." + c.acc
	case "b1":
		return "xor.popc." + types
	default:
		return types
	}
}

// kernel loads, multiplies and stores. The strides are text behind an address.
func (c *wmmaCase) kernel(layouts string, strides [4]string) string {
	layoutA, layoutB, _ := strings.Cut(layouts, ".")
	letter := byte('r')
	if c.in == "f64" {
		letter = 'l'
	}
	va, vb, vc, vd := vector(letter, 0, c.regsA), vector(letter, 8, c.regsB), vector(letter, 16, c.regsC), vector(letter, 24, c.regsD)
	return fmt.Sprintf(`.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{ .reg .b32 %%r<32>; .reg .b64 %%l<32>; .reg .b64 %%p<4>;
ld.param.u64 %%p0, [a]; ld.param.u64 %%p1, [b]; ld.param.u64 %%p2, [c]; ld.param.u64 %%p3, [d];
wmma.load.a.sync.aligned.%s.%s.global.%s %s, [%%p0]%s;
wmma.load.b.sync.aligned.%s.%s.%s %s, [%%p1]%s;
wmma.load.c.sync.aligned.%s.%s.global.%s %s, [%%p2]%s;
wmma.mma.sync.aligned.%s.%s.%s %s, %s, %s, %s;
wmma.store.d.sync.aligned.%s.%s.global.%s [%%p3], %s%s;
ret; }
`, layoutA, c.shape, c.in, va, strides[0], layoutB, c.shape, c.in, vb, strides[1], layoutB, c.shape, c.acc, vc, strides[2],
		layouts, c.shape, c.types(), vd, va, vb, vc, layoutA, c.shape, c.d, vd, strides[3])
}

// Matrices go from memory to fragments and back, by rows or by columns, with any stride.
func TestFragments(t *testing.T) {
	r := lanetest.Random(32)
	for _, c := range wmmaCases {
		for _, layouts := range c.layouts {
			for _, padded := range []bool{false, true} {
				layoutA, layoutB, _ := strings.Cut(layouts, ".")
				multiply := func(a, b int) int { return a * b }
				least, most := -7, 7
				switch c.in {
				case "b1":
					multiply, least, most = func(a, b int) int { return a ^ b }, 0, 1
				case "u4", "u8":
					least = 0
				}
				a, b, acc := randomMatrix(r, c.m, c.k, least, most), randomMatrix(r, c.k, c.n, least, most), randomMatrix(r, c.m, c.n, -50, 50)
				want := matrix{c.m, c.n, append([]int(nil), acc.v...)}
				for i := range c.m {
					for j := range c.n {
						for k := range c.k {
							*want.at(i, j) += multiply(*a.at(i, k), *b.at(k, j))
						}
					}
				}
				d := newDevice(t)
				memA, strideA := layOut(d, c.in, a, layoutA, padded)
				memB, strideB := layOut(d, c.in, b, layoutB, padded)
				memC, strideC := layOut(d, c.acc, acc, layoutB, padded)
				expect, strideD := layOut(d, c.d, want, layoutA, padded)
				out := d.buffer(len(expect.mem))
				strides := [4]string{}
				if padded {
					for i, s := range []int{strideA, strideB, strideC, strideD} {
						strides[i] = fmt.Sprintf(", %d", s)
					}
				}
				im := d.load([]byte(c.kernel(layouts, strides)))
				d.run(d.kernel(im, "k"), x(1), x(32), memA, memB, memC, out)
				if string(out.mem) != string(expect.mem) {
					t.Errorf("%s %s of %s, padded %v: wrong product", c.shape, layouts, c.types(), padded)
				}
			}
		}
	}
}

// layOut stores a matrix in memory and returns its stride.
func layOut(d *device, t string, m matrix, layout string, padded bool) (buffer, int) {
	outer, inner := m.rows, m.cols
	if layout == "col" {
		outer, inner = inner, outer
	}
	stride := inner
	if padded {
		stride += 128 / widths[t] * 2
	}
	mem := d.buffer(outer * stride * widths[t] / 8)
	for i := range outer {
		for k := range inner {
			row, col := i, k
			if layout == "col" {
				row, col = k, i
			}
			bit := (i*stride + k) * widths[t]
			e := encode(t, *m.at(row, col))
			for n := 0; n < widths[t]; n++ {
				mem.mem[(bit+n)/8] |= byte(e >> n & 1 << ((bit + n) % 8))
			}
		}
	}
	return mem, stride
}

// ldmatrix gives each thread two elements of a row, stmatrix takes them, and both
// transpose; movmatrix transposes from registers to registers.
func TestMatrixRows(t *testing.T) {
	const text = `.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .b32 %r<16>; .reg .b64 %a<8>; .shared .align 16 .b16 s[512]; .shared .align 16 .b16 z[256];
ld.param.u64 %a0, [out]; mov.u32 %r0, %tid.x;
mul.lo.u32 %r1, %r0, 16;                 // a thread fills a row: elements 8t to 8t+7
mov.u32 %r2, s; add.u32 %r3, %r2, %r1; mul.lo.u32 %r4, %r0, 0x00080008; add.u32 %r4, %r4, 0x00010000;
st.shared.b32 [%r3], %r4; add.u32 %r4, %r4, 0x00020002; st.shared.b32 [%r3+4], %r4;
add.u32 %r4, %r4, 0x00020002; st.shared.b32 [%r3+8], %r4; add.u32 %r4, %r4, 0x00020002; st.shared.b32 [%r3+12], %r4;
bar.sync 0;
ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r3];
ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r6, %r7, %r8, %r9}, [%r3];
cvt.u64.u32 %a1, %r3; cvta.shared.u64 %a1, %a1;
ldmatrix.sync.aligned.m8n8.x2.b16 {%r10, %r11}, [%a1];
movmatrix.sync.aligned.m8n8.trans.b16 %r12, %r5;
mov.u32 %r2, z; add.u32 %r3, %r2, %r1;
stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%r3], {%r6, %r7};
stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%r3+256], {%r6, %r7};
mul.wide.u32 %a2, %r0, 64; add.u64 %a0, %a0, %a2;
st.global.v4.b32 [%a0], {%r5, %r6, %r7, %r8}; st.global.v4.b32 [%a0+16], {%r9, %r10, %r11, %r12};
bar.sync 0;
mul.lo.u32 %r1, %r0, 16; add.u32 %r3, %r2, %r1;
ld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%r3]; st.global.v4.b32 [%a0+32], {%r5, %r6, %r7, %r8};
ret; }
`
	d := newDevice(t)
	out := d.buffer(64 * 32)
	im := d.load([]byte(text))
	d.run(d.kernel(im, "k"), x(1), x(32), out)
	pair := func(matrix, row, col, row2, col2 int) uint32 {
		e := func(row, col int) uint32 { return uint32(64*matrix + 8*row + col) }
		return e(row, col) | e(row2, col2)<<16
	}
	for lane := range 32 {
		row, col := lane/4, lane%4*2
		plain := func(m int) uint32 { return pair(m, row, col, row, col+1) }
		turned := func(m int) uint32 { return pair(m, col, row, col+1, row) }
		want := []uint32{plain(0), turned(0), turned(1), turned(2), turned(3), plain(0), plain(1), turned(0)}
		// The first matrices are restored unchanged, then transposed.
		for i := range 4 {
			if m, row := lane/8%2, lane%8; lane < 16 {
				want = append(want, pair(m, row, 2*i, row, 2*i+1))
			} else {
				want = append(want, pair(m, 2*i, row, 2*i+1, row))
			}
		}
		for i, w := range want {
			if got := out.word(16*lane + i); got != w {
				t.Errorf("thread %d, word %d: got %x, want %x", lane, i, got, w)
			}
		}
	}
}

// Threads that don't take part neither have addresses read nor registers written.
func TestMatrixParted(t *testing.T) {
	const text = `.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .b32 %r<8>; .reg .b64 %a<4>; .reg .pred %p; .shared .align 16 .b16 s[64];
ld.param.u64 %a0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %a1, %r0, 4; add.u64 %a0, %a0, %a1;
mov.u32 %r1, 7; mul.lo.u32 %r2, %r0, 16; setp.lt.u32 %p, %r0, 8;
@!%p mov.u32 %r2, 0x7ffffff1;
@%p ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];
@%p mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r3}, {%r0}, {%r0}, {%r1, %r1};
st.global.b32 [%a0], %r1;
ret; }
`
	d := newDevice(t)
	out := d.buffer(4 * 20)
	im := d.load([]byte(text))
	d.run(d.kernel(im, "k"), x(1), x(20), out)
	for lane := range 20 {
		if got := out.word(lane); lane >= 8 && got != 7 || lane < 8 && got >= 1<<16 {
			t.Errorf("thread %d: %#x", lane, got)
		}
	}
}

// cp.async copies 4, 8 or 16 bytes, or fewer of them and zeroes.
func TestAsyncCopy(t *testing.T) {
	const text = `.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in, .param .u32 n)
{ .reg .b32 %r<16>; .reg .b64 %a<8>; .reg .pred %p; .shared .align 16 .b8 s[128];
ld.param.u64 %a0, [out]; ld.param.u64 %a1, [in]; ld.param.u32 %r1, [n];
mov.u32 %r0, s; mov.u32 %r2, -1; setp.ne.u32 %p, %r1, 0;
st.shared.v4.b32 [%r0], {%r2,%r2,%r2,%r2}; st.shared.v4.b32 [%r0+16], {%r2,%r2,%r2,%r2}; st.shared.v4.b32 [%r0+32], {%r2,%r2,%r2,%r2};
st.shared.v4.b32 [%r0+48], {%r2,%r2,%r2,%r2}; st.shared.v4.b32 [%r0+64], {%r2,%r2,%r2,%r2};
cp.async.ca.shared.global [%r0], [%a1], 4;
cp.async.ca.shared.global.L2::128B [s+8], [%a1+8], 8;
cp.async.cg.shared::cta.global [%r0+16], [%a1+16], 16;
cp.async.commit_group;
cp.async.cg.shared.global [%r0+32], [%a1], 16, 5;
cp.async.ca.shared.global [%r0+48], [%a1+4], 4, %r1;
createpolicy.fractional.L2::evict_first.b64 %a2, 1.0;
cp.async.ca.shared.global.L2::cache_hint [%r0+56], [%a1+8], 8, %a2;
cp.async.ca.shared.global [%r0+64], [%a1+12], 4, %p;
cp.async.ca.shared.global [%r0+72], [%a1+8], 8, !%p;
cp.async.ca.shared.global [%r0+52], [0], 4, 0;
prefetch.global.L2 [%a1]; prefetch.global.L2::evict_last [%a1]; prefetchu.L1 [%a1];
cp.async.wait_group 1; cp.async.wait_all; bar.sync 0;
mov.u32 %r3, 0;
L: add.u32 %r4, %r0, %r3; ld.shared.b32 %r5, [%r4]; cvt.u64.u32 %a3, %r3; add.u64 %a3, %a3, %a0; st.global.b32 [%a3], %r5;
add.u32 %r3, %r3, 4; setp.lt.u32 %p, %r3, 80; @%p bra L;
ret; }
`
	d := newDevice(t)
	out, in := d.buffer(80), d.buffer(64)
	for i := range in.mem {
		in.mem[i] = byte(i + 1)
	}
	im := d.load([]byte(text))
	d.run(d.kernel(im, "k"), x(1), x(1), out, in, 3)
	word := func(i uint32) uint32 { i++; return i | (i+1)<<8 | (i+2)<<16 | (i+3)<<24 }
	const untouched = 0xffffffff
	want := []uint32{word(0), untouched, word(8), word(12), word(16), word(20), word(24), word(28), word(0), 5, 0, 0,
		word(4) & 0xffffff, 0, word(8), word(12), 0, untouched, word(8), word(12)}
	for i, w := range want {
		if got := out.word(i); got != w {
			t.Errorf("word %d: got %08x, want %08x", i, got, w)
		}
	}
	for _, bad := range []string{"[%r0+4], [%a1], 16", "[%r0], [%a1+4], 8", "[%r0+1024], [%a1], 4", "[%r0], [%a0+4096], 4", "[%r0], [%a1+64], 16, 1"} {
		src := strings.Replace(text, "cp.async.ca.shared.global [%r0], [%a1], 4;", "cp.async.ca.shared.global "+bad+";", 1)
		im := d.load([]byte(src))
		k := d.kernel(im, "k")
		if f := k.Run(d.launch(k, x(1), x(1), out, in, 3)); f == nil {
			t.Errorf("%s: no fault", bad)
		}
	}
}

// A cache policy changes nothing.
func TestCachePolicy(t *testing.T) {
	const text = `.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .b32 %r<8>; .reg .b64 %a<4>; .reg .b16 %h<4>;
ld.param.u64 %a0, [out];
createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %a1, 0.5;
createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %a2, [%a0], 16, 64;
createpolicy.cvt.L2.b64 %a3, 12;
ld.global.nc.L1::no_allocate.L2::cache_hint.L2::256B.v2.b32 {%r0, %r1}, [%a0], %a1;
add.u32 %r0, %r0, 1;
st.global.L2::cache_hint.v2.b32 [%a0+8], {%r0, %r1}, %a2;
atom.global.add.L2::cache_hint.u32 %r2, [%a0], 4, %a3;
atom.global.cas.L2::cache_hint.b32 %r3, [%a0+4], 2, %r2, %a1;
red.global.add.L2::cache_hint.u32 [%a0+4], 16, %a1;
mov.b16 %h0, 0x3c00;
red.global.add.noftz.L2::cache_hint.f16 [%a0+16], %h0, %a1;
ret; }
`
	d := newDevice(t)
	out := d.buffer(20)
	out.setWord(0, 1)
	out.setWord(1, 2)
	im := d.load([]byte(text))
	d.run(d.kernel(im, "k"), x(1), x(1), out)
	for i, want := range []uint32{5, 17, 2, 2, 0x3c00} {
		if got := out.word(i); got != want {
			t.Errorf("word %d: got %#x, want %#x", i, got, want)
		}
	}
}

// Sums of 16 bits by many threads lose nothing, in global and in shared memory.
func TestSmallAtomics(t *testing.T) {
	const text = `.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %a<4>; .reg .pred %p; .shared .align 4 .b16 s[4];
ld.param.u64 %a0, [out]; mov.u32 %r0, %tid.x; mov.u32 %r3, %ctaid.x; mul.wide.u32 %a1, %r3, 8; add.u64 %a1, %a0, %a1; mov.b16 %h0, 0x3c00; mov.b16 %h1, 0x3f80; mov.b32 %r1, 0x40003c00; mov.b32 %r2, 0x40003f80;
atom.global.add.noftz.f16 %h2, [%a0], %h0;
atom.add.noftz.f16 %h2, [%a0+2], %h0;
red.relaxed.gpu.global.add.noftz.f16x2 [%a0+4], %r1;
red.global.add.noftz.bf16x2 [%a0+8], %r2;
atom.shared.add.noftz.bf16 %h3, [s], %h1;
bar.sync 0;
setp.eq.u32 %p, %r0, 0;
@%p ld.shared.b16 %h3, [s];
@%p st.global.b16 [%a1+24], %h3;
mov.b16 %h4, 0; mov.b16 %h5, 9;
atom.global.cas.b16 %h6, [%a0+14], %h4, %h5;
@%p bra M; ret;
M: atom.add.noftz.f16 %h2, [%a0+16], %h0; st.global.b16 [%a1+28], %h2;
ret; }
`
	d := newDevice(t)
	out := d.buffer(24 + 8*8)
	out.setWord(4, 0x7c01) // NaN
	im := d.load([]byte(text))
	d.run(d.kernel(im, "k"), x(8), x(128), out)
	// 1024 and 2048 are exact in f16; in bf16 sums of ones stop at 256.
	for i, want := range []uint32{0x64006400, 0x68006400, 0x44004380, 0x00090000, 0x00007fff} {
		if got := out.word(i); got != want {
			t.Errorf("word %d: got %08x, want %08x", i, got, want)
		}
	}
	first := 0 // the thread that added to the NaN first got it unchanged
	for b := range 8 {
		if got := out.word(6 + 2*b); got != 0x4300 {
			t.Errorf("block %d: the sum in shared memory is %x, want 4300", b, got)
		}
		if out.word(7+2*b) == 0x7c01 {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d blocks were the first to add to a NaN", first)
	}
}

// A product of 16×8×16 in f16, repeated by one warp.
func BenchmarkProduct(b *testing.B) {
	d := newDevice(b)
	im := d.load([]byte(`.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u32 n)
{ .reg .b32 %r<16>; .reg .pred %p;
ld.param.u32 %r0, [n]; mov.u32 %r1, %tid.x;
L: mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r8,%r9,%r10,%r11}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r8,%r9,%r10,%r11};
sub.u32 %r0, %r0, 1; setp.ne.u32 %p, %r0, 0; @%p bra L;
ret; }
`))
	d.run(d.kernel(im, "k"), x(1), x(32), b.N)
}
