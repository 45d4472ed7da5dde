package lane

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/internal/programs"
	"pegasus/test/seeds"
)

// Random programs of thread indices, loop counters and addresses leave the same memory as an independent interpreter:
// where lanes are at one distance and where not any more, at the ends of registers' ranges, in blocks of any shape,
// when threads part, meet, loop and end.
func TestAffine(t *testing.T) { eachEngine(t, testAffine) }

func testAffine(t *testing.T) {
	seed := seeds.Fixed(t)
	for n := range uint64(arith.Pick(testing.Short(), 400, 15)) {
		tryAffine(t, seed+n)
	}
}

func tryAffine(t *testing.T, seed uint64) {
	t.Helper()
	w := &affineWriter{Rand: rand.New(rand.NewPCG(seed, 7))}
	c := trial{seed, []int{1, 2, 17, 32, 33, 64, 128, 200, 256, 256, 300}[w.IntN(11)], 1 + w.IntN(2)}
	src := w.program()
	data, acc, err := c.expect(src)
	if err != nil {
		t.Fatalf("seed %d: oracle: %v\n%s", seed, err, src)
	}
	for range 2 {
		shape := shapeOf(w.Rand, c.threads)
		if w.IntN(2) == 0 {
			shape = x(c.threads)
		}
		if at, err := c.differs(src, shape, 1, data, acc); err != nil {
			t.Fatalf("seed %d, blocks of %v: thread %d, byte %d: %v\n%s", seed, shape, at/programs.Stride, at%programs.Stride, err, src)
		}
	}
}

// affineWriter writes a program: %r and %l are written again and again.
type affineWriter struct {
	*rand.Rand
	strings.Builder
	labels int
}

const affineRegisters = 6 // of each size

func (w *affineWriter) line(format string, args ...any) {
	fmt.Fprintf(&w.Builder, format+"\n", args...)
}

func (w *affineWriter) of(list ...string) string { return list[w.IntN(len(list))] }

func (w *affineWriter) program() string {
	w.line(".version 7.0 .target sm_70 .address_size 64\n.visible .entry k(.param .u64 data, .param .u64 acc) {")
	w.line(".reg .pred %%p<2>; .reg .b32 %%r<%d>, %%t, %%u, %%c<4>; .reg .b64 %%l<%d>, %%own, %%acc, %%mid, %%sh, %%at; .shared .align 8 .b8 s[4096];", affineRegisters, affineRegisters)
	w.line("ld.param.u64 %%own, [data]; ld.param.u64 %%acc, [acc]; add.u64 %%mid, %%acc, 32; mov.u64 %%sh, s;")
	w.line("mov.u32 %%t, %%tid.z; mov.u32 %%u, %%ntid.y; mul.lo.u32 %%t, %%t, %%u; mov.u32 %%u, %%tid.y; add.u32 %%t, %%t, %%u;")
	w.line("mov.u32 %%u, %%ntid.x; mul.lo.u32 %%t, %%t, %%u; mov.u32 %%u, %%tid.x; add.u32 %%t, %%t, %%u;")
	w.line("mov.u32 %%c0, %%ctaid.x; mov.u32 %%u, %%ntid.x; mov.u32 %%c1, %%ntid.y; mul.lo.u32 %%u, %%u, %%c1; mov.u32 %%c1, %%ntid.z; mul.lo.u32 %%u, %%u, %%c1; mad.lo.u32 %%u, %%c0, %%u, %%t; mad.wide.u32 %%own, %%u, %d, %%own;", programs.Stride)
	for i := range affineRegisters {
		w.line("mov.u32 %%r%d, %s; cvt.%s.%s %%l%d, %s;", i, w.of("%t", "%u", w.number(32)), w.of("u64", "s64"), w.of("u32", "s32"), i, w.of("%t", "%u"))
		w.line("add.u32 %%r%d, %%r%d, %s; add.u64 %%l%d, %%l%d, %s;", i, i, w.number(32), i, i, w.number(64))
	}
	w.body(4+w.IntN(16), 0)
	for i := range affineRegisters {
		w.line("st.global.b32 [%%own+%d], %%r%d; st.global.b64 [%%own+%d], %%l%d;", 4*i, i, 64+8*i, i)
	}
	w.line("ret;\n}")
	return w.String()
}

func (w *affineWriter) number(width int) string {
	n := []int64{0, 1, 2, 3, 4, 8, 31, 64, 255, 1024, -1, -2, -4, -256, 1 << 30, 1<<31 - 1, 1 << 31, 1<<31 - 100, 1<<32 - 1, 1<<32 - 200}[w.IntN(20)]
	if width == 64 {
		n = []int64{n, n << 31, -1 << 63, 1<<63 - 1, -100, 1<<63 - 100, 1 << 40}[w.IntN(7)]
	} else {
		n = int64(uint32(n))
	}
	return fmt.Sprint(n)
}

func (w *affineWriter) r() string { return w.of("%t", fmt.Sprintf("%%r%d", w.IntN(affineRegisters))) }
func (w *affineWriter) l() string { return fmt.Sprintf("%%l%d", w.IntN(affineRegisters)) }

// source is a register or a number.
func (w *affineWriter) source(width int) string {
	switch {
	case w.IntN(3) == 0:
		return w.number(width)
	case width == 64:
		return w.l()
	}
	return w.r()
}

