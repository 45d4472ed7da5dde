package lane

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// runProgram makes a kernel of rounds between barriers, each with loads, arithmetic, stores and additions of which the
// addresses are computed in many ways: progressions, permutations within some lanes, broadcasts, collisions.
func runProgram(r *rand.Rand) []byte {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	var b strings.Builder
	out := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	out(`.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .pred %%p<4>; .reg .b32 %%r<16>; .reg .b64 %%l<8>; .reg .f32 %%f<6>; .reg .b32 %%i<6>; .shared .align 16 .b8 s[8192];
ld.param.u64 %%l0, [out]; mov.u32 %%r0, %%tid.x; mov.u32 %%r1, %%ntid.x; mov.u64 %%l1, s;
`)
	out("mov.u32 %%r2, %%r0;\nI: mul.wide.u32 %%l2, %%r2, 4; add.u64 %%l3, %%l0, %%l2; ld.global.u32 %%r3, [%%l3]; add.u64 %%l3, %%l1, %%l2; st.shared.u32 [%%l3], %%r3;\n" +
		"add.u32 %%r2, %%r2, %%r1; setp.lt.u32 %%p0, %%r2, 2048; @%%p0 bra I; bar.sync 0;\n")
	for i := range 6 {
		out("mov.f32 %%f%d, 0f%08x; mov.u32 %%i%d, %d;\n", i, []uint32{0x3f800000, 0x7fc12345, 0x40490fdb, r.Uint32()}[r.IntN(4)], i, r.IntN(1000))
	}
	out("mov.u32 %%r4, %d; mov.u32 %%r9, %%r0;\nL: add.u32 %%r4, %%r4, -1;\n", 1+r.IntN(4))
	index := func() { // makes an index in %r5
		switch r.IntN(9) {
		case 0:
			out("add.u32 %%r5, %%r9, %d;\n", r.IntN(64))
		case 1: // partners in a butterfly
			h := 1 << r.IntN(9)
			out("and.b32 %%r6, %%r9, %d; sub.u32 %%r5, %%r9, %%r6; shl.b32 %%r5, %%r5, 1; add.u32 %%r5, %%r5, %%r6; add.u32 %%r5, %%r5, %d;\n", h-1, r.IntN(2)*h)
		case 2:
			out("xor.b32 %%r5, %%r9, %d;\n", []int{1, 3, 7, 15, 31, 64, 21}[r.IntN(7)])
		case 3:
			out("shr.u32 %%r5, %%r9, %d;\n", r.IntN(6))
		case 4:
			out("mad.lo.u32 %%r5, %%r9, %d, %d;\n", r.IntN(7), r.IntN(40))
		case 5:
			out("and.b32 %%r5, %%i%d, 511;\n", r.IntN(6))
		case 6:
			out("bfe.u32 %%r5, %%i%d, %d, %d;\n", r.IntN(6), r.IntN(28), r.IntN(10))
		case 7:
			out("sub.u32 %%r5, %d, %%r9;\n", 1000+r.IntN(100))
		default:
			out("and.b32 %%r6, %%r9, %d; add.u32 %%r5, %%r6, %%r4;\n", r.IntN(256))
		}
		switch r.IntN(16) {
		case 0:
			out("and.b32 %%r5, %%r5, %d;\n", 1<<r.IntN(11)-1)
		case 1, 2, 3:
			out("min.u32 %%r5, %%r5, %d;\n", 900+r.IntN(100))
		case 4: // it may be out of bounds
			if r.IntN(8) == 0 {
				return
			}
		}
		out("and.b32 %%r5, %%r5, 1023;\n")
	}
	for range 1 + r.IntN(4) {
		for range 1 + r.IntN(4) {
			index()
			space, base := "shared", "%l1"
			if r.IntN(3) == 0 {
				space, base = "global", "%l0"
			}
			scale := []int{4, 4, 4, 4, 4, 8, 8}[r.IntN(7)]
			if r.IntN(64) == 0 {
				scale = 2
			}
			sign := pick("u", "u", "s")
			out("mul.wide.%s32 %%l2, %%r5, %d; add.u64 %%l2, %%l2, %s;\n", sign, scale, base)
			for range 1 + r.IntN(3) {
				off, kinds := 8*r.IntN(6), 12
				if scale < 8 && r.IntN(64) > 0 {
					kinds = 10
				}
				guard := ""
				if r.IntN(8) == 0 {
					guard = pick("@%p1 ", "@!%p2 ")
				}
				switch r.IntN(kinds) {
				case 0, 1, 2:
					out("%sld.%s.f32 %%f%d, [%%l2+%d];\n", guard, space, r.IntN(6), off)
				case 3, 4, 5:
					out("%sst.%s.f32 [%%l2+%d], %%f%d;\n", guard, space, off, r.IntN(6))
				case 6:
					out("%sld.%s.u32 %%i%d, [%%l2+%d];\n", guard, space, r.IntN(6), off)
				case 7:
					out("%sst.%s.u%s [%%l2+%d], %s;\n", guard, space, pick("8", "16"), off, fmt.Sprintf("%%i%d", r.IntN(6)))
				case 8:
					out("%sred.%s.add.u32 [%%l2+%d], %s;\n", guard, space, off, pick("1", "%r0", "%i2"))
				case 10:
					out("cvt.u64.u32 %%l4, %%i1; %sred.%s.add.u64 [%%l2+%d], %%l4;\n", guard, space, off)
				case 9:
					out("%satom.%s.add.u32 %%i%d, [%%l2+%d], %s;\n", guard, space, r.IntN(6), off, pick("1", "%i3"))
				default:
					out("%sld.%s.u64 %%l5, [%%l2+%d]; st.%s.u64 [%%l2+%d], %%l5;\n", guard, space, off, space, 8*r.IntN(6))
				}
			}
			for range r.IntN(4) {
				d, x, y := r.IntN(6), r.IntN(6), r.IntN(6)
				switch r.IntN(6) {
				case 0:
					out("add.u32 %%i%d, %%i%d, %%i%d;\n", d, x, y)
				case 1:
					out("xor.b32 %%i%d, %%i%d, %%r0;\n", d, x)
				case 2:
					out("setp.lt.u32 %%p%d, %%i%d, %%i%d;\n", 1+r.IntN(2), x, y)
				case 3:
					out("fma.rn.f32 %%f%d, %%f%d, %%f%d, %%f%d;\n", d, x, y, d)
				default:
					out("%s.f32 %%f%d, %%f%d, %%f%d;\n", pick("add", "sub", "mul"), d, x, y)
				}
			}
		}
		switch r.IntN(5) {
		case 0:
			out("bar.sync 0;\n")
		case 1:
			out("setp.lt.u32 %%p3, %%r0, %d; @%%p3 bra B%d; add.f32 %%f1, %%f1, %%f2; add.u32 %%i1, %%i1, 3;\nB%d:\n", 1<<r.IntN(9), b.Len(), b.Len())
		case 2:
			out("add.u32 %%r9, %%r9, %d;\n", r.IntN(300))
		}
	}
	out("%s setp.ne.u32 %%p0, %%r4, 0; @%%p0 bra L;\n", pick("", "bar.sync 0;"))
	out("bar.sync 0; mul.wide.u32 %%l2, %%r0, 80; add.u64 %%l2, %%l2, %%l0;\n")
	for i := range 6 {
		out("st.global.f32 [%%l2+%d], %%f%d; st.global.u32 [%%l2+%d], %%i%d;\n", 32768+4*i, i, 32768+32+4*i, i)
	}
	out("mov.u32 %%r2, %%r0;\nE: mul.wide.u32 %%l2, %%r2, 4; add.u64 %%l3, %%l1, %%l2; ld.shared.u32 %%r3, [%%l3]; add.u64 %%l3, %%l0, %%l2; st.global.u32 [%%l3+16384], %%r3;\n" +
		"add.u32 %%r2, %%r2, %%r1; setp.lt.u32 %%p0, %%r2, 2048; @%%p0 bra E; ret; }\n")
	return []byte(b.String())
}

