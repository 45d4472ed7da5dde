package reference

import (
	"regexp"
	"strconv"
	"strings"
)

// Kernel is a parsed entry.
type Kernel struct {
	code   []inst
	joins  []int
	regs   map[string]int // number of a register
	widths []int          // bits of it
	vars   map[string]variable
	shared int
	local  int
}

type variable struct {
	space  string
	offset int
}

// inst is one instruction. The text of an opcode is split at its dots.
type inst struct {
	text   string
	guard  int // register, or -1
	not    bool
	op     string
	mods   map[string]bool
	types  []typ
	packed bool // types are those of halves of 32 bits
	args   []operand
	target int // of a branch
}

// typ is a type: its letter (u, s, b, f, g for bf16, or p for predicates) and its bits.
type typ struct {
	kind byte
	bits int
}

type operandKind int

const (
	register operandKind = iota
	literal
	special
	symbol
	address
	vector
	sink
)

type operand struct {
	kind  operandKind
	text  string
	reg   int
	pair  int // register, or -1
	not   bool
	minus bool  // of a video instruction
	unit  int   // bits of the part that the selector names, or 0
	parts []int // that it names, the lowest first
	add   int64 // address, symbol: displacement
	base  *operand
	list  []operand
}

var (
	comments  = regexp.MustCompile(`//[^\n]*`)
	entryHead = regexp.MustCompile(`(?s)\.entry\s+[\w$]+\s*\((.*?)\)\s*\{(.*)\}`)
	labelHead = regexp.MustCompile(`^([\w$]+):\s*`)
	typeName  = regexp.MustCompile(`^(u|s|b|f|bf)(1|4|8|16|32|64)(x2)?$`)
	selected  = regexp.MustCompile(`^(%[\w$]+)\.([bh])(\d+)$`)
	arrayName = regexp.MustCompile(`^(.*)\[(\d+)\]$`)
)

func parse(src string) *Kernel {
	m := entryHead.FindStringSubmatch(comments.ReplaceAllString(src, ""))
	if m == nil {
		fail("no entry")
	}
	k := &Kernel{regs: map[string]int{}, vars: map[string]variable{}}
	offset := 0
	for _, p := range strings.Split(m[1], ",") {
		if strings.TrimSpace(p) != "" {
			k.variable(p, &offset)
		}
	}
	labels, branches := map[string]int{}, map[int]string{}
	for _, s := range strings.Split(m[2], ";") {
		s = strings.Join(strings.Fields(s), " ")
		for {
			l := labelHead.FindStringSubmatch(s)
			if l == nil {
				break
			}
			labels[l[1]] = len(k.code)
			s = s[len(l[0]):]
		}
		switch {
		case s == "":
		case strings.HasPrefix(s, ".reg "):
			k.registers(s)
		case strings.HasPrefix(s, ".shared "):
			k.variable(s, &k.shared)
		case strings.HasPrefix(s, ".local "):
			k.variable(s, &k.local)
		default:
			in := k.instruction(s)
			if in.op == "bra" {
				branches[len(k.code)] = in.args[0].text
			}
			k.code = append(k.code, in)
		}
	}
	k.code = append(k.code, k.instruction("exit"))
	for i, l := range branches {
		target, ok := labels[l]
		if !ok {
			fail("no label %s", l)
		}
		k.code[i].target = target
	}
	return k
}

// variable parses ".space [.align n] .type name[[count]]" and places it.
func (k *Kernel) variable(s string, at *int) {
	w := strings.Fields(s)
	v := variable{space: w[0][1:]}
	align := 0
	if w[1] == ".align" {
		align, _ = strconv.Atoi(w[2])
		w = w[2:]
	}
	size := parseType(w[1][1:]).bits / 8
	align = max(align, size)
	name, count := w[2], 1
	if m := arrayName.FindStringSubmatch(name); m != nil {
		name = m[1]
		count, _ = strconv.Atoi(m[2])
	}
	*at = (*at + align - 1) / align * align
	v.offset = *at
	*at += size * count
	k.vars[name] = v
}

// registers parses ".reg .type name, name<count>".
func (k *Kernel) registers(s string) {
	w := strings.SplitN(s, " ", 3)
	bits := 1
	if w[1] != ".pred" {
		bits = parseType(w[1][1:]).bits
	}
	add := func(name string) {
		k.regs[name] = len(k.widths)
		k.widths = append(k.widths, bits)
	}
	for _, name := range strings.Split(w[2], ",") {
		name = strings.TrimSpace(name)
		base, count, many := strings.Cut(strings.TrimSuffix(name, ">"), "<")
		if !many {
			add(name)
			continue
		}
		n, _ := strconv.Atoi(count)
		for i := range n {
			add(base + strconv.Itoa(i))
		}
	}
}

func parseType(s string) typ {
	m := typeName.FindStringSubmatch(s)
	if m == nil {
		fail("no type %q", s)
	}
	bits, _ := strconv.Atoi(m[2])
	if m[1] == "bf" {
		return typ{'g', bits}
	}
	return typ{m[1][0], bits}
}

