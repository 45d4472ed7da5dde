package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"pegasus/internal/usage"
)

// table is aligned text: columns with a head that begins with '>' are right-aligned. On a terminal it is as wide as that
// at most; elsewhere it is whole.
type table struct {
	head []string
	rows [][]string

	optional []string // heads of columns that a narrow terminal goes without, the least important first
	prose    bool     // the last column has sentences: they go on below
	wide     bool     // whole on terminals, too
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

const columnGap = 2

func (t *table) print(w io.Writer) {
	limit := terminalWidth(w)
	if t.wide {
		limit = 0
	}
	right := make([]bool, len(t.head))
	head := make([]string, len(t.head))
	for i, h := range t.head {
		head[i], right[i] = strings.CutPrefix(h, ">")
	}
	lines := append([][]string{head}, t.rows...)
	width := make([]int, len(head))
	for _, l := range lines {
		for i, cell := range l {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	if limit > 0 {
		t.narrow(head, width, right, limit)
	}
	for _, l := range lines {
		var b strings.Builder
		column := 0
		for i, cell := range l {
			if width[i] < 0 {
				continue
			}
			if i > 0 {
				b.WriteString(strings.Repeat(" ", columnGap))
				column += columnGap
			}
			last := i == len(l)-1
			if !(last && t.prose) {
				cell = cut(cell, width[i])
			}
			pad := strings.Repeat(" ", max(width[i]-utf8.RuneCountInString(cell), 0))
			if right[i] {
				b.WriteString(pad + cell)
			} else {
				b.WriteString(cell + pad)
			}
			if !last {
				column += width[i]
			}
		}
		line := strings.TrimRight(b.String(), " ")
		switch {
		case limit == 0:
			fmt.Fprintln(w, line)
		case t.prose:
			fmt.Fprint(w, usage.Hang(line, column, limit))
		default:
			fmt.Fprintln(w, cut(line, limit))
		}
	}
}

// narrow makes the columns fit: it leaves out optional ones (width -1), then shortens the widest with text.
func (t *table) narrow(head []string, width []int, right []bool, limit int) {
	const least = 10
	total := func() (n int) {
		for i, w := range width {
			if w >= 0 && !(t.prose && i == len(width)-1) {
				n += w + columnGap
			}
		}
		if t.prose {
			return n + 3*least
		}
		return n - columnGap
	}
	for _, name := range t.optional {
		if i := slices.Index(head, name); i >= 0 && total() > limit {
			width[i] = -1
		}
	}
	for total() > limit {
		widest := -1
		for i, w := range width {
			if !right[i] && w > least && !(t.prose && i == len(width)-1) && (widest < 0 || w > width[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return
		}
		width[widest]--
	}
}

// cut returns at most width runes of a text, the last of which is … if some are missing.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

// terminalWidth returns the number of columns of a terminal; 0: w is none, or has no size.
func terminalWidth(w io.Writer) int {
	if p, ok := w.(*printed); ok {
		w = p.Writer
	}
	file, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// printProse prints a line of sentences, which on a terminal goes on below, indented.
func printProse(w io.Writer, indent int, line string) {
	if limit := terminalWidth(w); limit > 2*indent {
		line = strings.TrimSuffix(usage.Hang(line, indent, limit), "\n")
	}
	fmt.Fprintln(w, line)
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func percent(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) }

// short formats a time with about three digits, for people.
func short(ns int64) string {
	switch d := time.Duration(ns); {
	case d == 0:
		return "0"
	case d < time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g µs", float64(d)/1e3)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	case d < 1000*time.Second:
		return fmt.Sprintf("%.3g s", float64(d)/1e9)
	default:
		return d.Round(time.Second).String()
	}
}

func bytesText(n uint64) string {
	f, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.3g %s", f, units[i])
}

func quota(used, limit uint64) string {
	if limit == 0 {
		return bytesText(used)
	}
	return bytesText(used) + " / " + bytesText(limit)
}

// orDash returns s, or a dash for "".
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
