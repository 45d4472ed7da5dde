package ptx

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Modules that are valid but absurd are parsed quickly, and so are their kernels.
func TestAbsurd(t *testing.T) {
	full := func(n int) int { return n / part() }
	const open = head + ".entry k() { .reg .pred %p<4>; .reg .b32 %r<4>;\n"
	numbered := func(n int, format string) string {
		return repeat(n, func(i int) string { return fmt.Sprintf(format, i) })
	}
	for name, text := range map[string]string{
		"registers":                  open + ".reg .b32 " + numbered(full(500_000), "r%d,") + "last;" + numbered(full(250_000), "add.u32 r%d, last, last;") + "ret; }",
		"labels":                     open + numbered(full(250_000), "l%d:") + numbered(full(250_000), "bra l%d;") + "ret; }",
		"registers alive everywhere": open + ".reg .b32 %x<500>; l:" + repeat(full(120_000), func(i int) string { return fmt.Sprintf("@%%p1 bra l; add.u32 %%x%d, %%x%d, 1;", i%500, 7*i%500) }) + "bra l; }",
		"scopes":                     open + strings.Repeat("{ .reg .b32 %x; ", 60) + strings.Repeat("add.u32 %r1, %r2, %r3;", full(200_000)) + strings.Repeat("}", 60) + "ret; }",
		"chain of calls":             head + ".func f0() { ret; }\n" + repeat(full(60_000), func(i int) string { return fmt.Sprintf(".func f%d() { call f%d; ret; }\n", i+1, i) }) + fmt.Sprintf(".entry k() { call f%d; ret; }", full(60_000)),
		"functions":                  head + numbered(full(60_000), ".func f%d() { ret; }\n") + ".entry k() { " + numbered(full(60_000), "call f%d; ") + "ret; }",
		"pointers":                   head + numbered(full(30_000), ".func f%d() { ret; }\n") + ".entry k() { .reg .b64 %a; p: .callprototype _; " + numbered(full(30_000), "mov.b64 %%a, f%d; ") + strings.Repeat("call %a, p; ", full(10_000)) + "ret; }",
		"kernels":                    head + numbered(full(60_000), ".entry k%d() { ret; }\n"),
		"globals":                    head + numbered(full(250_000), ".global .u32 g%d;\n") + ".entry k() { ret; }",
		"targets of a brx":           open + "t: .branchtargets " + strings.Repeat("l,", full(100_000)) + "l; l: brx.idx %r1, t; ret; }",
		"sum":                        head + ".global .u32 g = " + strings.Repeat("1+", full(4<<20)) + "1; .entry k() { ret; }",
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

// part returns the divisor of the size of absurd modules where time is short, as under the race detector.
func part() int {
	if testing.Short() {
		return 10
	}
	return 1
}
