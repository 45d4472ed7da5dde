// Package programs generates random PTX programs with results that are defined to the bit: without races, endless
// loops, and behavior that PTX leaves open. Tests run them on the engine and on an independent interpreter.
package programs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// Program is a random kernel "k", in pieces that can be omitted.
type Program struct {
	Threads int // of a block
	Blocks  int
	singles [3]int // registers that are written once: of 16, 32 and 64 bits
	conds   int    // predicates of conditions
	nodes   []node
}

// Style selects the spelling of a program. All styles give the same result.
type Style struct {
	Loaded bool // arguments come from memory, not from parameters
	Guards bool // conditions are guards, not branches
}

// node is a piece of a program.
type node struct {
	text string // instructions, ";" between them
	// cond, if any, is a predicate that body doesn't write.
	cond string
	body []node
}

// The uses of a program's memory, by thread.
const (
	Stride   = 1024 // bytes of a thread
	scratch  = 128  // read and written
	output   = 256
	AccBytes = 8 * len(accumulators) // of the words that all threads update
)

// maxThreads is the number of threads with a place in shared memory.
const maxThreads = 320

// maxLoops bounds the backward jumps of a program.
const maxLoops = 16

// Arguments of the kernel after the two addresses: the initial values of the single registers.
const (
	Args16, Args32, Args64 = 2, 3, 3
)

// New generates a program.
func New(r *rand.Rand) *Program {
	w := &writer{Rand: r, p: &Program{}}
	w.p.Threads = oneOf(w, 1, 8, 31, 32, 32, 33, 64, 64, 70, 96, 128, 200, 300)
	w.p.Blocks = oneOf(w, 1, 1, 2, 3)
	w.exits = w.IntN(4) == 0
	w.preamble()
	for range 1 + w.IntN(4) {
		w.segment(1 + w.IntN(14))
		w.add(w.meeting())
	}
	return w.p
}

type writer struct {
	*rand.Rand
	p      *Program
	exits  bool // some threads may end early
	labels int
	loops  int
	first  bool // single registers are being written
}

func oneOf[T any](w *writer, list ...T) T { return list[w.IntN(len(list))] }

func (w *writer) add(text string) { w.p.nodes = append(w.p.nodes, node{text: text}) }

var special = []uint64{0, 1, 2, 31, 32, 33, 63, 64, 65, 255, 0x7f, 0x80, 0x7fff, 0x8000, 0xff80, 0xffff, 0x10000, 1 << 31, 1 << 63, 0x7fffffff,
	math.MaxUint32, math.MaxUint64, math.MaxInt64, 0xff800000ff, 0x0f0f3210,
	// f16 and bf16
	0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e01, 0x7c01, 0x0001, 0x8001, 0x03ff, 0x0400, 0x7bff, 0x3800, 0x4100, 0x7bff3c00, 0x04008400, 0x7f807f81, 0xff800001, 0x00800080, 0x3f803f00, 0x7f7f7f7f, 0x03ff83ff, 0x80000000,
	// f32
	0x3f800000, 0xbf800000, 0x7f800000, 0xff800000, 0x7fc00001, 0xffc00000, 0x7f800001, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x80800000, 0x7f7fffff, 0x4f000000, 0xcf000000, 0x4f800000, 0x5f000000, 0xdf000000,
	0x47800000, 0x47000000, 0x3f000000, 0x3fc00000, 0x40200000, 0xbfc00000, 0x33800000, 0x3f7fffff, 0x43000000, 0xc3000000, 0x437f8000, 0x4b000001,
	// f64
	0x3ff0000000000000, 0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000, 0x7ff8000000000001, 0x7ff0000000000001, 0x000fffffffffffff, 0x0010000000000000, 0x8000000000000001, 0x7fefffffffffffff,
	0x41e0000000000000, 0x41dfffffffc00000, 0x43e0000000000000, 0x43f0000000000000, 0xc3e0000000000000, 0x3fe0000000000000, 0x4004000000000000, 0x36a0000000000000, 0x3690000000000000, 0x3690000000000001, 0x380fffffffffffff, 0x380fffffe0000000, 0x47efffffefffffff, 0x47effffff0000000, 0x3cb0000000000000, 0x4330000000000001}

