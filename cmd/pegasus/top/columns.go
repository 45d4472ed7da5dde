package top

import (
	"cmp"
	"strconv"
	"strings"

	"pegasus/backend/control"
)

// column is one column of the table of domains.
type column struct {
	head  string
	width int
	left  bool // aligned
	text  func(Row) string
	order func(a, b Row) int // of an ascending column: by name; of figures: the greatest first; nil: no order
}

// historyHead is the head of the column with sparklines, which takes the width that is left.
const historyHead = "HISTORY"

// columns returns the columns in their order on the screen: those that are needed most come first.
func columns(objective func(control.Domain) string) []column {
	all := []column{
		words("DOMAIN", 0, func(r Row) string { return r.Name }),
		figure("SHARE", 7, func(r Row) *float64 { return &r.Share }, percent),
		figure("ENTITLED", 8, func(r Row) *float64 { return some(r.Entitled) }, percent),
		behind(figure("ERROR", 8, func(r Row) *float64 { return r.Error }, signed)),
		figure("WAIT P50", 8, func(r Row) *float64 { return number(r.WaitP50) }, duration),
		figure("WAIT P99", 8, func(r Row) *float64 { return number(r.WaitP99) }, duration),
		figure("CALLS/S", 7, func(r Row) *float64 { return r.Rate }, count),
		{head: historyHead, width: 8, left: true, text: func(Row) string { return "" }},
		figure("MEMORY", 8, func(r Row) *float64 { return number(int64(r.Memory)) }, size),
	}
	if objective != nil {
		all = append(all, words("SLO", 8, func(r Row) string { return objective(r.Domain) }))
	}
	return append(all,
		figure("SWAPPED", 8, func(r Row) *float64 { return number(int64(r.Swapped)) }, size),
		words("STATE", 7, func(r Row) string { return r.State }),
		figure("CREDITS", 7, func(r Row) *float64 { return number(int64(r.Credits)) }, func(v float64) string { return strconv.Itoa(int(v)) }),
		figure("VCPU RUN", 8, func(r Row) *float64 { return r.Run }, func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }),
		figure("STEAL", 7, steal, percent),
		words("ACCELERATOR", 11, func(r Row) string { return orDash(r.Accelerator) }),
	)
}

// words returns a column of text.
func words(head string, width int, text func(Row) string) column {
	return column{head: head, width: width, left: true, text: text,
		order: func(a, b Row) int { return strings.Compare(text(a), text(b)) }}
}

// figure returns a column of a figure, of which nil is unknown.
func figure(head string, width int, value func(Row) *float64, format func(float64) string) column {
	return column{head: head, width: width,
		text: func(r Row) string {
			if v := value(r); v != nil {
				return format(*v)
			}
			return "-"
		},
		order: func(a, b Row) int {
			x, y := value(a), value(b)
			switch {
			case x == nil && y == nil:
				return 0
			case x == nil:
				return 1
			case y == nil:
				return -1
			}
			return cmp.Compare(*y, *x)
		}}
}

// behind orders a column by the least first, unknown figures last.
func behind(c column) column {
	order := c.order
	c.order = func(a, b Row) int {
		if a.Error == nil || b.Error == nil {
			return order(a, b)
		}
		return order(b, a)
	}
	return c
}

func steal(r Row) *float64 {
	if r.VCPUs == 0 {
		return nil
	}
	return &r.Steal
}

// some returns a figure, or nil for 0.
func some(v float64) *float64 {
	if v == 0 {
		return nil
	}
	return &v
}

func number(v int64) *float64 {
	f := float64(v)
	return &f
}

// Table returns the figures of all domains as text: heads, of which those of right-aligned columns begin with '>', and
// a row for each domain, ordered by share.
func (r *Report) Table(objective func(control.Domain) string) (head []string, rows [][]string) {
	var shown []column
	for _, c := range columns(objective) {
		if c.head == historyHead {
			continue
		}
		shown = append(shown, c)
		if c.left {
			head = append(head, c.head)
		} else {
			head = append(head, ">"+c.head)
		}
	}
	for _, d := range arrange(r.Domains, shown[1], false, "") {
		var row []string
		for _, c := range shown {
			row = append(row, clean(c.text(d)))
		}
		rows = append(rows, row)
	}
	return head, rows
}

// AcceleratorTable returns the figures of all accelerators, in the form of Table.
func (r *Report) AcceleratorTable() (head []string, rows [][]string) {
	p := Poll{At: r.At, Accelerators: r.Accelerators}
	for _, d := range r.Domains {
		p.Domains = append(p.Domains, d.Domain)
	}
	for _, a := range r.Accelerators {
		rows = append(rows, []string{clean(a.Name), clean(a.Policy), percent(a.Busy), memory(a.MemoryUsed, a.Memory), clean(orDash(p.turn(a.Name)))})
	}
	return []string{"ACCELERATOR", "POLICY", ">BUSY", ">MEMORY", "TURN"}, rows
}
