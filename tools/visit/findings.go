package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// A program prints its findings as lines of JSON among its other output:
//
//	{"figure": NAME, "value": NUMBER, "unit": UNIT}    a measurement
//	{"answer": NAME, "value": ANYTHING, "within": PART} a computed or queried value; the tolerance of numbers, in parts of the greater
//	{"skip": REASON}                                   it cannot run here
type line struct {
	Figure string
	Answer string
	Skip   string
	Value  json.RawMessage
	Unit   string
	Within float64
}

// findings are the findings of a program, or of two runs of it.
type findings struct {
	Other   string   `json:"other,omitempty"` // how the other run was done
	Figures []figure `json:"figures,omitempty"`
	Answers []answer `json:"answers,omitempty"`
}

type figure struct {
	Name  string   `json:"name"`
	Unit  string   `json:"unit"`
	Value float64  `json:"value"` // on the device, without Pegasus
	Other *float64 `json:"other,omitempty"`
}

type answer struct {
	Name    string          `json:"name"`
	Value   json.RawMessage `json:"value"`
	Within  float64         `json:"within,omitempty"`
	Other   json.RawMessage `json:"other,omitempty"`
	Differs bool            `json:"differs,omitempty"`
}

// read parses the findings in a program's output.
func read(output []byte) (f findings, err error) {
	for text := range bytes.Lines(output) {
		text = bytes.TrimSpace(text)
		if !bytes.HasPrefix(text, []byte("{")) {
			continue
		}
		var l line
		if json.Unmarshal(text, &l) != nil {
			continue // another program's
		}
		switch {
		case l.Skip != "":
			return f, errSkip(l.Skip)
		case l.Figure != "":
			var n float64
			if err := json.Unmarshal(l.Value, &n); err != nil {
				return f, fmt.Errorf("figure %q: %w", l.Figure, err)
			}
			f.Figures = append(f.Figures, figure{Name: l.Figure, Unit: l.Unit, Value: n})
		case l.Answer != "":
			f.Answers = append(f.Answers, answer{Name: l.Answer, Value: l.Value, Within: l.Within})
		}
	}
	return f, nil
}

// byPegasus is the usual way of the second run.
const byPegasus = "by Pegasus"

// beside adds a program's findings of another run. The error names the answers that differ.
func (f findings) beside(other string, g findings) (findings, error) {
	f.Other = other
	for i := range f.Figures {
		at := slices.IndexFunc(g.Figures, func(o figure) bool { return o.Name == f.Figures[i].Name })
		if at >= 0 {
			f.Figures[i].Other = &g.Figures[at].Value
		}
	}
	var wrong []string
	for i := range f.Answers {
		a := &f.Answers[i]
		at := slices.IndexFunc(g.Answers, func(o answer) bool { return o.Name == a.Name })
		if at >= 0 {
			a.Other = g.Answers[at].Value
		}
		if a.Differs = at < 0 || !alike(a.Value, a.Other, a.Within); a.Differs {
			wrong = append(wrong, fmt.Sprintf("%s: %s, and %s %s", a.Name, short(a.Value), other, short(a.Other)))
		}
	}
	if len(f.Answers) != len(g.Answers) && len(wrong) == 0 {
		wrong = append(wrong, fmt.Sprintf("%d answers, and %s %d", len(f.Answers), other, len(g.Answers)))
	}
	if len(wrong) > 0 {
		return f, fmt.Errorf("%s", strings.Join(wrong, "; "))
	}
	return f, nil
}

func short(j json.RawMessage) string {
	if len(j) == 0 {
		return "nothing"
	}
	if len(j) > 80 {
		return string(j[:80]) + "…"
	}
	return string(j)
}

// alike reports whether two values are equal, or numbers, also in lists, within the tolerance.
func alike(a, b json.RawMessage, within float64) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return near(x, y, within)
}

func near(x, y any, within float64) bool {
	switch x := x.(type) {
	case float64:
		y, ok := y.(float64)
		return ok && math.Abs(x-y) <= within*max(math.Abs(x), math.Abs(y))
	case []any:
		y, ok := y.([]any)
		return ok && slices.EqualFunc(x, y, func(a, b any) bool { return near(a, b, within) })
	case map[string]any:
		y, ok := y.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k := range x {
			if _, ok := y[k]; !ok || !near(x[k], y[k], within) {
				return false
			}
		}
		return true
	}
	return x == y
}

// markdown returns the findings as tables.
func (f findings) markdown() string {
	var b strings.Builder
	if len(f.Figures) > 0 {
		f.row(&b, "", "on the device", f.Other, "ratio")
		f.row(&b, "---", "--:", "--:", "--:")
	}
	for _, g := range f.Figures {
		other, ratio := "", ""
		if g.Other != nil {
			other = fmt.Sprintf("%.5g", *g.Other)
			if g.Value != 0 {
				ratio = fmt.Sprintf("%.3g", *g.Other/g.Value)
			}
		}
		f.row(&b, g.Name, fmt.Sprintf("%.5g %s", g.Value, g.Unit), other, ratio)
	}
	if len(f.Figures) > 0 && len(f.Answers) > 0 {
		b.WriteByte('\n')
	}
	if len(f.Answers) > 0 {
		f.row(&b, "", "on the device", f.Other, "")
		f.row(&b, "---", "---", "---", "---")
	}
	for _, a := range f.Answers {
		other := ""
		switch {
		case a.Differs:
			other = "**" + short(a.Other) + "**"
		case a.Other != nil:
			other = "the same"
		}
		f.row(&b, a.Name, string(a.Value), other, "")
	}
	return b.String()
}

// row writes a row of a table: without the columns of a second run, if there was only one.
func (f findings) row(b *strings.Builder, name, value, other, ratio string) {
	cells := []string{name, value}
	if f.Other != "" {
		cells = append(cells, other, ratio)
	}
	for _, c := range cells {
		fmt.Fprintf(b, "| %s ", cell(c))
	}
	b.WriteString("|\n")
}
