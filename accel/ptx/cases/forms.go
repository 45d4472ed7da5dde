package cases

import (
	"fmt"
	"strconv"
	"strings"
)

// Source is one source of a form: a minus sign or an exclamation mark, the kind
// of register, its bits, a selector. An immediate is of kind '#'.
type Source struct {
	Sign, Selector string
	Kind           byte
	Bits           uint64
}

func sourceOf(s string) (r Source, err error) {
	rest := strings.TrimLeft(s, "-!")
	if rest == "" {
		return r, fmt.Errorf("no source %q", s)
	}
	r.Sign, r.Kind = s[:len(s)-len(rest)], rest[0]
	digits := strings.TrimLeft(rest, "hrlp:#")
	if dot := strings.IndexByte(digits, '.'); dot >= 0 {
		digits, r.Selector = digits[:dot], digits[dot:]
	}
	r.Bits, err = strconv.ParseUint(digits, 16, 64)
	return r, err
}

// Form is an instruction with its sources and its result.
type Form struct {
	Instruction, Destination string
	Sources                  []Source
	Want                     uint64 // the bits of the result; bit 32 is that of a predicate beside it
	Name                     string // for messages
	open                     bool
}

// formOf parses "instruction destination sources = result", with an optional "open" at the end.
func formOf(line string) (f Form, err error) {
	left, right, ok := strings.Cut(line, "=")
	words := strings.Fields(left)
	if !ok || len(words) < 2 {
		return f, fmt.Errorf("%q is not a form", line)
	}
	f.Instruction, f.Destination = words[0], words[1]
	for _, w := range words[2:] {
		s, err := sourceOf(w)
		if err != nil {
			return f, err
		}
		f.Sources = append(f.Sources, s)
	}
	right, f.open = strings.CutSuffix(strings.TrimSpace(right), "open")
	low, high, _ := strings.Cut(strings.TrimSpace(right), "|")
	f.Want, err = strconv.ParseUint(low, 16, 64)
	if strings.HasPrefix(high, "1") {
		f.Want |= 1 << 32
	}
	return f, err
}

// kernel returns a kernel that executes the instruction and stores its result. Sources are kernel parameters, and so
// the same for the whole block, or are loaded from memory, each thread its own. Odd threads don't take part, if parted.
func (f *Form) kernel(loaded, parted bool) string {
	var b strings.Builder
	b.WriteString(".visible .entry k(.param .u64 out, .param .u64 in")
	for i := range f.Sources {
		fmt.Fprintf(&b, ", .param .b64 s%d", i)
	}
	b.WriteString(")\n{\n.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .b32 %t<8>; .reg .b64 %a<4>; .reg .pred %q;\n")
	b.WriteString("ld.param.u64 %a0, [out]; ld.param.u64 %a1, [in]; mov.u32 %t0, %tid.x; mul.wide.u32 %a2, %t0, 8; add.u64 %a0, %a0, %a2;\n")
	b.WriteString("mul.wide.u32 %a2, %t0, 64; add.u64 %a1, %a1, %a2;\n")
	first, second, paired := strings.Cut(f.Destination, "|")
	args := []string{"%" + first[:1] + "7" + first[1:]}
	if paired {
		args[0] += "|%" + second + "7"
	}
	for i, s := range f.Sources {
		args = append(args, s.operand(&b, i, loaded))
	}
	if parted {
		b.WriteString("mov.u32 %t0, %tid.x; and.b32 %t0, %t0, 1; setp.ne.u32 %q, %t0, 0; @%q bra skip;\n")
	}
	fmt.Fprintf(&b, "%s %s;\n", f.Instruction, strings.Join(args, ", "))
	switch {
	case f.Destination == "p":
		b.WriteString("selp.b32 %r7, 1, 0, %p7; st.global.b32 [%a0], %r7;\n")
	case paired:
		b.WriteString("st.global.b32 [%a0], %r7; selp.b32 %r7, 1, 0, %p7; st.global.b32 [%a0+4], %r7;\n")
	default:
		fmt.Fprintf(&b, "st.global.%s [%%a0], %%%s7;\n", registerTypes[f.Destination[0]], f.Destination[:1])
	}
	b.WriteString("skip: ret;\n}\n")
	return b.String()
}

// operand writes the load of source i, and returns its name in the instruction.
func (s *Source) operand(b *strings.Builder, i int, loaded bool) string {
	if s.Kind == '#' {
		return fmt.Sprintf("%s%#x", s.Sign, s.Bits)
	}
	letter, typ := s.Kind, registerTypes[s.Kind]
	if s.Kind == 'p' {
		letter, typ = 't', "b32"
	}
	if loaded {
		fmt.Fprintf(b, "ld.global.%s %%%c%d, [%%a1+%d];\n", typ, letter, i, 8*i)
	} else {
		fmt.Fprintf(b, "ld.param.%s %%%c%d, [s%d];\n", typ, letter, i, i)
	}
	if s.Kind == 'p' {
		fmt.Fprintf(b, "setp.ne.u32 %%p%d, %%t%d, 0;\n", i, i)
	}
	return fmt.Sprintf("%s%%%c%d%s", s.Sign, s.Kind, i, s.Selector)
}

// formThreads is the number of threads of a case: more than a warp.
const formThreads = 40

// variant returns a form's case in which each thread loads the sources, or the sources are parameters, and that all
// threads execute, or every other one.
func (f *Form) variant(loaded, parted bool) Case {
	c := Case{Name: fmt.Sprintf("%s (loaded %v, parted %v)", f.Name, loaded, parted), Threads: formThreads, Tested: f.Instruction, text: f.kernel(loaded, parted), open: f.open}
	in := make([]uint64, 8*formThreads)
	for i, s := range f.Sources {
		c.Values = append(c.Values, longs(s.Bits)...)
		for k := range formThreads {
			in[8*k+i] = s.Bits
		}
	}
	after := make([]uint64, formThreads)
	for k := range after {
		if !parted || k%2 == 0 {
			after[k] = f.Want
		}
	}
	c.Buffers = []Buffer{{make([]byte, 8*formThreads), longs(after...)}, {longs(in...), nil}}
	return c
}

// ReadForms reads a file of single instructions. The file documents its format.
func ReadForms(text string) (list []Form, err error) {
	for n, line := range lines(text) {
		f, err := formOf(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %v", n, err)
		}
		f.Name = fmt.Sprintf("line %d: %s", n, line)
		list = append(list, f)
	}
	return list, nil
}

// Forms makes four cases of each form: with uniform and with varying operands,
// with all threads and with some.
func Forms(text string) (list []Case, err error) {
	forms, err := ReadForms(text)
	for i := range forms {
		for v := range 4 {
			list = append(list, forms[i].variant(v&1 != 0, v&2 != 0))
		}
	}
	return list, err
}
