package ptx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// Constant expressions have the values that they have in C with integers of 64 bits, but for ~,
// which has an unsigned result, and %, which has unsigned operands.
func TestExpressions(t *testing.T) {
	for text, want := range map[string]int64{
		"1+2*3":                         7,
		"(1+2)*3":                       9,
		"10-2-3":                        5,
		"100/7/2":                       7,
		"100%7%4":                       2,
		"-7/2":                          -3,
		"-7 % 4":                        1,
		"-1 % 2 - 2 < 0":                1,
		"-7 % 3U":                       0, // 2^64-7 is a multiple of 3
		"1<<4+3":                        1 << 7,
		"(1<<4)+3":                      19,
		"-16>>2":                        -4,
		"(.u64)-16>>60":                 15,
		"0xffffffffffffffff>>60":        15,
		"(.s64)0xffffffffffffffff>>60":  -1,
		"1<<64":                         0,
		"-1<0":                          1,
		"-1<0U":                         0,
		"3>2 && 2>=2 && !(1!=1)":        1,
		"0||0":                          0,
		"1 ? 2 : 0 ? 3 : 4":             2,
		"0 ? 2 : 0 ? 3 : 4":             4,
		"6^3&1|8":                       15,
		"~5":                            -6,
		"~0>>60":                        15,
		"~0 < 0":                        0,
		"!7 + !0":                       1,
		"- -3":                          3,
		"WARP_SZ*2":                     64,
		"1.5 < 2":                       1,
		"!0.0":                          1,
		"0d7ff8000000000000 != 1":       1,
		"(.s64)-9223372036854775808/-1": math.MinInt64,
	} {
		m, err := Parse([]byte(head + ".global .s64 x = " + text + ";"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := int64(binary.LittleEndian.Uint64(m.Globals[0].Init)); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]float64{"1.5*2+0.25": 3.25, "-0f3f800000": -1, "7/2.0": 3.5, "1 ? 2.5 : 1": 2.5, "3": 3} {
		m, err := Parse([]byte(head + ".global .f64 x = " + text + ";"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := math.Float64frombits(binary.LittleEndian.Uint64(m.Globals[0].Init)); got != want {
			t.Errorf("%s is %v, want %v", text, got, want)
		}
	}
}

// Mistakes of rarer declarations and of expressions are found at load, with their line.
func TestRareMistakes(t *testing.T) {
	const aliased = ".func g() { ret; }\n.func (.param .u32 r) h() { ret; }\n.func f();\n"
	deep := strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000)
	for _, c := range []struct{ src, msg string }{
		{"\n.global .u32 x = 1/0;", "division by zero"},
		{"\n.global .u32 x = 5 % 0;", "division by zero"},
		{"\n.global .u32 x = 1.0<<2;", "of floats"},
		{"\n.global .u32 x = ~1.0;", "of a float"},
		{"\n.global .u32 x = (.u64)1.0;", "cast of a float"},
		{"\n.global .u32 x = (1;", "is expected"},
		{"\n.global .u32 x = 1 ? 2;", "is expected"},
		{"\n.global .u32 x = 1 + ;", "a number is expected"},
		{"\n.global .u32 x = " + deep + ";", "nested too deeply"},
		{"\n.global .u32 x = " + strings.Repeat("-", 1000) + "1;", "nested too deeply"},
		{"\n.global .u32 x = " + strings.Repeat("1?1:", 1000) + "1;", "nested too deeply"},
		{"\n.global .u32 x[1-2];", "no number up to"},
		{"\n.global .u32 x[2.0];", "no number up to"},
		{"\n.global .align (1+2) .u32 x;", "power of two"},
		{"\n.entry k() { .reg .b64 %a; .reg .b32 %r; ld.global.u32 %r, [%a+1.0]; }", "offset is not an integer"},
		{"\n.entry k() { .reg .b32 %r; ld.global.u32 %r, [1.0]; }", "address is not an integer"},
		{"\n.global .u8 y; .global .u8 x = {0xff1(y)};", "no mask of a byte"},
		{"\n.global .u8 y; .global .u8 x = {0xff0(y)};", "no mask of a byte"},
		{"\n.global .u8 y; .global .u16 x = {0xff(y)};", "of a larger type"},
		{"\n.global .u8 x = {0xff(y)};", "not a variable declared before"},
		{aliased + ".alias e, g;", "alias e is not declared"},
		{aliased + ".alias g, g;", "alias g is not declared"},
		{aliased + ".alias f, e;", "not a function defined before"},
		{aliased + ".alias f, h;", "other parameters"},
		{aliased + ".entry k() { ret; }.alias f, k;", "not a function defined before"},
		{"\n.global .attribute(.elsewhere) .u32 x;", "unknown attribute .elsewhere"},
		{"\n.const[11] .u32 x;", "a number up to 10"},
		{"\n.reg .u32 %x<3>;\n.func f() { mov.u32 %x2, 5; ret; }", "%x2 is declared for the module, and not supported in functions"},
		{"\n.reg .u32 %x<2000000>;", "524288"},
		{"\n.reg .b128 %x<400000>;\n.entry k() { ret; }", "524288"},
		{"\n.reg .v2 .b128 %x;", "registers of type .b128"},
		{"\n.local .u8 x[600000];\n.entry k() { ret; }", "kernel k uses 600000 bytes of local memory, at most 524288"},
		{"\n.extern .local .u8 x;\n.entry k() { ret; }", "extern variable x is not defined"},
		{"\n.entry k() .reqnctapercluster 2, 1 { ret; }", "clusters of several blocks"},
		{"\n.entry k() { .reg .b64 %a; add.b128 %a, %a, %a; }", "unknown form add.b128"},
	} {
		_, err := Parse([]byte(head + c.src))
		var e *Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, c.msg) || e.Line < 4 {
			t.Errorf("%.100q: %v, want %q", c.src, err, c.msg)
		}
	}
}

// Thousands of aliases of a large function are refused before they take long.
func TestManyAliases(t *testing.T) {
	var b strings.Builder
	b.WriteString(head + ".func g() { .reg .b32 %r;" + strings.Repeat("add.u32 %r, %r, 1;", 1000) + "ret; }\n")
	for i := range 2000 {
		fmt.Fprintf(&b, ".func f%d();\n.alias f%d, g;\n", i, i)
	}
	if _, err := Parse([]byte(b.String())); err == nil || !strings.Contains(err.Error(), "instructions") {
		t.Error(err)
	}
}
