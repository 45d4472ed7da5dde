package programs

import (
	"fmt"
	"strings"
)

// video generates a video instruction.
func (w *writer) video() string {
	if w.IntN(2) == 0 {
		return w.parallelVideo()
	}
	word := func() string { return oneOf(w, ".u32", ".s32") }
	source := func() string {
		return w.register('r') + oneOf(w, "", "", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1")
	}
	d, a, b, c := fmt.Sprintf("%%r%d", w.IntN(8)), source(), source(), w.register('r')
	var text string
	switch name := oneOf(w, "vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset", "vmad"); name {
	case "vmad":
		return w.videoMad(d, a, b, c)
	case "vset":
		text = name + word() + word() + oneOf(w, ".eq", ".ne", ".lt", ".le", ".gt", ".ge")
	case "vshl", "vshr":
		text = name + word() + word() + ".u32" + oneOf(w, "", ".sat") + oneOf(w, ".clamp", ".wrap")
	default:
		text = name + word() + word() + word() + oneOf(w, "", ".sat")
	}
	switch w.IntN(3) {
	case 0:
		return fmt.Sprintf("%s %s, %s, %s", text, d, a, b)
	case 1:
		return fmt.Sprintf("%s %s%s, %s, %s, %s", text, d, oneOf(w, ".b0", ".b1", ".b2", ".b3", ".h0", ".h1"), a, b, c)
	}
	return fmt.Sprintf("%s%s %s, %s, %s, %s", text, oneOf(w, ".add", ".min", ".max"), d, a, b, c)
}

// videoMad generates one with at most one sign, or .po.
func (w *writer) videoMad(d, a, b, c string) string {
	ta, tb, po := oneOf(w, "u32", "s32"), oneOf(w, "u32", "s32"), ""
	switch w.IntN(5) {
	case 0:
		po = ".po"
	case 1:
		a = "-" + a
	case 2:
		b = "-" + b
	case 3:
		c = "-" + c
	}
	to := "u32"
	if ta == "s32" || tb == "s32" || strings.Contains(a+b+c, "-") {
		to = "s32"
	}
	return fmt.Sprintf("vmad.%s.%s.%s%s%s%s %s, %s, %s, %s", to, ta, tb, po, oneOf(w, "", ".sat"), oneOf(w, "", ".shr7", ".shr15"), d, a, b, c)
}

// parallelVideo generates an instruction on the halves or the bytes of words.
func (w *writer) parallelVideo() string {
	n, letter := oneOf(w, 2, 4), "h"
	if n == 4 {
		letter = "b"
	}
	source := func() string {
		s := w.register('r')
		if w.IntN(2) == 0 {
			return s
		}
		s += "." + letter
		for range n { // of both sources, one behind the other
			s += fmt.Sprint(w.IntN(2 * n))
		}
		return s
	}
	d := fmt.Sprintf("%%r%d", w.IntN(8))
	if w.IntN(2) == 0 {
		d += "." + letter
		for set, i := 1+w.IntN(1<<n-1), n-1; i >= 0; i-- {
			if set>>i&1 != 0 {
				d += fmt.Sprint(i)
			}
		}
	}
	word := func() string { return oneOf(w, ".u32", ".s32") }
	name := oneOf(w, "vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")
	text := name + fmt.Sprint(n) + word() + word()
	if name == "vset" {
		text += oneOf(w, ".eq", ".ne", ".lt", ".le", ".gt", ".ge") + oneOf(w, "", ".add")
	} else {
		text += word() + oneOf(w, "", ".sat", ".add", ".sat.add")
	}
	return fmt.Sprintf("%s %s, %s, %s, %s", text, d, source(), source(), w.register('r'))
}
