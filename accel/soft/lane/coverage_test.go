package lane

import (
	"os"
	"slices"
	"strings"
	"testing"

	"pegasus/accel/ptx"
)

// instructionsOf returns the instructions of a text without their operands: opcode, modifiers and types.
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

// tested are the instructions that tests compare with values that were computed independently of the engine.
func tested(t *testing.T) (list [][]string) {
	var b strings.Builder
	add := func(text string) { b.WriteString("\n" + text) }
	forms, kernels := readCases(t)
	for _, c := range forms {
		add(c.Tested)
	}
	for _, c := range kernels {
		add(c.Tested)
	}
	for _, p := range products() {
		add(p.form)
	}
	for _, c := range wmmaCases {
		add(c.kernel(c.layouts[0], [4]string{}))
	}
	for _, c := range textureForms() {
		add(c.instruction)
	}
	for _, form := range gathers {
		add(form)
	}
	for _, q := range queries() {
		add(q.instruction())
	}
	for _, c := range surfaceLoads() {
		add(c.instruction)
	}
	for _, c := range surfaceStores() {
		add(c.instruction)
	}
	add("trap") // TestFaults
	return instructionsOf(b.String())
}

// fits reports whether an instruction has the form of a line of the table.
func fits(line *ptx.Line, words []string) bool {
	if !slices.Contains(line.Ops, words[0]) {
		return false
	}
	used := make([]bool, len(line.Mods))
	types := 0
	for i, w := range words[1:] {
		if strings.HasPrefix(w, "shared::") { // the same, as a block is a cluster of its own
			if w = "shared"; slices.ContainsFunc(words[1:1+i], func(w string) bool { return strings.HasPrefix(w, "shared::") }) {
				continue
			}
		}
		i := slices.IndexFunc(line.Mods, func(c ptx.Choice) bool { return slices.Contains(c.Names, w) })
		if i < 0 || used[i] { // the second layout
			i = slices.IndexFunc(line.Mods, func(c ptx.Choice) bool { return slices.Contains(c.Names, w+"=2") })
		}
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

// Every form of the table has a case.
func TestEveryFormHasACase(t *testing.T) {
	have := tested(t)
	for _, line := range ptx.Lines() {
		for _, op := range line.Ops {
			one := line
			one.Ops = []string{op}
			if !slices.ContainsFunc(have, func(words []string) bool { return fits(&one, words) }) {
				t.Errorf("no case of %s %v %v %s", op, line.Mods, line.Types, line.Operands)
			}
		}
	}
}

// typeNames are the types of the table.
func typeNames() map[string]bool {
	types := map[string]bool{}
	for _, line := range ptx.Lines() {
		for _, names := range line.Types {
			for _, name := range names {
				types[name] = true
			}
		}
	}
	return types
}

// withoutTypes returns an instruction's opcode and its modifiers in order.
func withoutTypes(words []string, types map[string]bool) string {
	mods := slices.DeleteFunc(slices.Clone(words[1:]), func(w string) bool { return types[w] })
	slices.Sort(mods)
	return strings.Join(append([]string{words[0]}, mods...), ".")
}

// Each of the forms that public modules use has a case.
func TestFormsInUse(t *testing.T) {
	data, err := os.ReadFile("testdata/forms-in-use.txt")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	types := typeNames()
	for _, words := range tested(t) {
		have[withoutTypes(words, types)] = true
	}
	all := 0
	for _, form := range strings.Fields(strings.SplitN(string(data), "\n\n", 2)[1]) {
		all++
		if !have[withoutTypes(strings.Split(form, "."), types)] {
			t.Errorf("no case of %s", form)
		}
	}
	t.Logf("%d forms", all)
}
