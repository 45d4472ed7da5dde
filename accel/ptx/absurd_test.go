package ptx

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Modules that are right but absurd are read soon, and so are their kernels.
func TestAbsurd(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector makes it slow")
	}
	const open = head + ".entry k() { .reg .pred %p<4>; .reg .b32 %r<4>;\n"
	numbered := func(n int, format string) string {
		return repeat(n, func(i int) string { return fmt.Sprintf(format, i) })
	}
	for name, text := range map[string]string{
		"registers":                  open + ".reg .b32 " + numbered(500_000, "r%d,") + "last;" + numbered(250_000, "add.u32 r%d, last, last;") + "ret; }",
		"labels":                     open + numbered(250_000, "l%d:") + numbered(250_000, "bra l%d;") + "ret; }",
		"registers alive everywhere": open + ".reg .b32 %x<500>; l:" + repeat(120_000, func(i int) string { return fmt.Sprintf("@%%p1 bra l; add.u32 %%x%d, %%x%d, 1;", i%500, 7*i%500) }) + "bra l; }",
		"scopes":                     open + strings.Repeat("{ .reg .b32 %x; ", 60) + strings.Repeat("add.u32 %r1, %r2, %r3;", 200_000) + strings.Repeat("}", 60) + "ret; }",
		"chain of calls":             head + ".func f0() { ret; }\n" + repeat(60_000, func(i int) string { return fmt.Sprintf(".func f%d() { call f%d; ret; }\n", i+1, i) }) + ".entry k() { call f60000; ret; }",
		"functions":                  head + numbered(60_000, ".func f%d() { ret; }\n") + ".entry k() { " + numbered(60_000, "call f%d; ") + "ret; }",
		"pointers":                   head + numbered(30_000, ".func f%d() { ret; }\n") + ".entry k() { .reg .b64 %a; p: .callprototype _; " + numbered(30_000, "mov.b64 %%a, f%d; ") + strings.Repeat("call %a, p; ", 10_000) + "ret; }",
		"kernels":                    head + numbered(60_000, ".entry k%d() { ret; }\n"),
		"globals":                    head + numbered(250_000, ".global .u32 g%d;\n") + ".entry k() { ret; }",
		"targets of a brx":           open + "t: .branchtargets " + strings.Repeat("l,", 100_000) + "l; l: brx.idx %r1, t; ret; }",
		"sum":                        head + ".global .u32 g = " + strings.Repeat("1+", 4<<20) + "1; .entry k() { ret; }",
	} {
		start := time.Now()
		m, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		b, err := m.Kernels[0].Body()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		blocks := b.Blocks()
		b.Fuse(blocks)
		b.Allocate(blocks)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: %v", name, took)
		}
	}
}
