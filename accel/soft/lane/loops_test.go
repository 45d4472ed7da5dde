package lane

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"pegasus/test/seeds"
)

// loopProgram makes a kernel with a loop that loads and computes: with counters of any width that grow or shrink by
// any amount, addresses that are made of them in any way, conditions of all kinds, bounds that are the same for all
// threads or not, and ends of memory in between.
func loopProgram(r *rand.Rand) []byte {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	var b strings.Builder
	fmt.Fprintf(&b, `.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .pred %%p<4>; .reg .b32 %%r<12>; .reg .b64 %%l<8>; .reg .f32 %%f<12>; .shared .align 16 .b8 s[8192];
ld.param.u64 %%l0, [out]; mov.u32 %%r0, %%tid.x; mov.u32 %%r1, %%ntid.x; mov.u64 %%l1, s;
`)
	// Shared memory gets a copy of the buffer's beginning.
	b.WriteString("mov.u32 %r2, %r0;\nI: mul.wide.u32 %l2, %r2, 4; add.u64 %l3, %l0, %l2; ld.global.u32 %r3, [%l3]; add.u64 %l3, %l1, %l2; st.shared.u32 [%l3], %r3;\n" +
		"add.u32 %r2, %r2, %r1; setp.lt.u32 %p0, %r2, 2048; @%p0 bra I; bar.sync 0;\n")
	for i := range 12 {
		fmt.Fprintf(&b, "mov.f32 %%f%d, 0f%08x;\n", i, []uint32{0, 0x3f800000, 0x7fc12345, 0x7f800000, 0x80000000, r.Uint32()}[r.IntN(6)])
	}
	space, base := "global", "%l0"
	if r.IntN(2) == 0 {
		space, base = "shared", "%l1"
	}
	step := []int64{1, 1, 2, 4, 16, 32, 64, 256, -1, -4, 0, 3}[r.IntN(12)]
	wide := r.IntN(3) == 0
	suffix, kind := "32", pick("u", "s")
	i, start := "%r4", pick("0", "%r0", "5", "100", "2040", "0xfffffff0", "0x7ffffff0", "-3")
	if wide {
		suffix, i = "64", "%l4"
		if start == "%r0" {
			b.WriteString("cvt.u64.u32 %l5, %r0;\n")
			start = "%l5"
		}
	}
	fmt.Fprintf(&b, "mov.u%s %s, %s; add.u32 %%r6, %%r0, %d;\n", suffix, i, start, r.IntN(300))
	bound := pick("0", "1", "37", "100", "2048", "4096", "0x7fffffff", "0xfffffff8", "%r6", "%r1")
	if wide {
		b.WriteString("cvt.u64.u32 %l6, %r6;\n")
		bound = pick("0", "37", "100", "2048", "8000", "%l6")
	}
	fmt.Fprintf(&b, "mov.u%s %s, %s;\nmov.u32 %%r8, 0;\n", suffix, map[bool]string{false: "%r7", true: "%l7"}[wide], bound)
	bound = map[bool]string{false: "%r7", true: "%l7"}[wide]
	if r.IntN(2) == 0 { // a bound that is a constant
		bound = pick("37", "100", "2048", "4096", "0x7fffffff")
	}
	b.WriteString("L: add.u32 %r8, %r8, 1;\n")
	scale := []int{4, 8, 16, 1}[r.IntN(4)]
	switch {
	case wide && r.IntN(2) == 0:
		fmt.Fprintf(&b, "shl.b64 %%l2, %s, %d; add.u64 %%l2, %%l2, %s;\n", i, map[int]int{1: 0, 4: 2, 8: 3, 16: 4}[scale], base)
	case wide:
		fmt.Fprintf(&b, "add.u64 %%l2, %s, %s;\n", base, i)
	case r.IntN(3) == 0:
		fmt.Fprintf(&b, "add.u32 %%r5, %s, %%r0; cvt.u64.u32 %%l2, %%r5; mad.lo.u64 %%l2, %%l2, %d, %s;\n", i, scale, base)
	default:
		fmt.Fprintf(&b, "add.u32 %%r5, %s, %s; mul.wide.%s32 %%l2, %%r5, %d; add.u64 %%l2, %%l2, %s;\n", i, pick("%r0", "0", "%r1"), kind, scale, base)
	}
	for range 1 + r.IntN(3) {
		off := 4 * r.IntN(20)
		switch r.IntN(5) {
		case 0:
			fmt.Fprintf(&b, "ld.%s.v2.f32 {%%f%d, %%f%d}, [%%l2+%d];\n", space, r.IntN(6), 6+r.IntN(6), off&^7)
		case 1:
			fmt.Fprintf(&b, "ld.%s.u8 %%r9, [%%l2+%d];\n", space, off)
		case 2:
			fmt.Fprintf(&b, "ld.%s.u32 %%r10, [%%l2+%d];\n", space, off)
		default:
			fmt.Fprintf(&b, "ld.%s.f32 %%f%d, [%%l2+%d];\n", space, r.IntN(12), off)
		}
	}
	for range r.IntN(12) {
		d, x, y, z := r.IntN(12), r.IntN(12), r.IntN(12), r.IntN(12)
		switch r.IntN(9) {
		case 0, 1:
			fmt.Fprintf(&b, "fma.rn.f32 %%f%d, %%f%d, %%f%d, %%f%d;\n", d, x, y, d)
		case 2:
			fmt.Fprintf(&b, "fma.rn.f32 %%f%d, %%f%d, %%f%d, %%f%d;\n", d, x, y, z)
		case 3:
			fmt.Fprintf(&b, "mov.f32 %%f%d, %%f%d;\n", d, x)
		case 4:
			fmt.Fprintf(&b, "add.u32 %%r11, %%r11, %%r10; xor.b32 %%r10, %%r11, %%r9;\n")
		case 5:
			fmt.Fprintf(&b, "setp.lt.f32 %%p1, %%f%d, %%f%d; selp.f32 %%f%d, %%f%d, %%f%d, %%p1;\n", x, y, d, z, x)
		case 6:
			fmt.Fprintf(&b, "rsqrt.approx.f32 %%f%d, %%f%d;\n", d, x)
		case 7:
			fmt.Fprintf(&b, "mov.b32 %%r9, %%f%d; add.f32 %%f%d, %%f%d, %%f%d;\n", x, x, x, y)
		default:
			fmt.Fprintf(&b, "%s.f32 %%f%d, %%f%d, %%f%d;\n", pick("add", "sub", "mul", "min", "max"), d, x, y)
		}
	}
	if r.IntN(3) == 0 { // an affine register as a value
		b.WriteString("cvt.rn.f32.u32 %f3, %r6; add.u32 %r11, %r11, %r0;\n")
	}
	fmt.Fprintf(&b, "add.%s%s %s, %s, %d;\n", kind, suffix, i, i, step)
	compared := i
	if wide && r.IntN(3) == 0 {
		fmt.Fprintf(&b, "cvt.u32.u64 %%r5, %s;\n", i)
		compared, suffix, bound = "%r5", "32", pick("37", "2048", "4096")
	}
	how := pick("lt", "le", "ne", "ne")
	switch {
	case step < 0:
		how = pick("gt", "ge", "ne")
	case r.IntN(8) == 0:
		how = pick("eq", "gt", "ge")
	}
	end := r.IntN(4)
	if step == 0 {
		end = 0
	}
	fmt.Fprintf(&b, "setp.%s.%s%s %%p0, %s, %s;\n", how, kind, suffix, compared, bound)
	switch end {
	case 0:
		b.WriteString("setp.lt.u32 %p2, %r8, 3000; and.pred %p3, %p0, %p2; @%p3 bra L;\n")
	case 1:
		b.WriteString("@!%p0 bra E; bra L;\nE:\n")
	default:
		b.WriteString("@%p0 bra L;\n")
	}
	b.WriteString("mad.wide.u32 %l2, %r0, 80, %l0;\n")
	for k := range 12 {
		fmt.Fprintf(&b, "st.global.f32 [%%l2+%d], %%f%d;\n", 16384+4*k, k)
	}
	fmt.Fprintf(&b, "st.global.u32 [%%l2+%d], %%r8; st.global.u32 [%%l2+%d], %%r9; st.global.u32 [%%l2+%d], %%r10; st.global.u32 [%%l2+%d], %%r11;\n", 16384+48, 16384+52, 16384+56, 16384+60)
	fmt.Fprintf(&b, "st.global.u64 [%%l2+%d], %%l4; st.global.u32 [%%l2+%d], %%r4;\nret; }\n", 16384+64, 16384+72)
	return []byte(b.String())
}

