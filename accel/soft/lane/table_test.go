package lane

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/compile"
)

// registerOf names a register of the size of a type.
func registerOf(typ string, i int) string {
	letter := "r"
	switch {
	case typ == "f32x2":
		letter = "l"
	case typ == "e4m3x2" || typ == "e5m2x2":
		letter = "h"
	case strings.HasSuffix(typ, "x2"):
	case strings.HasSuffix(typ, "16"):
		letter = "h"
	case strings.HasSuffix(typ, "64"):
		letter = "l"
	case typ == "pred":
		letter = "p"
	case strings.HasSuffix(typ, "8"):
		letter = "b"
	}
	return fmt.Sprintf("%%%s%d", letter, i)
}

var doubleOf = map[string]string{"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}

// sampleOperand is text for one letter of the form table.
func sampleOperand(op string, letter byte, i int, mods, types []string, merged bool) string {
	first, second := "b32", "b32"
	if len(types) > 0 {
		first = types[0]
	}
	if len(types) > 1 {
		second = types[1]
	}
	if op == "cvt" && letter == 'r' {
		first = second
	}
	switch letter {
	case 'A', 'a', 'V', 'v', 'E':
		return registerOf(first, i)
	case 'R', 'r':
		for n, v := range map[int]string{2: "v2", 4: "v4", 8: "v8"} {
			if slices.Contains(mods, v) {
				return "{" + strings.Repeat(registerOf(first, i)+",", n-1) + registerOf(first, i) + "}"
			}
		}
		return registerOf(first, i)
	case 'B', 'b':
		return registerOf(second, i)
	case 'W', 'w':
		return registerOf(doubleOf[first], i)
	case 'P', 'p', 'Q':
		return registerOf("pred", i)
	case 'D':
		if last := op[len(op)-1]; op != "vmad" && last != '2' && last != '4' && merged {
			return fmt.Sprintf("%%r%d.h1", i)
		}
	case 'M':
		if slices.Contains(mods, "param") && op == "st" {
			return "[passed]"
		}
		if slices.Contains(mods, "param") {
			return "[in]"
		}
		return "[%l0]"
	case 'T':
		return "[%l0, {%r0, %r1, %r2, %r3}]"
	case 'o':
		return "[%l0]"
	case 'O':
		return "%l0"
	case 'h', 's':
		return "%l2"
	case 'k':
		return "%h2"
	case 'g':
		return "{%r0, %r1, %r2, %r3}"
	case 'Y', 'y':
		return fragmentOperand(op, i, mods, types)
	case 'm':
		return "[%r0]"
	case 'n':
		if slices.Contains(mods, "cg") {
			return "16"
		}
		return "4"
	case 'L':
		return "skip"
	case 'x':
		if op == "isspacep" {
			return "%l0"
		}
		return "{%r0, %r1, %r2, %r3}"
	case 'c':
		if op == "lop3" {
			return "0x80"
		}
	}
	return fmt.Sprintf("%%r%d", i)
}

// fragmentOperand is a vector of as many registers as the fragment of a matrix
// has: each thread of a warp has an equal share of the elements.
func fragmentOperand(op string, i int, mods, types []string) string {
	role, typ := "dabc"[i], types[min(i, len(types)-1)]
	switch {
	case slices.Contains(mods, "load"):
		role = mods[1][0]
	case slices.Contains(mods, "store"):
		role = 'd'
	case op == "wmma" && len(types) == 2:
		typ = []string{types[0], "f16", "f16", types[1]}[i]
	}
	elements, half := 0, op == "wmma" && typ == "f16" && (role == 'a' || role == 'b')
	for _, m := range mods {
		var rows, cols, depth int
		if n, _ := fmt.Sscanf(m, "m%dn%dk%d", &rows, &cols, &depth); n == 3 {
			elements = map[byte]int{'a': rows * depth, 'b': depth * cols, 'c': rows * cols, 'd': rows * cols}[role]
			if op == "mma" && m == "m8n8k4" && types[1] == "f16" {
				elements *= 4 // four products
			}
		}
		if n, _ := fmt.Sscanf(m, "x%d", &rows); n == 1 {
			elements = 64 * rows
		}
	}
	letter := byte('r')
	if typ == "f64" {
		letter = 'l'
	}
	n := elements * widths[typ] / 32 / max(32, widths[typ])
	if half {
		n = 8
	}
	return vector(letter, 8, n)
}

// sample is an instruction of a line of the form table.
func sample(line *ptx.Line, op string, mods, types []string, operands string) string {
	words := append([]string{op}, mods...)
	text := strings.ReplaceAll(strings.Join(append(words, types...), "."), "=2", "")
	var args []string
	for i := range len(operands) {
		args = append(args, sampleOperand(op, operands[i], i, mods, types, operands == "Dddc"))
	}
	if op == "brx" {
		args = []string{"%r0", "list"}
	}
	return text + " " + strings.Join(args, ", ") + ";"
}

// accepted returns the reason why the module of one instruction can't be loaded, or nil.
func accepted(instruction string) error {
	m, err := ptx.Parse([]byte(".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .align 32 .b8 in[64])\n{\n" +
		".reg .pred %p<8>; .reg .b8 %b<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .b64 %l<32>; .param .align 32 .b8 passed[64];\nlist: .branchtargets skip, end;\n" +
		instruction + "\nskip: \nend: ret;\n}\n"))
	if err == nil {
		_, err = compile.Kernel(&compile.Layout{}, m.Kernels[0])
	}
	return err
}

// lettersOf are the operands without and with those that are optional.
func lettersOf(operands string) []string {
	var all, few strings.Builder
	for i := range len(operands) {
		optional := i+1 < len(operands) && operands[i+1] == '?'
		if operands[i] != '?' {
			all.WriteByte(operands[i])
			if !optional {
				few.WriteByte(operands[i])
			}
		}
	}
	return slices.Compact([]string{few.String(), all.String()})
}

// instancesOf are modifiers of a line: each alternative once, beside the first of all others.
func instancesOf(line *ptx.Line) (list [][]string) {
	var base []string
	for _, c := range line.Mods {
		if !c.Optional {
			base = append(base, c.Names[0])
		}
	}
	list = append(list, base)
	for _, c := range line.Mods {
		for i, name := range c.Names {
			switch {
			case c.Optional:
				list = append(list, append(slices.Clone(base), name))
			case i > 0:
				with := slices.Clone(base)
				with[slices.Index(with, c.Names[0])] = name
				list = append(list, with)
			}
		}
	}
	return list
}

// combinationsOf are types of a line: each once, beside the first of the other lists.
func combinationsOf(line *ptx.Line) (list [][]string) {
	var base []string
	for _, names := range line.Types {
		base = append(base, names[0])
	}
	list = append(list, base)
	for i, names := range line.Types {
		for _, name := range names[1:] {
			with := slices.Clone(base)
			with[i] = name
			list = append(list, with)
		}
	}
	return list
}

// unsound are combinations of the table that are invalid.
func unsound(mods, types []string) bool {
	return len(types) > 0 && slices.Contains(mods, "v8") && strings.HasSuffix(types[0], "64") ||
		slices.Contains(mods, "nc") && !slices.Contains(mods, "global")
}

// The engine implements every instruction that the parser accepts: every form of the table, with each modifier and each
// type.
func TestTable(t *testing.T) {
	tried := 0
	for _, line := range ptx.Lines() {
		for _, op := range line.Ops {
			if op == "call" {
				continue // has its own tests
			}
			for _, mods := range instancesOf(&line) {
				for _, types := range combinationsOf(&line) {
					for _, operands := range lettersOf(line.Operands) {
						text := sample(&line, op, mods, types, operands)
						if err := accepted(text); err != nil && !unsound(mods, types) {
							t.Errorf("%s %v", text, err)
						}
						tried++
					}
				}
			}
		}
	}
	t.Logf("%d instructions", tried)
}
