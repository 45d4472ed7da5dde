package ptx

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// repeat writes a text with n pieces of which each may contain its number.
func repeat(n int, piece func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(piece(i))
	}
	return b.String()
}

func same(s string) func(int) string { return func(int) string { return s } }

// Texts that are made to cost much time, memory or stack are refused soon, with
// a line and a short message.
func TestHostile(t *testing.T) {
	const open = head + ".entry k() { .reg .pred %p<4>; .reg .b32 %r<4>; .reg .b64 %a<4>;\n"
	forest := ".func f() {" + strings.Repeat(" trap;", 250) + " ret; }\n.entry k() {" + strings.Repeat(" call f;", 2000) + " ret; }"
	across := ".func f() { call f; ret; }\n.entry k() { .reg .b32 %r<2000>;" + strings.Repeat(" call f;", 2000) +
		repeat(2000, func(i int) string { return fmt.Sprintf(" add.u32 %%r%d, %%r%d, 1;", i, i) }) + " ret; }"
	locals := ".func f() { .local .b8 " + repeat(20_000, func(i int) string { return fmt.Sprintf("a%d[0],", i) }) + "z; ret; }\n" +
		".entry k() { " + repeat(20_000, same("call f; ")) + "ret; }"
	shared := ".shared .b8 " + repeat(20_000, func(i int) string { return fmt.Sprintf("a%d[0],", i) }) + "z;\n.func f() {" +
		repeat(20_000, func(i int) string { return fmt.Sprintf("{ .reg .b64 %%a; mov.b64 %%a, a%d; }", i) }) + "ret; }\n" +
		repeat(2_000, func(i int) string { return fmt.Sprintf(".entry k%d() { call f; ret; }\n", i) })
	for _, c := range []struct{ name, text, msg string }{
		{"negations", open + "mov.pred %p1, " + strings.Repeat("!", 30<<20), "nested too deeply"},
		{"addresses", open + "ld.u32 %r1, " + strings.Repeat("[%a1,", 5<<20), "nested too deeply"},
		{"vectors", open + "ld.u32 %r1, " + strings.Repeat("{", 20<<20), "nested too deeply"},
		{"linkage", head + ".extern " + strings.Repeat(".visible ", 3<<20), "unknown directive"},
		{"joined linkage", head + ".extern " + strings.Repeat(strings.Repeat(".visible", 2000)+" ", 1<<8), "too long"},
		{"identifier", open + strings.Repeat("x", 20<<20) + ";", "too long"},
		{"modifiers", open + "add" + strings.Repeat(" .u32", 5<<20), "too many modifiers"},
		{"subscript", head + ".global .b8 a[1073741824];\n.entry k() { .reg .b32 %r; ld.global.u8 %r, a[1<<62]; ret; }", "number up to"},
		{"string", head + strings.Repeat("\"", 20<<20) + ";", "directive"},
		{"number", open + "add.u32 %r1, %r1, " + strings.Repeat("9", 20<<20) + ";", "malformed number"},
		{"long line", open + strings.Repeat("add.u32 %r1, %r1, 1; ", 1<<20) + "frob;", "frob"},
		{"instructions", open + strings.Repeat("ret;", 1<<20+1), "instructions"},
		{"registers", open + ".reg .b32 " + repeat(1<<20, func(i int) string { return fmt.Sprintf("r%d,", i) }), "registers"},
		{"empty ranges", open + ".reg .b32 " + repeat(1<<20, func(i int) string { return fmt.Sprintf("r%dx<0>,", i) }), "registers"},
		{"scopes", open + strings.Repeat("{}", 1<<20), "function without an end"},
		{"labels", open + repeat(1<<20+1, func(i int) string { return fmt.Sprintf("l%x:", i) }), "labels"},
		{"functions", head + repeat(1<<16+1, func(i int) string { return fmt.Sprintf(".func f%d;", i) }), "functions"},
		{"parameters", head + ".func f(" + repeat(1<<18+1, func(i int) string { return fmt.Sprintf(".param .b8 a%d[0],", i) }), "variables"},
		{"kernels' parameters", head + repeat(1<<15, func(i int) string { return fmt.Sprintf(".entry k%d(.param .b8 x[32764]){}", i) }) + ".entry l(.param .b8 x[32765])", "bytes of parameters"},
		{"shared", head + ".entry k() { .shared .b8 x[1073741824]; ret; }", "shared memory"},
		{"local", head + ".entry k() { .local .align 65536 .b8 x[1073741824]; ret; }", "local memory"},
		{"dimensions", head + ".global .b8 x[1073741824][1073741824][1073741824];", "too large"},
		{"vector", open + "ld.v8.u64 {%a1,%a1,%a1,%a1,%a1,%a1,%a1,%a1}, [%a1];", "vector"},
		{"initialiser", head + ".global .b8 x[] = {" + strings.Repeat("1,", 1<<20) + "};\n.global .b8 y[67000000] = {1};", "initial values"},
		{"addresses in initialisers", head + ".global .b8 a;\n.global .b64 x[] = {" + strings.Repeat("a,", 2<<20) + "};", "initial value"},
		{"address in a byte", head + ".global .b8 a;\n.global .b8 x[] = {a};", "initial value"},
		{"call forest", head + forest, "inlining"},
		{"alive across calls", head + across, "alive across calls"},
		{"locals of calls", head + locals, "too many variables"},
		{"shared of calls", head + shared, "too many shared"},
	} {
		m, err := Parse([]byte(c.text))
		if err == nil {
			for _, k := range m.Kernels {
				var b *Body
				if b, err = k.Body(); err != nil {
					break
				}
				if b.Allocate(b.Blocks()).Across == nil {
					err = &Error{1, "too many registers are alive across calls", ErrInvalidPTX}
				}
			}
		}
		var e *Error
		if !errors.As(err, &e) || e.Line < 1 || !strings.Contains(e.Msg, c.msg) || len(e.Msg) > maxMessage+3 {
			t.Errorf("%s: %.200v", c.name, err)
		}
	}
}

// The analysis of flow that takes too long is abandoned: registers then share no slots.
func TestHostileFlow(t *testing.T) {
	const n, regs = 20_000, 3200
	r := rand.New(rand.NewPCG(1, 2))
	text := repeat(n, func(i int) string {
		return fmt.Sprintf("L%d: @%%p1 bra L%d; add.u32 %%r%d, %%r%d, 1;\n", i, max(0, i-1-r.IntN(5)), r.IntN(regs), r.IntN(regs))
	})
	m := parse(t, head+fmt.Sprintf(".entry k() { .reg .pred %%p<4>; .reg .b32 %%r<%d>;\n%s ret; }", regs, text))
	b, err := m.Kernels[0].Body()
	if err != nil {
		t.Fatal(err)
	}
	b.Allocate(b.Blocks())
}