// tryLoop compares the engines for a random loop. It reports whether the loop ended by itself, without a fault.
func tryLoop(t *testing.T, seed uint64) (ended bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	src := loopProgram(r)
	threads := []int{1, 16, 33, 64, 128, 256, 300}[r.IntN(7)]
	return compareEngines(t, seed, src, threads)
}

// Loops of which machine code executes several iterations at once have the results of the interpreter.
func TestLoops(t *testing.T) {
	needCompiler(t)
	_ = UseEngine(os.Getenv(EngineVariable))
	n := 1500
	if testing.Short() {
		n = 300
	}
	tryPrograms(t, n, n/8, tryLoop)
}

// FuzzLoops is TestLoops for any seed.
func FuzzLoops(f *testing.F) {
	if err := UseEngine("compiler"); err != nil {
		f.Skip(err)
	}
	_ = UseEngine(os.Getenv(EngineVariable))
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { tryLoop(t, seed) })
}

// compareEngines runs a program with both engines. It reports whether the program ended by itself, without a fault.
func compareEngines(t *testing.T, seed uint64, src []byte, threads int) (ended bool) {
	t.Helper()
	want := runOn(t, src, false, threads)
	got := runOn(t, src, true, threads)
	if want.late || got.late {
		return false
	}
	if got.fault != want.fault {
		t.Fatalf("seed %d, %d threads: fault %d with the compiler, %d with the interpreter\n%s", seed, threads, got.fault, want.fault, src)
	}
	if !bytes.Equal(got.memory, want.memory) {
		for i := range got.memory {
			if got.memory[i] != want.memory[i] {
				t.Fatalf("seed %d, %d threads: memory at %d: %#x with the compiler, %#x with the interpreter\n%s", seed, threads, i, got.memory[i], want.memory[i], src)
			}
		}
	}
	return want.fault == 0
}

// tryPrograms tries n programs, of which some must end.
func tryPrograms(t *testing.T, n, least int, try func(t *testing.T, seed uint64) (ended bool)) {
	t.Helper()
	first, ended := seeds.Fixed(t), 0
	for i := range n {
		if try(t, first+uint64(i)) {
			ended++
		}
	}
	if ended < least {
		t.Errorf("only %d of %d programs ended", ended, n)
	}
}
