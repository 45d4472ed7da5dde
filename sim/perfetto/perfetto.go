// Package perfetto writes timelines for people: lines in groups, with slices of time on them, in the format
// of Perfetto (ui.perfetto.dev) and chrome://tracing.
//
// Callers: the simulator and the pegasus command. The package is pure.
//
// Trust boundary: none.
package perfetto

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"
)

// Trace is a timeline.
type Trace struct {
	groups []string
	lines  []line
	index  map[line]int
	all    []Slice
	last   map[int]int // line to its last slice
}

type line struct {
	group int
	name  string
}

// Slice is a period on a line.
type Slice struct {
	Group    int
	Line     string
	Name     string
	From, To int64 // ns
	Args     map[string]any
}

// New returns an empty Trace with groups of lines, in display order.
func New(groups ...string) *Trace {
	return &Trace{groups: groups, index: map[line]int{}, last: map[int]int{}}
}

// Add adds a slice.
func (t *Trace) Add(s Slice) {
	t.last[t.line(s)] = len(t.all)
	t.all = append(t.all, s)
}

// Continue adds a slice that may extend the last one of its line: if that ended where this begins, they
// become one.
func (t *Trace) Continue(s Slice) {
	if n, any := t.last[t.line(s)]; any && t.all[n].To == s.From && t.all[n].Name == s.Name {
		t.all[n].To = s.To
		return
	}
	t.Add(s)
}

// line returns the number of a slice's line.
func (t *Trace) line(s Slice) int {
	l := line{s.Group, s.Line}
	i, known := t.index[l]
	if !known {
		i = len(t.lines)
		t.index[l] = i
		t.lines = append(t.lines, l)
	}
	return i
}

// Slices returns the slices added so far.
func (t *Trace) Slices() []Slice { return t.all }

type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"` // µs
	For   float64        `json:"dur,omitempty"`
	Group int            `json:"pid"`
	Line  int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// Write writes the trace in Chrome's trace event format. Time begins at zero.
func (t *Trace) Write(w io.Writer, zero int64) error {
	out := &array{out: bufio.NewWriter(w)}
	for g, name := range t.groups {
		out.put(event{Name: "process_name", Phase: "M", Group: g + 1, Args: map[string]any{"name": name}})
		out.put(event{Name: "process_sort_index", Phase: "M", Group: g + 1, Args: map[string]any{"sort_index": g}})
	}
	order := make([]int, len(t.lines))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(t.lines[a].group, t.lines[b].group), cmp.Compare(t.lines[a].name, t.lines[b].name))
	})
	for at, i := range order {
		l := t.lines[i]
		out.put(event{Name: "thread_name", Phase: "M", Group: l.group + 1, Line: i + 1, Args: map[string]any{"name": l.name}})
		out.put(event{Name: "thread_sort_index", Phase: "M", Group: l.group + 1, Line: i + 1, Args: map[string]any{"sort_index": at}})
	}
	for _, s := range t.all {
		out.put(event{Name: s.Name, Phase: "X", At: float64(s.From-zero) / 1e3, For: float64(s.To-s.From) / 1e3,
			Group: s.Group + 1, Line: t.line(s) + 1, Args: s.Args})
	}
	return out.end()
}

// array is events as they are written. After an error it writes nothing more.
type array struct {
	out *bufio.Writer
	n   int
	err error
}

func (a *array) put(e event) {
	text, err := json.Marshal(e)
	if a.err != nil || err != nil {
		a.err = cmp.Or(a.err, err)
		return
	}
	head := ",\n"
	if a.n == 0 {
		head = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
	}
	a.n++
	a.out.WriteString(head)
	a.out.Write(text)
}

func (a *array) end() error {
	if a.n == 0 {
		a.out.WriteString("{\"traceEvents\":[")
	}
	a.out.WriteString("\n]}\n")
	return cmp.Or(a.err, a.out.Flush())
}
