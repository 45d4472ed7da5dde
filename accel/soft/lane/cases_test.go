package lane

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pegasus/accel/ptx"
)

// smallCase is a kernel of a few instructions, with what its threads must have
// in some registers at the end, and what must be in memory.
type smallCase struct {
	line    int
	name    string
	threads int
	body    []string
	memory  []string // 32-bit words, before
	after   []string
	results map[string][]string // by register: one value for all threads, or one for each
}

// readCases reads testdata/cases.txt, which explains itself.
func readCases(t *testing.T) (list []*smallCase) {
	data, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	var c *smallCase
	for i, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0][0] == '#':
		case words[0] == "==":
			c = &smallCase{line: i + 1, name: strings.Join(words[1:], " "), threads: 1, results: map[string][]string{}}
			list = append(list, c)
		case words[0] == "threads":
			c.threads, err = strconv.Atoi(words[1])
		case words[0] == "memory":
			c.memory = words[1:]
		case words[0] == "=" && words[1] == "memory":
			c.after = words[2:]
		case words[0] == "=":
			c.results[words[1]] = words[2:]
		default:
			c.body = append(c.body, strings.TrimSpace(line))
		}
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
	}
	return list
}

const memoryWords = 16

func (c *smallCase) kernel() string {
	var b strings.Builder
	b.WriteString(".version 8.6\n.target sm_90\n.address_size 64\n.global .align 16 .b32 word = 7;\n.const .align 16 .b32 fixed[4] = {11, 12, 13, 14};\n")
	b.WriteString(".visible .entry k(.param .u64 out, .param .u64 m, .param .align 16 .b32 many[4])\n{\n")
	b.WriteString(".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %l<8>; .reg .b64 %out, %m; .reg .b32 %t; .reg .pred %store;\n")
	b.WriteString(".shared .align 32 .b8 s[128]; .local .align 32 .b8 own[64];\n")
	b.WriteString("ld.param.u64 %out, [out]; ld.param.u64 %m, [m]; mov.u32 %t, %tid.x; mul.wide.u32 %l7, %t, 8; add.u64 %out, %out, %l7; mov.b64 %l7, 0;\n")
	b.WriteString(strings.Join(c.body, "\n"))
	b.WriteString("\n")
	for i, reg := range c.registers() {
		to := fmt.Sprintf("[%%out+%d]", 8*i*c.threads)
		switch reg[1] {
		case 'p':
			fmt.Fprintf(&b, "selp.b32 %%t, 1, 0, %s; st.global.b32 %s, %%t;\n", reg, to)
		default:
			fmt.Fprintf(&b, "st.global.%s %s, %s;\n", registerTypes[reg[1]], to, reg)
		}
	}
	b.WriteString("ret;\n}\n")
	return b.String()
}

func (c *smallCase) registers() []string {
	var list []string
	for r := range c.results {
		list = append(list, r)
	}
	slices.Sort(list)
	return list
}

func hexadecimal(t *testing.T, c *smallCase, s string) uint64 {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		t.Fatalf("case of line %d: %v", c.line, err)
	}
	return v
}

func (c *smallCase) run(t *testing.T) {
	d := newDevice(t)
	m, err := ptx.Parse([]byte(c.kernel()))
	if err != nil {
		t.Fatalf("%v in\n%s", err, c.kernel())
	}
	im, err := Load(m, d.alloc)
	if err != nil {
		t.Fatal(err)
	}
	k, err := im.Kernel("k")
	if err != nil {
		t.Fatalf("%v in\n%s", err, c.kernel())
	}
	out, memory := d.buffer(8*c.threads*max(len(c.results), 1)), d.buffer(4*memoryWords)
	for i, w := range c.memory {
		memory.setWord(i, uint32(hexadecimal(t, c, w)))
	}
	l := d.launch(k, x(1), x(c.threads), out, memory)
	for i := range 4 {
		l.Params = binary.LittleEndian.AppendUint32(l.Params, uint32(i+1))
	}
	if f := k.Run(l); f != nil {
		t.Fatalf("line %d: %v", c.line, f)
	}
	for i, reg := range c.registers() {
		want := c.results[reg]
		for l := range c.threads {
			w := hexadecimal(t, c, want[min(l, len(want)-1)])
			if got := out.long(i*c.threads + l); got != w {
				t.Errorf("line %d: thread %d has %#x in %s, not %#x", c.line, l, got, reg, w)
			}
		}
	}
	for i, w := range c.after {
		if got, want := memory.word(i), uint32(hexadecimal(t, c, w)); got != want {
			t.Errorf("line %d: word %d of memory is %#x, not %#x", c.line, i, got, want)
		}
	}
}

func TestCases(t *testing.T) {
	for _, c := range readCases(t) {
		t.Run(c.name, c.run)
	}
}

// fits says whether an instruction, given as opcode, modifiers and types, has
// the form of a line of the table.
func fits(line *ptx.Line, words []string) bool {
	if !slices.Contains(line.Ops, words[0]) {
		return false
	}
	used := make([]bool, len(line.Mods))
	types := 0
	for _, w := range words[1:] {
		i := slices.IndexFunc(line.Mods, func(c ptx.Choice) bool { return slices.Contains(c.Names, w) })
		switch {
		case types < len(line.Types) && slices.Contains(line.Types[types], w):
			types++
		case i < 0 || used[i]:
			return false
		default:
			used[i] = true
		}
	}
	for i, c := range line.Mods {
		if !c.Optional && !used[i] {
			return false
		}
	}
	return types == len(line.Types)
}

// instructionsOf are the instructions of a text, without their operands.
func instructionsOf(text string) (list [][]string) {
	for _, s := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' || r == '{' || r == '}' }) {
		words := strings.Fields(s)
		for len(words) > 0 && (words[0][0] == '@' || strings.HasSuffix(words[0], ":")) {
			words = words[1:]
		}
		if len(words) > 0 {
			list = append(list, strings.Split(words[0], "."))
		}
	}
	return list
}

// Every form of the table has a case.
func TestEveryFormHasACase(t *testing.T) {
	data, err := os.ReadFile("testdata/forms.txt")
	if err != nil {
		t.Fatal(err)
	}
	have := instructionsOf(string(data))
	for _, c := range readCases(t) {
		have = append(have, instructionsOf(strings.Join(c.body, "\n"))...)
	}
	elsewhere := strings.Fields("call trap tex tld4 txq suq suld sust sured") // have tests of their own
	for _, line := range ptx.Lines() {
		for _, op := range line.Ops {
			if slices.Contains(elsewhere, op) {
				continue
			}
			one := line
			one.Ops = []string{op}
			if !slices.ContainsFunc(have, func(words []string) bool { return fits(&one, words) }) {
				t.Errorf("no case of %s %v %v %s", op, line.Mods, line.Types, line.Operands)
			}
		}
	}
}