// bits returns the bits of an interesting value.
func (w *writer) bits() uint64 {
	switch w.IntN(6) {
	case 0:
		return w.Uint64()
	case 1:
		return floats(w.NormFloat64(), w.NormFloat64()*1e9)
	case 2:
		return math.Float64bits(w.NormFloat64() * math.Ldexp(1, w.IntN(140)-70))
	case 3:
		return floats(math.Ldexp(w.NormFloat64(), w.IntN(280)-150), float64(w.IntN(64)-20))
	}
	return special[w.IntN(len(special))]
}

func floats(low, high float64) uint64 {
	return uint64(math.Float32bits(float32(low))) | uint64(math.Float32bits(float32(high)))<<32
}

// Values returns n random bytes that are interesting as numbers.
func Values(r *rand.Rand, n int) []byte {
	w, mem := &writer{Rand: r}, make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := w.bits()
		for k := range min(8, n-i) {
			mem[i+k] = byte(v >> (8 * k))
		}
	}
	return mem
}

// register returns one that is read: a common one or, sometimes, a single one.
func (w *writer) register(letter rune) string {
	k := strings.IndexRune("hrl", letter)
	if n := w.p.singles[k]; n > 0 && (w.first || w.IntN(4) == 0) {
		return fmt.Sprintf("%%s%c%d", letter, w.IntN(n))
	}
	return fmt.Sprintf("%%%c%d", letter, w.IntN(8))
}

// target returns one that is written.
func (w *writer) target(letter rune) string {
	if w.first {
		k := strings.IndexRune("hrl", letter)
		return fmt.Sprintf("%%s%c%d", letter, w.p.singles[k])
	}
	return fmt.Sprintf("%%%c%d", letter, w.IntN(8))
}

func (w *writer) predicate() string { return fmt.Sprintf("%%p%d", w.IntN(4)) }

// preamble computes registers that are written once, from arguments: an engine may detect that they are the same for
// all threads.
func (w *writer) preamble() {
	w.p.singles = [3]int{Args16, Args32, Args64}
	w.first = true
	for range w.IntN(10) {
		text := w.computed()
		opcode, rest, _ := strings.Cut(text, " ")
		if strings.Contains(rest, "%p") || strings.HasPrefix(opcode, "vote") {
			continue // predicates are written again and again
		}
		w.add(text)
		for k, letter := range "hrl" {
			if strings.HasPrefix(rest, "%s"+string(letter)) {
				w.p.singles[k]++
			}
		}
	}
	w.first = false
}

// computed generates a piece that a thread executes alone on a register.
func (w *writer) computed() string {
	if w.IntN(4) == 0 {
		return w.conversion()
	}
	return w.plain()
}

// segment adds n pieces, between which threads may jump.
func (w *writer) segment(n int) {
	first := w.labels
	w.labels += n + 1
	for i := range n {
		w.add(fmt.Sprintf("L%d:", first+i))
		switch w.IntN(10) {
		case 0:
			w.add(fmt.Sprintf("@%s%s bra L%d", oneOf(w, "", "!"), w.predicate(), first+i+1+w.IntN(n-i)))
		case 1:
			w.loop(first + w.IntN(i+1))
		case 2, 3:
			w.condition()
		default:
			w.add(w.anything())
		}
		if w.exits && w.IntN(20) == 0 {
			w.add("@" + w.predicate() + oneOf(w, " exit", " ret"))
		}
	}
	w.add(fmt.Sprintf("L%d:", first+n))
}

// loop jumps back a few times.
func (w *writer) loop(label int) {
	if w.loops == maxLoops {
		return
	}
	n := w.loops
	w.loops++
	limit := fmt.Sprint(1 + w.IntN(4))
	text := ""
	if w.IntN(2) == 0 {
		text, limit = "and.b32 %m, "+w.register('r')+", 3; ", "%m"
	}
	w.add(text + fmt.Sprintf("add.u32 %%n%d, %%n%d, 1; setp.lt.u32 %%q, %%n%d, %s; @%%q bra L%d", n, n, n, limit, label))
}

// condition adds pieces for the threads for which a predicate holds.
func (w *writer) condition() {
	c := node{cond: fmt.Sprintf("%%c%d", w.p.conds)}
	w.add(fmt.Sprintf("mov.pred %s, %s", c.cond, w.predicate()))
	w.p.conds++
	for range 1 + w.IntN(4) {
		c.body = append(c.body, node{text: w.anything()})
	}
	w.p.nodes = append(w.p.nodes, c)
}

