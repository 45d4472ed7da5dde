package ptx

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// head begins a small module.
const head = ".version 7.0\n.target sm_75\n.address_size 64\n"

func parse(t *testing.T, src string) *Module {
	t.Helper()
	m, err := Parse([]byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDescription(t *testing.T) {
	m := parse(t, head+`
.const .align 4 .b8 c[6] = {1, 0x2, 03, 4U};
.global .align 8 .u64 p[2] = {c+2, generic(c)};
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(
	.param .u32 a, .param .u64 .ptr .global .align 8 b, .param .align 4 .b8 s[6]
)
.maxntid 128, 2, 1
{ .reg .b32 %r<5>; .shared .align 8 .b8 buf[12]; .local .align 16 .b8 __local_depot0[24];
  { .reg .b32 %r1; mov.u32 %r1, buf; L: mov.u32 %r0, dyn; }
  L: bra L; }
`)
	k := m.Kernel("k")
	if k == nil {
		t.Fatal("no kernel")
	}
	if k.ParamBytes != 22 || k.Params[1].Offset != 8 || k.Params[2].Size != 6 {
		t.Errorf("parameters %+v of %d bytes", k.Params, k.ParamBytes)
	}
	if k.StaticShared != 16 || k.LocalBytes != 32 || k.ConstBytes != 6 || k.MaxNTid != [3]uint32{128, 2, 1} {
		t.Errorf("shared %d, local %d, const %d, maxntid %v", k.StaticShared, k.LocalBytes, k.ConstBytes, k.MaxNTid)
	}
	if g := m.Globals; len(g) != 2 || string(g[0].Init) != "\x01\x02\x03\x04\x00\x00" || len(g[1].Refs) != 2 || g[1].Refs[0].Add != 2 {
		t.Errorf("variables %+v", m.Globals)
	}
}

// Oddities of real texts that a strict parser might not expect.
func TestOddities(t *testing.T) {
	for name, body := range map[string]string{
		"negative offset":   "ld.global.u32 %r1, [%a1+-4];",
		"order of suffixes": "setp.gt.ftz.f32 %p1, %f1, %f2; setp.ftz.gt.f32 %p1, %f1, %f2;",
		"octal and suffix":  "add.u32 %r1, %r1, 017; add.u32 %r1, %r1, 7U;",
		"hexadecimal float": "mov.f32 %f1, 0f3F800000; mov.f64 %d1, 0d3FF0000000000000;",
		"pair and sink":     "setp.lt.u32 %p1|%p2, %r1, %r2; setp.lt.u32 _|%p2, %r1, %r2; mov.b64 {%r1, _}, %a1;",
		"dollar label":      "$L__BB0_1: bra.uni $L__BB0_1;",
		"noise":             ".loc 1 2 3\n.pragma \"nounroll\";\n// callseq 0, 0\n/* two\nlines */",
		"loc in a line":     ".loc 1 2 3, function_name $L__info_string0+4, inlined_at 1 2 3 L: .loc 1 2 3 bra L;",
		"noise over lines":  ".loc\n1\n2 3\n.pragma\n\"nounroll\", \"x\"\n;",
		"modifiers apart":   "add /* a */ .u32 %r1, %r1, %r2; @%p1 mov .b32 %r1, 7%3;",
		"managed":           "ld.global.u32 %r1, [%a1+4].unified;",
		"negative literal":  "mov.pred %p1, -1; add.s32 %r1, %r1, -0x10;",
		"guarded":           "@!%p1 bra x; x: @%p1 ret;",
		"special":           "mov.u32 %r1, %tid.x; mad.lo.s32 %r1, %ntid.x, %ctaid.x, %r1; mov.u64 %a1, %clock64;",
		"parameters":        "{ .param .u64 %P<2>; st.param.u64 [%P1], 5; }",
		"scalar vector":     "ld.global.v4.f32 {%f1, %f2, %f1, _}, [%a1]; st.global.v2.u16 [%a1], {%h1, 5};",
	} {
		_, err := Parse([]byte(head + ".entry k() { .reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<4>; .reg .b64 %a<4>; .reg .f32 %f<4>; .reg .f64 %d<4>;\n" + body + "\nret; }"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Mistakes are found at load, with their line. Each case is a text, its result and part of the message.
func TestMistakes(t *testing.T) {
	for _, c := range []struct {
		src    string
		result int32
		line   int
		msg    string
	}{
		{"", ErrInvalidImage, 1, "no .version"},
		{"// a comment alone", ErrInvalidImage, 1, "no .version"},
		{"/* no end", ErrInvalidImage, 1, "comment"},
		{".version x.y\n", ErrInvalidPTX, 1, "where a version is expected"},
		{".version 9.9\n", ErrUnsupportedPTXVersion, 1, "newer"},
		{head + ".entry k()\n{ frobnicate.u32 %r1; }", ErrInvalidPTX, 5, "kernel k: unknown instruction frobnicate.u32"},
		{head + ".entry k() { .reg .b32 %r<3>;\nadd.approx.u32 %r1, %r1, %r2; }", ErrInvalidPTX, 5, "unknown form add.approx.u32"},
		{head + ".entry k() { .reg .b32 %r<3>;\nwgmma.sync %r1; }", ErrInvalidPTX, 5, "wgmma"},
		{head + ".entry k() { .reg .b32 %r<3>; .reg .b64 %a<3>;\nadd.u32 %r1, %r1, %a1; }", ErrInvalidPTX, 5, "operand 3"},
		{head + ".entry k() { .reg .b32 %r<3>;\nadd.u32 %r1, %r1, %r3; }", ErrInvalidPTX, 5, "%r3 is not declared"},
		{head + ".entry k() .maxntid 64\n.reqntid 8, 8 { ret; }", ErrInvalidPTX, 5, "kernel k: .maxntid and .reqntid can't both be given"},
		{head + ".entry k(\n.param .b8 p[40000]) { ret; }", ErrInvalidPTX, 5, "kernel k: more than 32764 bytes"},
		{head + ".func f()\n{ oops; }", ErrInvalidPTX, 5, "function f: unknown instruction oops"},
		{head + ".entry k() {\nbra nowhere; }", ErrInvalidPTX, 5, "no label nowhere"},
		{head + ".entry k() { { x: ret; }\nbra x; }", ErrInvalidPTX, 5, "no label x"},
		{head + ".entry k() { .reg .b64 %a; mov.u64 %a, k; ret; }", ErrInvalidPTX, 0, "address of kernel k"},
		{head + ".entry j() { ret; }\n.entry k() { call j; ret; }", ErrInvalidPTX, 0, "which is a kernel"},
		{head + ".func g() { ret; }\n.entry k() { .reg .b32 %a; mov.u32 %a, g; ret; }", ErrInvalidPTX, 0, "mov.u32"},
		{head + ".func g() { ret; }\n.global .u32 t[1] = {g};", ErrInvalidPTX, 0, "initial value"},
		{head + ".entry k() { .reg .b64 %a; call %a; ret; }", ErrInvalidPTX, 0, "prototype"},
		{head + ".entry k() { .reg .b64 %a; call %a, l; ret; }", ErrInvalidPTX, 0, "l is not the label"},
		{head + ".entry k() { .reg .b32 %a; l: .callprototype _; call %a, l; ret; }", ErrInvalidPTX, 0, "can't hold"},
		{head + ".entry k() { .reg .b64 %a; l: .callprototype _ (.param .b32 _); call %a, l; ret; }", ErrInvalidPTX, 0, "number of operands"},
		{head + ".entry k() { .reg .b64 %a; l: .calltargets m; ret; }", ErrInvalidPTX, 0, "m is not a declared function"},
		{head + ".global .b32 v;\n.func f(.param .b32 p) { call f, (p); ret; }\n.entry k() { call f, (v); ret; }", ErrInvalidPTX, 0, "operand 1 of the call of f doesn't fit"},
		{head + ".extern .func g();\n.entry k() { call g; ret; }", ErrInvalidPTX, 5, "not defined"},
		{head + ".entry k() { .local .b8 big[600000]; ret; }", ErrInvalidPTX, 4, "local memory"},
		{head + ".entry k() { .reg .b32 %r<2000000>; }", ErrInvalidPTX, 4, "524288"},
		{head + strings.Repeat(".entry k() {", 1) + strings.Repeat("{", 100), ErrInvalidPTX, 4, "nested too deeply"},
		{head + ".global .u32 x[2] = {1,2,3};", ErrInvalidPTX, 4, "too many"},
		{"hello world", ErrInvalidImage, 1, "no PTX text"},
		{"// a comment\n.target sm_75\n.version 7.0\n", ErrInvalidImage, 2, ".version is expected"},
		{".version 7.0\n.target sm_999\n", ErrNoBinaryForGPU, 2, "target sm_999 is not known"},
		{".version 7.0\n.target sm_75\n.address_size 32\n", ErrInvalidPTX, 3, ".address_size 32"},
		{head + ".entry k() { .shared .b8 a[40000];\n.shared .b8 b[40000]; ret; }", ErrInvalidPTX, 4, "kernel k uses 80000 bytes of shared memory, at most 49152"},
		{head + ".func f(); .global .u64 t[1] = {f};", ErrInvalidPTX, 4, "function f, whose address is taken, is not defined"},
		{head + ".func f(); .entry k() { .reg .u64 %a;\nmov.u64 %a, f; }", ErrInvalidPTX, 5, "function f, whose address is taken, is not defined"},
		{head + "/* no end", ErrInvalidPTX, 4, "comment"},
	} {
		_, err := Parse([]byte(c.src))
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %v", c.src, err)
			continue
		}
		if e.Result != c.result || c.line != 0 && e.Line != c.line || !strings.Contains(e.Msg, c.msg) {
			t.Errorf("%q: %d %v", c.src, e.Result, e)
		}
	}
}

func body(t *testing.T, text string) *Body {
	t.Helper()
	m := parse(t, head+".entry k(.param .u64 out) { .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %a<4>;\n"+text+"\n}")
	b, err := m.Kernels[0].Body()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPostDominators(t *testing.T) {
	b := body(t, `
	@%p1 bra then;
	@%p2 bra other;
	mov.u32 %r1, 1; bra join;
other:	mov.u32 %r1, 2; bra join;
then:	mov.u32 %r1, 3;
loop:	add.u32 %r1, %r1, 1; @%p3 bra loop;
join:	ret;`)
	blocks := b.Blocks()
	var got []int
	for _, k := range blocks {
		got = append(got, k.Join)
	}
	// 0: branch, 1: branch, 2: mov, 3: other, 4: then, 5: loop, 6: join, 7: the implied return
	want := []int{6, 6, 6, 6, 5, 6, -1, -1}
	if len(got) != len(want) {
		t.Fatalf("blocks %+v", blocks)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("joins %v, want %v", got, want)
		}
	}
}

// Registers share slots when they are not alive together, and registers that are the same for all threads are found to
// be.
func TestAllocate(t *testing.T) {
	b := body(t, `
	ld.param.u64 %a1, [out];
	mov.u32 %r1, %tid.x;
	add.u32 %r2, %r1, 1;
	add.u32 %r3, %r2, 1;
	add.u32 %r4, %r3, 1;
	mov.u32 %r5, %ctaid.x;
	mad.lo.u32 %r6, %r5, 5, %r4;
	st.global.u32 [%a1], %r6;`)
	s := b.Allocate(b.Blocks())
	if s.Count[File32] != 2 || s.Count[File64] != 0 || s.Uniforms != 2 {
		t.Fatalf("%+v", s)
	}
	if r := b.Insts[0].Args[0].Reg; !s.Uniform[r] {
		t.Error("a parameter is not uniform")
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("../../guest/bench/kernels/*.ptx")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(head + ".func (.param .b8 r[4]) f(.param .b64 x) { ret; } .entry k() { { .param .b8 q[4]; call (q), f, (5); } }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, err := Parse(src)
		if err != nil {
			return
		}
		for _, k := range m.Kernels {
			if b, err := k.Body(); err == nil {
				b.Allocate(b.Blocks())
			}
		}
	})
}

// Values between inner braces begin a row, as in C.
func TestRowsOfValues(t *testing.T) {
	for text, want := range map[string]string{
		"m[2][3] = {{1, 2}, {3, 4, 5}}":       "120345",
		"m[][2] = {{1}, {2, 3}, {}, 4, 5}":    "10230045",
		"m[2][2][2] = {{{1}, 2}, {{3}, {4}}}": "10203040",
		"m[4] = {1, {2}, 3}":                  "1230",
	} {
		m := parse(t, head+".global .b8 "+text+";")
		got := ""
		for _, b := range m.Globals[0].Init {
			got += string('0' + rune(b))
		}
		if got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
	m := parse(t, head+".global .v2 .b8 m[2] = {{1}, {2, 3}};")
	if got := m.Globals[0].Init; string(got) != "\x01\x00\x02\x03" {
		t.Errorf("vectors: %x", got)
	}
	for _, text := range []string{"m[2][3] = {{1, 2, 3, 4}}", "m[][2] = {{1, 2, 3}}", "m[][500000000] = {{1}, {1}}", "m" + strings.Repeat("[1]", 100)} {
		if _, err := Parse([]byte(head + ".global .b8 " + text + ";")); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