func (w *affineWriter) body(n, depth int) {
	for range n {
		width := 32 << w.IntN(2)
		d, s := fmt.Sprintf("%%r%d", w.IntN(affineRegisters)), w.r()
		if width == 64 {
			d, s = w.l(), w.l()
		}
		switch k := w.IntN(22); {
		case k < 6:
			w.line("%s.%s%d %s, %s, %s;", w.of("add", "sub", "add", "sub", "min", "max"), w.of("u", "s"), width, d, s, w.source(width))
		case k < 8:
			w.line("%s.b%d %s, %s, %s;", w.of("and", "and", "or", "xor"), width, d, s, w.source(width))
		case k < 10:
			w.line("%s%d %s, %s, %d;", w.of("shl.b", "shl.b", "shr.u", "shr.s"), width, d, s, w.IntN(5)*w.IntN(9))
		case k < 11:
			w.line("mul.lo.u%d %s, %s, %s;", width, d, s, w.source(width))
		case k < 12:
			w.line("mad.lo.u%d %s, %s, %s, %s;", width, d, s, w.source(width), w.source(width))
		case k < 13:
			w.line("neg.s%d %s, %s;", width, d, s)
		case k < 15:
			w.line("%s.%s32 %s, %s, %s%s;", w.of("mul.wide", "mul.wide"), w.of("u", "s"), w.l(), w.r(), w.source(32), "")
		case k < 16:
			w.line("mad.wide.%s32 %s, %s, %s, %s;", w.of("u", "s"), w.l(), w.r(), w.source(32), w.source(64))
		case k < 17:
			w.line("cvt.%s %s, %s; cvt.u32.u64 %s, %s;", w.of("u64.u32", "s64.s32"), w.l(), w.r(), w.r2(), w.l())
		case k < 18:
			w.line("mov.b%d %s, %s;", width, d, s)
		case k < 19: // data that all read, and data of a single thread
			w.line("and.b32 %%c3, %s, 15;", w.r())
			switch w.IntN(3) {
			case 0:
				w.line("mad.wide.u32 %%at, %%c3, 4, %%acc; ld.global.u32 %s, [%%at];", w.r2())
			case 1:
				w.line("sub.s32 %%c3, %%c3, 8; mul.wide.s32 %%at, %%c3, 4; add.s64 %%at, %%at, %%mid; ld.global.u32 %s, [%%at]; ld.global.u16 %s, [%%at+2];", w.r2(), w.r2())
			default:
				w.line("mad.wide.s32 %%at, %%c3, 3, %%acc; ld.global.s8 %s, [%%at+1]; mov.u32 %%c3, 7; ld.volatile.global.u8 %s, [%%at];", w.r2(), w.r2())
			}
		case k < 20:
			size := 32 << w.IntN(2)
			v, to := w.r(), w.r2()
			if size == 64 {
				v, to = w.l(), w.l()
			}
			w.line("xor.b32 %%c3, %%t, %d; mad.wide.u32 %%at, %%c3, 8, %%sh; st.shared.b%d [%%at], %s; ld.shared.b%d %s, [%%at];", w.IntN(8), size, v, size, to)
			if w.IntN(2) == 0 {
				w.line("atom.shared.%s.u32 %s, [%%at], %s; ld.shared.u32 %s, [%%at];", w.of("add", "add", "max"), w.r2(), w.source(32), w.r2())
			}
			w.line("st.global.b%d [%%own+128], %s; ld.global.u8 %s, [%%own+129];", size, v, w.r2())
		case k < 21 && depth < 3:
			w.branch(width, s, depth)
		case depth < 2:
			w.loop(depth)
		}
	}
}

// r2 is a register to write.
func (w *affineWriter) r2() string { return fmt.Sprintf("%%r%d", w.IntN(affineRegisters)) }

func (w *affineWriter) compare(width int, s string) {
	w.line("setp.%s.%s%d %%p0, %s, %s;", w.of("eq", "ne", "lt", "le", "gt", "ge"), w.of("u", "s"), width, s, w.source(width))
}

func (w *affineWriter) branch(width int, s string, depth int) {
	w.labels++
	label := w.labels
	w.compare(width, s)
	switch w.IntN(8) {
	case 0:
		w.line("@%%p0 exit;")
	case 1:
		w.line("@%%p0 add.u32 %s, %s, %s;", w.r2(), w.r(), w.source(32))
	case 2:
		w.line("@%%p0 st.global.u32 [%%own+136], %s; selp.b32 %s, %s, %s, %%p0;", w.r(), w.r2(), w.r(), w.source(32))
	default:
		w.line("@%%p0 bra L%d;", label)
		w.body(1+w.IntN(5), depth+1)
		if w.IntN(2) == 0 {
			w.line("bra.uni E%d;\nL%d:", label, label)
			w.body(1+w.IntN(4), depth+1)
			w.line("E%d:", label)
		} else {
			w.line("L%d:", label)
		}
	}
}

// loop counts to a number that is the same for all threads, or not.
func (w *affineWriter) loop(depth int) {
	w.labels++
	label := w.labels
	counter := fmt.Sprintf("%%c%d", 1+depth)
	w.line("mov.u32 %s, %s;", counter, w.of("0", "3", "%t"))
	if w.IntN(2) == 0 {
		w.line("and.b32 %s, %s, 7;", counter, counter)
	} else {
		w.line("min.u32 %s, %s, 5;", counter, counter)
	}
	w.line("B%d:", label)
	w.body(1+w.IntN(5), depth+1)
	w.line("add.u32 %s, %s, %d; setp.lt.u32 %%p1, %s, %d; @%%p1 bra B%d;", counter, counter, 1+w.IntN(3), counter, 4+w.IntN(6), label)
}