// anything generates a piece that threads can execute at any point.
func (w *writer) anything() string {
	switch w.IntN(16) {
	case 0, 1:
		return w.conversion()
	case 2, 3:
		return w.access()
	case 4:
		return w.atomic()
	case 5:
		return w.warp()
	case 6:
		return w.chain()
	case 7:
		return w.move()
	case 8:
		return w.video()
	}
	return w.plain()
}

// Instructions returns the number of instructions that can be omitted.
func (p *Program) Instructions() int {
	n := 0
	p.each(func(*node) { n++ })
	return n
}

func (p *Program) each(f func(*node)) {
	for i := range p.nodes {
		for k := range p.nodes[i].body {
			f(&p.nodes[i].body[k])
		}
		f(&p.nodes[i])
	}
}

// Without returns the program without pieces first up to end; labels stay.
func (p *Program) Without(first, end int) *Program {
	q := *p
	q.nodes = append([]node(nil), p.nodes...)
	for i := range q.nodes {
		q.nodes[i].body = append([]node(nil), q.nodes[i].body...)
	}
	n := 0
	q.each(func(x *node) {
		if n >= first && n < end && !strings.HasSuffix(x.text, ":") {
			x.text = ""
			if x.cond != "" {
				x.cond, x.body = "", nil
			}
		}
		n++
	})
	return &q
}

// Text returns the program's text.
func (p *Program) Text(s Style) string {
	var b strings.Builder
	p.head(&b, s)
	targets := p.targets()
	for i := range p.nodes {
		n := &p.nodes[i]
		switch {
		case strings.HasSuffix(n.text, ":") && !targets[n.text]:
		case n.cond == "":
			b.WriteString(lineOf(n.text))
		case s.Guards:
			for k := range n.body {
				if t := n.body[k].text; t != "" {
					b.WriteString(lineOf("@" + n.cond + " " + strings.ReplaceAll(t, "; ", "; @"+n.cond+" ")))
				}
			}
		default:
			fmt.Fprintf(&b, "@!%s bra C%d;\n", n.cond, i)
			for k := range n.body {
				b.WriteString(lineOf(n.body[k].text))
			}
			fmt.Fprintf(&b, "C%d:\n", i)
		}
	}
	p.tail(&b)
	return b.String()
}

// targets returns the labels that branches go to.
func (p *Program) targets() map[string]bool {
	set := map[string]bool{}
	for i := range p.nodes {
		if _, label, ok := strings.Cut(p.nodes[i].text, "bra "); ok {
			set[label+":"] = true
		}
	}
	return set
}

func lineOf(text string) string {
	switch {
	case text == "":
		return ""
	case strings.HasSuffix(text, ":"):
		return text + "\n"
	}
	return text + ";\n"
}

