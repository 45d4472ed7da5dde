package lane

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

var registerTypes = map[byte]string{'h': "b16", 'r': "b32", 'l': "b64"}

// source is one source of a case: a minus sign or an exclamation mark, the kind
// of register, its bits, a selector. An immediate is of kind '#'.
type source struct {
	sign, selector string
	kind           byte
	bits           uint64
}

func sourceOf(s string) (r source, err error) {
	rest := strings.TrimLeft(s, "-!")
	r.sign, r.kind = s[:len(s)-len(rest)], rest[0]
	digits := strings.TrimLeft(rest, "hrlp:#")
	if dot := strings.IndexByte(digits, '.'); dot >= 0 {
		digits, r.selector = digits[:dot], digits[dot:]
	}
	r.bits, err = strconv.ParseUint(digits, 16, 64)
	return r, err
}

// formKernel writes a kernel that executes one instruction and stores its
// result. Sources are kernel parameters, and so the same for the whole block, or
// are loaded from memory, each thread its own. Odd threads don't take part, if parted.
func formKernel(form, dst string, src []source, loaded, parted bool) string {
	var b strings.Builder
	b.WriteString(".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in")
	for i := range src {
		fmt.Fprintf(&b, ", .param .b64 s%d", i)
	}
	b.WriteString(")\n{\n.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .b32 %t<8>; .reg .b64 %a<4>; .reg .pred %q;\n")
	b.WriteString("ld.param.u64 %a0, [out]; ld.param.u64 %a1, [in]; mov.u32 %t0, %tid.x; mul.wide.u32 %a2, %t0, 8; add.u64 %a0, %a0, %a2;\n")
	b.WriteString("mul.wide.u32 %a2, %t0, 64; add.u64 %a1, %a1, %a2;\n")
	first, second, paired := strings.Cut(dst, "|")
	args := []string{"%" + first[:1] + "7" + first[1:]}
	if paired {
		args[0] += "|%" + second + "7"
	}
	for i, s := range src {
		if s.kind == '#' {
			args = append(args, fmt.Sprintf("%s%#x", s.sign, s.bits))
			continue
		}
		from := fmt.Sprintf("ld.param.%%s %%%%%%c%d, [s%d];\n", i, i)
		if loaded {
			from = fmt.Sprintf("ld.global.%%s %%%%%%c%d, [%%%%a1+%d];\n", i, 8*i)
		}
		if s.kind == 'p' {
			fmt.Fprintf(&b, from, "b32", 't')
			fmt.Fprintf(&b, "setp.ne.u32 %%p%d, %%t%d, 0;\n", i, i)
		} else {
			fmt.Fprintf(&b, from, registerTypes[s.kind], s.kind)
		}
		args = append(args, fmt.Sprintf("%s%%%c%d%s", s.sign, s.kind, i, s.selector))
	}
	if parted {
		b.WriteString("mov.u32 %t0, %tid.x; and.b32 %t0, %t0, 1; setp.ne.u32 %q, %t0, 0; @%q bra skip;\n")
	}
	fmt.Fprintf(&b, "%s %s;\n", form, strings.Join(args, ", "))
	switch {
	case dst == "p":
		b.WriteString("selp.b32 %r7, 1, 0, %p7; st.global.b32 [%a0], %r7;\n")
	case paired:
		b.WriteString("st.global.b32 [%a0], %r7; selp.b32 %r7, 1, 0, %p7; st.global.b32 [%a0+4], %r7;\n")
	default:
		fmt.Fprintf(&b, "st.global.%s [%%a0], %%%s7;\n", registerTypes[dst[0]], dst[:1])
	}
	b.WriteString("skip: ret;\n}\n")
	return b.String()
}

// Every form gives the bits that were worked out by hand, for uniform and for
// varying operands, with all threads and with some.
func TestForms(t *testing.T) {
	f, err := os.Open("testdata/forms.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		line := s.Text()
		left, right, ok := strings.Cut(line, "=")
		if !ok || line[0] == '#' {
			continue
		}
		words := strings.Fields(left)
		low, high, _ := strings.Cut(strings.TrimSpace(right)+"|0", "|")
		want, err := strconv.ParseUint(low, 16, 64)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		if strings.HasPrefix(high, "1") {
			want |= 1 << 32
		}
		for variant := range 4 {
			checkForm(t, n, line, words[0], words[1], words[2:], want, variant&1 != 0, variant&2 != 0)
		}
	}
}

func checkForm(t *testing.T, n int, line, form, dst string, words []string, want uint64, loaded, parted bool) {
	const threads = 40
	d := newDevice(t)
	out, in := d.buffer(8*threads), d.buffer(64*threads)
	args := []any{out, in}
	var src []source
	for i, w := range words {
		s, err := sourceOf(w)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		src = append(src, s)
		args = append(args, s.bits)
		for k := range threads {
			in.setWord(16*k+2*i, uint32(s.bits))
			in.setWord(16*k+2*i+1, uint32(s.bits>>32))
		}
	}
	im := d.load([]byte(formKernel(form, dst, src, loaded, parted)))
	k := d.kernel(im, "k")
	if f := k.Run(d.launch(k, x(1), x(threads), args...)); f != nil {
		t.Errorf("line %d: %s: %v", n, line, f)
		return
	}
	for l := range threads {
		expect := want
		if parted && l%2 == 1 {
			expect = 0
		}
		if got := out.long(l); got != expect {
			t.Errorf("line %d (loaded %v, parted %v, thread %d): %s: got %x", n, loaded, parted, l, line, got)
			return
		}
	}
}
