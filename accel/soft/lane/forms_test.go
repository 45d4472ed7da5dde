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

// formKernel writes a kernel that executes one instruction and stores its
// result. Sources are kernel parameters, and so the same for the whole block, or
// are loaded from memory, each thread its own. Odd threads don't take part, if parted.
func formKernel(form string, dst byte, src []string, loaded, parted bool) string {
	var b strings.Builder
	b.WriteString(".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in")
	for i := range src {
		fmt.Fprintf(&b, ", .param .b64 s%d", i)
	}
	b.WriteString(")\n{\n.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %l<8>; .reg .b32 %t<4>; .reg .b64 %a<4>; .reg .pred %q;\n")
	b.WriteString("ld.param.u64 %a0, [out]; ld.param.u64 %a1, [in]; mov.u32 %t0, %tid.x; mul.wide.u32 %a2, %t0, 8; add.u64 %a0, %a0, %a2;\n")
	b.WriteString("mul.wide.u32 %a2, %t0, 64; add.u64 %a1, %a1, %a2;\n")
	args := []string{"%" + string(dst) + "7"}
	for i, s := range src {
		if s[0] == '#' {
			args = append(args, "0x"+s[1:])
			continue
		}
		from := fmt.Sprintf("ld.param.%%s %%%%%%c%d, [s%d];\n", i, i)
		if loaded {
			from = fmt.Sprintf("ld.global.%%s %%%%%%c%d, [%%%%a1+%d];\n", i, 8*i)
		}
		if s[0] == 'p' {
			fmt.Fprintf(&b, from, "b32", 't')
			fmt.Fprintf(&b, "setp.ne.u32 %%p%d, %%t%d, 0;\n", i, i)
		} else {
			fmt.Fprintf(&b, from, registerTypes[s[0]], s[0])
		}
		args = append(args, fmt.Sprintf("%%%c%d", s[0], i))
	}
	if parted {
		b.WriteString("mov.u32 %t0, %tid.x; and.b32 %t0, %t0, 1; setp.ne.u32 %q, %t0, 0; @%q bra skip;\n")
	}
	fmt.Fprintf(&b, "%s %s;\n", form, strings.Join(args, ", "))
	switch dst {
	case 'p':
		b.WriteString("selp.b32 %r7, 1, 0, %p7; st.global.b32 [%a0], %r7;\n")
	default:
		fmt.Fprintf(&b, "st.global.%s [%%a0], %%%c7;\n", registerTypes[dst], dst)
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
		want, err := strconv.ParseUint(strings.TrimSpace(right), 16, 64)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		for variant := range 4 {
			checkForm(t, n, line, words[0], words[1][0], words[2:], want, variant&1 != 0, variant&2 != 0)
		}
	}
}

func checkForm(t *testing.T, n int, line, form string, dst byte, src []string, want uint64, loaded, parted bool) {
	const threads = 40
	d := newDevice(t)
	out, in := d.buffer(8*threads), d.buffer(64*threads)
	args := []any{out, in}
	for i, s := range src {
		v, err := strconv.ParseUint(strings.TrimLeft(s, "hrlp:#"), 16, 64)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		args = append(args, v)
		for k := range threads {
			in.setWord(16*k+2*i, uint32(v))
			in.setWord(16*k+2*i+1, uint32(v>>32))
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