// tryRun compares the engines for a random program. It reports whether the program ended by itself, without a fault.
func tryRun(t *testing.T, seed uint64) (ended bool) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 3))
	src := runProgram(r)
	threads := []int{16, 33, 64, 128, 200, 256, 256, 300, 512}[r.IntN(9)]
	return compareEngines(t, seed, src, threads)
}

// Runs with loads, stores and additions in any order have the results of the interpreter.
func TestRuns(t *testing.T) {
	needCompiler(t)
	_ = UseEngine(os.Getenv(EngineVariable))
	n := 2000
	if testing.Short() {
		n = 400
	}
	tryPrograms(t, n, n/4, tryRun)
}

// FuzzRuns is TestRuns for any seed.
func FuzzRuns(f *testing.F) {
	if err := UseEngine("compiler"); err != nil {
		f.Skip(err)
	}
	_ = UseEngine(os.Getenv(EngineVariable))
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { tryRun(t, seed) })
}

// Units of a group in which no thread is active access no memory, whatever addresses they had before.
func TestInactiveUnits(t *testing.T) {
	needCompiler(t)
	_ = UseEngine(os.Getenv(EngineVariable))
	src := []byte(`.version 7.0
.target sm_75
.address_size 64
.visible .entry k(.param .u64 out)
{ .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %l<6>; .reg .f32 %f<6>;
ld.param.u64 %l0, [out]; mov.u32 %r0, %tid.x; mov.f32 %f1, 0f3f800000; mov.f32 %f2, %f1;
shr.u32 %r5, %r0, 4; mul.lo.u32 %r5, %r5, 5333; mul.wide.u32 %l1, %r5, 4; add.u64 %l1, %l1, %l0;
ld.global.f32 %f3, [%l1]; add.f32 %f1, %f1, %f3; mul.f32 %f1, %f1, %f1;
setp.ge.u32 %p1, %r0, 33; @%p1 bra E;
xor.b32 %r6, %r0, 1; mul.wide.u32 %l2, %r6, 4; add.u64 %l3, %l0, 60000; add.u64 %l2, %l2, %l3;
ld.global.f32 %f4, [%l2]; add.f32 %f2, %f2, %f4; mul.f32 %f2, %f2, %f1;
E: mul.wide.u32 %l4, %r0, 8; add.u64 %l4, %l4, %l0; st.global.f32 [%l4], %f1; st.global.f32 [%l4+4], %f2; ret; }
`)
	want, got := runOn(t, src, false, 64), runOn(t, src, true, 64)
	if got.fault != want.fault || !bytes.Equal(got.memory, want.memory) {
		t.Fatalf("fault %d with the compiler, %d with the interpreter; the memory is the same: %v", got.fault, want.fault, bytes.Equal(got.memory, want.memory))
	}
}
