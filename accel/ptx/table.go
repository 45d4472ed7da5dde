package ptx

import "strings"

//go:generate go run ./internal/gentable

// Line is a line of the form table, for programs that list or test the forms.
type Line struct {
	Ops      []string
	Mods     []Choice
	Types    [][]string
	Operands string // letters; none for an instruction without operands
}

// Choice is a modifier, or a set of alternatives.
type Choice struct {
	Names    []string
	Optional bool
}

// Lines returns the forms that a module may use.
func Lines() (list []Line) {
	for _, text := range strings.Split(formText+matrixText+asyncText, "\n") {
		col := strings.Split(text, "|")
		if len(col) < 4 {
			continue
		}
		l := Line{Ops: strings.Fields(col[0]), Operands: strings.Trim(col[3], " -")}
		for _, m := range strings.Fields(col[1]) {
			name, optional := strings.CutSuffix(m, "?")
			l.Mods = append(l.Mods, Choice{strings.Split(name, "/"), optional})
		}
		for _, t := range strings.Split(col[2], ":") {
			if names := strings.Fields(t); len(names) > 0 {
				l.Types = append(l.Types, names)
			}
		}
		list = append(list, l)
	}
	return list
}
