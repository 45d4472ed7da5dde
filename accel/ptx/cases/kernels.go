package cases

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// kernel is a case of several instructions while it is read.
type kernel struct {
	line    int
	name    string
	threads int
	module  []string // lines before the kernel
	about   string   // directives of the kernel
	body    []string
	before  []uint32 // memory
	after   []uint32
	results map[string][]uint64 // by register: one value for all threads, or one for each
	open    bool
}

// memoryWords is the size of a kernel's memory, in words.
const memoryWords = 16

// Kernels reads a file of kernels. The file documents its format.
func Kernels(text string) (list []Case, err error) {
	var k *kernel
	end := func() {
		if k != nil {
			list = append(list, k.result())
		}
	}
	for n, line := range lines(text) {
		if name, ok := strings.CutPrefix(line, "== "); ok {
			end()
			k = &kernel{line: n, name: name, threads: 1, results: map[string][]uint64{}}
		} else if k == nil {
			return nil, fmt.Errorf("line %d: no case has begun", n)
		} else if err := k.read(line); err != nil {
			return nil, fmt.Errorf("line %d: %v", n, err)
		}
	}
	end()
	return list, nil
}

// read parses a line of a case.
func (k *kernel) read(line string) (err error) {
	words := strings.Fields(line)
	switch {
	case words[0] == "threads" && len(words) == 2:
		k.threads, err = strconv.Atoi(words[1])
	case words[0] == "open" && len(words) == 1:
		k.open = true
	case words[0] == "module":
		k.module = append(k.module, strings.TrimPrefix(line, "module "))
	case words[0] == "kernel":
		k.about = strings.TrimPrefix(line, "kernel ")
	case words[0] == "memory":
		k.before, err = numbers[uint32](words[1:])
	case words[0] == "=" && len(words) > 2 && words[1] == "memory":
		k.after, err = numbers[uint32](words[2:])
	case words[0] == "=" && len(words) > 2:
		k.results[words[1]], err = numbers[uint64](words[2:])
	default:
		k.body = append(k.body, line)
	}
	return err
}

func numbers[T uint32 | uint64](words []string) (list []T, err error) {
	for _, w := range words {
		v, err := strconv.ParseUint(w, 16, 64)
		if err != nil || uint64(T(v)) != v {
			return nil, fmt.Errorf("%q is no number of that size", w)
		}
		list = append(list, T(v))
	}
	return list, nil
}

func (k *kernel) registers() []string {
	var list []string
	for r := range k.results {
		list = append(list, r)
	}
	slices.Sort(list)
	return list
}

func (k *kernel) text() string {
	var b strings.Builder
	b.WriteString(".global .align 16 .b32 word = 7;\n.const .align 16 .b32 fixed[4] = {11, 12, 13, 14};\n")
	b.WriteString(strings.Join(k.module, "\n"))
	b.WriteString("\n.visible .entry k(.param .u64 out, .param .u64 m, .param .align 16 .b32 many[4]) " + k.about + "\n{\n")
	b.WriteString(".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b64 %l<8>; .reg .b64 %out, %m; .reg .b32 %t; .reg .pred %store;\n")
	b.WriteString(".shared .align 32 .b8 s[128]; .local .align 32 .b8 own[64];\n")
	b.WriteString("ld.param.u64 %out, [out]; ld.param.u64 %m, [m]; mov.u32 %t, %tid.x; mul.wide.u32 %l7, %t, 8; add.u64 %out, %out, %l7; mov.b64 %l7, 0;\n")
	b.WriteString(strings.Join(k.body, "\n"))
	b.WriteString("\n")
	for i, reg := range k.registers() {
		to := fmt.Sprintf("[%%out+%d]", 8*i*k.threads)
		if reg[1] == 'p' {
			fmt.Fprintf(&b, "selp.b32 %%t, 1, 0, %s; st.global.b32 %s, %%t;\n", reg, to)
		} else {
			fmt.Fprintf(&b, "st.global.%s %s, %s;\n", registerTypes[reg[1]], to, reg)
		}
	}
	b.WriteString("ret;\n}\n")
	return b.String()
}

// result returns the parsed case.
func (k *kernel) result() Case {
	var after []uint64
	for _, reg := range k.registers() {
		want := k.results[reg]
		for thread := range k.threads {
			after = append(after, want[min(thread, len(want)-1)])
		}
	}
	memory := make([]uint32, memoryWords)
	copy(memory, k.before)
	return Case{
		Name:    fmt.Sprintf("line %d: %s", k.line, k.name),
		Threads: k.threads,
		Buffers: []Buffer{{make([]byte, max(8*len(after), 8)), longs(after...)}, {words(memory...), words(k.after...)}},
		Values:  words(1, 2, 3, 4),
		Tested:  strings.Join(slices.Concat(k.module, k.body), "\n"),
		text:    k.text(),
		open:    k.open,
	}
}
