package fleet

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Write writes the view as text for people.
func Write(w io.Writer, f *Fleet) error {
	var b strings.Builder
	s := &f.Sum
	fmt.Fprintf(&b, "%s on %s, %s; credits: %d of %d sold, %d free; memory: %s of %s sold, %s free\n",
		plural(s.Accelerators, "accelerator"), plural(s.Hosts, "host"), plural(s.Domains, "domain"),
		s.Credits.Sold, s.Credits.All, s.Credits.Free, bytesText(s.Memory.Sold), bytesText(s.Memory.All), bytesText(s.Memory.Free))
	if s.Accelerators > 0 {
		b.WriteByte('\n')
		f.writeAccelerators(&b)
	}
	if len(f.Domains) > 0 {
		b.WriteByte('\n')
		f.writeDomains(&b)
	}
	b.WriteByte('\n')
	f.writeHosts(&b)
	if f.Advice != nil {
		b.WriteByte('\n')
		f.Advice.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *Fleet) writeAccelerators(b *strings.Builder) {
	t := table{head: []string{"NODE", "ACCELERATOR", "MODEL", "POLICY", ">CREDITS", ">FREE", ">MEMORY", ">FREE", ">SEATS", ">BUSY", "TAINTS"}}
	for i := range f.Accelerators {
		a := &f.Accelerators[i]
		t.add(a.Node, a.Name, a.Model, a.Policy, fmt.Sprintf("%d / %d", a.Credits.Sold, a.Credits.All), strconv.FormatInt(a.Credits.Free, 10),
			bytesText(a.Memory.Sold)+" / "+bytesText(a.Memory.All), bytesText(a.Memory.Free), fmt.Sprintf("%d / %d", a.Seats.Sold, a.Seats.All), part(a.Busy), strings.Join(a.Taints, ", "))
	}
	t.write(b)
}

func (f *Fleet) writeDomains(b *strings.Builder) {
	t := table{head: []string{"NODE", "ACCELERATOR", "CLAIM", "PODS", ">CREDITS", ">FLOOR", ">ENTITLED", ">SHARE", ">WAITS", ">MEMORY", "STATE"}}
	for i := range f.Domains {
		d := &f.Domains[i]
		claim, state, floor := d.String(), string(d.State), percent(d.Floor)
		if d.Claim == "" {
			claim, state, floor = d.Name, "without a claim", "-"
		}
		memory := "-"
		if d.InUse != nil {
			memory = bytesText(*d.InUse)
		}
		if d.Memory > 0 {
			memory += " / " + bytesText(d.Memory)
		}
		t.add(d.Node, d.On, claim, list(d.Pods), strconv.FormatInt(d.Credits, 10), floor, part(d.Entitled), part(d.Share), part(d.Waiting), memory, state)
	}
	t.write(b)
}

func (f *Fleet) writeHosts(b *strings.Builder) {
	kept := 0
	for i := range f.Hosts {
		h := &f.Hosts[i]
		switch h.Kept {
		case Yes:
			kept++
		case No:
			fmt.Fprintf(b, "host %s: shares are not kept\n", plain(h.Node))
		case Unknown:
			fmt.Fprintf(b, "host %s: unknown whether shares are kept\n", plain(h.Node))
		}
		if h.Kept == Yes && len(h.Reasons) > 0 {
			fmt.Fprintf(b, "host %s: shares are kept\n", plain(h.Node))
		}
		for _, why := range h.Reasons {
			fmt.Fprintf(b, "  %s\n", plain(why))
		}
	}
	fmt.Fprintf(b, "shares are kept on %d of %s\n", kept, plural(len(f.Hosts), "host"))
}

// table is aligned text: columns with a head that begins with '>' are right-aligned.
type table struct {
	head []string
	rows [][]string
}

// add adds a row. An empty cell becomes a dash.
func (t *table) add(cells ...string) {
	for i := range cells {
		if cells[i] = plain(cells[i]); cells[i] == "" {
			cells[i] = "-"
		}
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(b *strings.Builder) {
	head, right, width := make([]string, len(t.head)), make([]bool, len(t.head)), make([]int, len(t.head))
	for i, h := range t.head {
		head[i], right[i] = strings.CutPrefix(h, ">")
	}
	lines := append([][]string{head}, t.rows...)
	for _, l := range lines {
		for i, cell := range l {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, l := range lines {
		var line strings.Builder
		for i, cell := range l {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString(cell + "  ")
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// plain returns a text of the cluster without characters that a terminal would execute.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
}

func part(f *float64) string {
	if f == nil {
		return "-"
	}
	return percent(*f)
}

func plural(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

func bytesText(n int64) string {
	f, units, i := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}, 0
	for f >= 1024 && i < len(units)-1 {
		f /= 1024
		i++
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.3g %s", f, units[i])
}