func (p *Program) head(b *strings.Builder, s Style) {
	fmt.Fprintf(b, ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 data, .param .u64 acc")
	for i := range Args16 {
		fmt.Fprintf(b, ", .param .u16 h%d", i)
	}
	for i := range Args32 {
		fmt.Fprintf(b, ", .param .u32 r%d", i)
	}
	for i := range Args64 {
		fmt.Fprintf(b, ", .param .u64 l%d", i)
	}
	b.WriteString(")\n{\n.reg .pred %p<4>, %q, %c<64>; .reg .b16 %h<8>, %sh<32>; .reg .b32 %r<8>, %sr<32>, %n<16>, %m, %k, %t, %nt, %s32;\n" +
		".reg .b64 %l<8>, %sl<32>, %in, %at, %acc, %b, %s, %sg, %lg, %x, %xo;\n")
	fmt.Fprintf(b, ".shared .align 16 .b8 s[%d]; .shared .align 8 .b8 x[%d]; .shared .align 8 .b8 sacc[%d]; .local .align 16 .b8 m[64];\n",
		32*maxThreads, 8*maxThreads, AccBytes)
	b.WriteString(`ld.param.u64 %in, [data]; ld.param.u64 %acc, [acc];
mov.u32 %nt, %ntid.x; mov.u32 %m, %ntid.y; mul.lo.u32 %k, %nt, %m; mov.u32 %t, %tid.z; mul.lo.u32 %t, %t, %k;
mov.u32 %m, %tid.y; mad.lo.u32 %t, %m, %nt, %t; mov.u32 %m, %tid.x; add.u32 %t, %t, %m; mov.u32 %m, %ntid.z; mul.lo.u32 %nt, %k, %m;
`)
	fmt.Fprintf(b, "mov.u32 %%m, %%ctaid.x; mad.lo.u32 %%m, %%m, %%nt, %%t; mul.wide.u32 %%at, %%m, %d; add.u64 %%at, %%in, %%at;\n", Stride)
	b.WriteString("mul.wide.u32 %b, %t, 32; mov.u64 %s, s; add.u64 %s, %s, %b; cvta.shared.u64 %sg, %s; cvt.u32.u64 %s32, %s; mov.u64 %lg, m; cvta.local.u64 %lg, %lg;\n" +
		"mul.wide.u32 %b, %t, 8; mov.u64 %x, x; mov.u64 %xo, x; add.u64 %x, %x, %b;\nadd.cc.u32 %m, 0, 0;\n")
	p.arguments(b, s)
	for i := range 8 {
		fmt.Fprintf(b, "ld.global.b64 %%l%d, [%%at+%d]; ld.global.b32 %%r%d, [%%at+%d]; ld.global.b16 %%h%d, [%%at+%d];\n", i, 8*i, i, 64+4*i, i, 96+2*i)
	}
	for i := range 4 {
		fmt.Fprintf(b, "and.b32 %%m, %%r%d, 1; setp.ne.u32 %%p%d, %%m, 0;\n", i, i)
	}
	for i := range 8 {
		fmt.Fprintf(b, "mov.b64 %%b, %d; st.shared.b64 [%%s+%d], %%b; st.local.b64 [m+%d], %%b;\n", 0x0101010101010101*int64(i), 8*(i%4), 8*i)
	}
	for i := range maxLoops {
		fmt.Fprintf(b, "mov.u32 %%n%d, 0; ", i)
	}
	for i := range p.conds {
		fmt.Fprintf(b, "setp.ne.u32 %%c%d, %%t, %%t; ", i)
	}
	b.WriteString("bar.sync 0;\n")
}

// arguments sets the first single registers.
func (p *Program) arguments(b *strings.Builder, s Style) {
	at := 0
	for k, n := range []int{Args16, Args32, Args64} {
		letter, size := "hrl"[k], 2<<k
		for i := range n {
			if s.Loaded {
				fmt.Fprintf(b, "ld.global.b%d %%s%c%d, [%%acc+%d];\n", 8*size, letter, i, AccBytes+at)
			} else {
				fmt.Fprintf(b, "ld.param.b%d %%s%c%d, [%c%d];\n", 8*size, letter, i, letter, i)
			}
			at += 8
		}
	}
}

// tail stores all registers, and the accumulators in shared memory.
func (p *Program) tail(b *strings.Builder) {
	at := output
	store := func(bits int, reg string) {
		fmt.Fprintf(b, "st.global.b%d [%%at+%d], %s;\n", bits, at, reg)
		at += 8
	}
	for i := range 8 {
		store(64, fmt.Sprintf("%%l%d", i))
	}
	for i := range 8 {
		store(32, fmt.Sprintf("%%r%d", i))
		store(16, fmt.Sprintf("%%h%d", i))
	}
	for i := range 4 {
		fmt.Fprintf(b, "selp.b32 %%m, 1, 0, %%p%d; ", i)
		store(32, "%m")
	}
	for k, n := range p.singles {
		for i := range n {
			store(16<<k, fmt.Sprintf("%%s%c%d", "hrl"[k], i))
		}
	}
	b.WriteString("bar.sync 0;\n")
	for i := range accumulators {
		fmt.Fprintf(b, "ld.shared.b64 %%b, [sacc+%d]; ", 8*i)
		store(64, "%b")
	}
	b.WriteString("ret;\n}\n")
}

// Where returns the name of the register or the variable at an offset of a thread's memory.
func (p *Program) Where(offset int) string {
	names := []string{}
	for i := range 8 {
		names = append(names, fmt.Sprintf("%%l%d", i))
	}
	for i := range 8 {
		names = append(names, fmt.Sprintf("%%r%d", i), fmt.Sprintf("%%h%d", i))
	}
	for i := range 4 {
		names = append(names, fmt.Sprintf("%%p%d", i))
	}
	for k, n := range p.singles {
		for i := range n {
			names = append(names, fmt.Sprintf("%%s%c%d", "hrl"[k], i))
		}
	}
	for i := range accumulators {
		names = append(names, fmt.Sprintf("sacc+%d", 8*i))
	}
	if i := (offset - output) / 8; i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("byte %d", offset)
}