func (k *Kernel) instruction(s string) inst {
	in := inst{text: s, guard: -1, mods: map[string]bool{}}
	if strings.HasPrefix(s, "@") {
		guard, rest, _ := strings.Cut(s[1:], " ")
		in.not = strings.HasPrefix(guard, "!")
		in.guard = k.register(strings.TrimPrefix(guard, "!"))
		s = rest
	}
	opcode, rest, _ := strings.Cut(s, " ")
	parts := strings.Split(opcode, ".")
	in.op = parts[0]
	for _, m := range parts[1:] {
		switch {
		case m == "pred":
			in.types = append(in.types, typ{'p', 1})
		case typeName.MatchString(m):
			in.types = append(in.types, parseType(m))
			in.packed = in.packed || strings.HasSuffix(m, "x2")
		default:
			in.mods[m] = true
		}
	}
	types, ok := typesOf[in.op]
	for m := range in.mods {
		ok = ok && modifiers[m]
	}
	if !ok || len(in.types) < types {
		unknown(&in)
	}
	for _, a := range split(rest) {
		in.args = append(in.args, k.operand(a))
	}
	return in
}

// typesOf has the implemented instructions, and the number of types that each names.
var typesOf = func() map[string]int {
	m := map[string]int{}
	for n, names := range []string{
		"bra exit ret bar barrier activemask membar fence isspacep",
		"ldmatrix movmatrix ld ldu st atom red cvta mov selp testp setp shfl vote match redux add sub addc subc mul mad madc mul24 mad24 sad div rem min max abs neg " +
			"and or xor not cnot shl shr shf bfe bfi bmsk prmt lop3 popc clz bfind brev szext fns fma rcp sqrt copysign",
		"cvt set slct dp4a dp2a vset vset2 vset4",
		"vadd vsub vabsdiff vmin vmax vshl vshr vmad vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4",
		"mma",
	} {
		for _, name := range strings.Fields(names) {
			m[name] = n
		}
	}
	return m
}()

// modifiers are those that the interpreter implements, or may ignore.
var modifiers = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range strings.Fields(
		"rn rz rm rp rni rzi rmi rpi ftz sat relu satfinite lo hi wide cc uni eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor " +
			"volatile weak relaxed acquire release acq_rel sc cta gpu gl sys global shared const local param to v2 v4 noftz " +
			"sync aligned arrive warp red popc add inc dec min max exch cas up down bfly idx all any ballot " +
			"l r clamp wrap po shr7 shr15 m8n8 x1 x2 x4 trans row col " +
			"m8n8k4 m8n8k16 m8n8k32 m8n8k128 m16n8k4 m16n8k8 m16n8k16 m16n8k32 m16n8k64 m16n8k128 m16n8k256 NaN xorsign abs f4e b4e rc8 ecl ecr rc16 shiftamt finite infinite number notanumber normal subnormal") {
		m[name] = true
	}
	return m
}()

// split splits a list at the commas outside of brackets.
func split(s string) (list []string) {
	depth, first := 0, 0
	for i, c := range s {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',':
			if depth == 0 {
				list = append(list, strings.TrimSpace(s[first:i]))
				first = i + 1
			}
		}
	}
	if s = strings.TrimSpace(s[first:]); s != "" {
		list = append(list, s)
	}
	return list
}

func (k *Kernel) register(name string) int {
	r, ok := k.regs[name]
	if !ok {
		fail("no register %q", name)
	}
	return r
}

func (k *Kernel) operand(s string) operand {
	o := operand{text: s, reg: -1, pair: -1}
	if s == "_" {
		o.kind = sink
		return o
	}
	switch s[0] {
	case '{':
		o.kind = vector
		for _, e := range split(s[1 : len(s)-1]) {
			o.list = append(o.list, k.operand(e))
		}
		return o
	case '[':
		return k.address(s[1 : len(s)-1])
	case '!':
		o = k.operand(s[1:])
		o.not = true
		return o
	}
	if strings.HasPrefix(s, "-%") {
		o = k.operand(s[1:])
		o.minus = true
		return o
	}
	if m := selected.FindStringSubmatch(s); m != nil {
		o.reg, o.unit = k.register(m[1]), map[string]int{"b": 8, "h": 16}[m[2]]
		for i := len(m[3]) - 1; i >= 0; i-- {
			o.parts = append(o.parts, int(m[3][i]-'0'))
		}
		return o
	}
	if c := s[0]; c == '-' || c >= '0' && c <= '9' {
		o.kind = literal
		return o
	}
	name, second, pair := strings.Cut(s, "|")
	if pair && second != "_" {
		o.pair = k.register(second)
	}
	if r, ok := k.regs[name]; ok {
		o.reg = r
		return o
	}
	o.kind = symbol
	if s[0] == '%' {
		o.kind = special
	}
	if name == "_" {
		o.kind = sink
	}
	return o
}

// address parses "base", "base+n", "base+-n" or a number.
func (k *Kernel) address(s string) operand {
	o := operand{kind: address, text: s, reg: -1, pair: -1}
	name, add, plus := strings.Cut(s, "+")
	if plus {
		n, err := strconv.ParseInt(strings.TrimSpace(add), 0, 64)
		if err != nil {
			fail("address %q", s)
		}
		o.add = n
	}
	base := k.operand(strings.TrimSpace(name))
	o.base = &base
	return o
}
