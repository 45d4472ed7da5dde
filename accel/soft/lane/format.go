package lane

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// Bounds on what is printed: its width and precision, and all that one call prints.
const (
	maxWidth = 1 << 10
	maxText  = 16 << 10
)

// directive is one conversion of a format: %, flags, width, precision, length, verb.
type directive struct {
	flags            string
	width, precision int // precision is -1 if there is none
	size             int // bytes of an integer
	verb             byte
}

// print formats what a format says, as C does. It stops at a fault.
func (a *arguments) print(format []byte) []byte {
	var out []byte
	for len(format) > 0 && len(out) < maxText && a.g.fault == nil {
		i := bytes.IndexByte(format, '%')
		if i < 0 {
			return append(out, format...)
		}
		out = append(out, format[:i]...)
		d, rest := a.directive(format[i+1:])
		text, ok := a.convert(d)
		if !ok { // as it stands
			text = string(format[i : len(format)-len(rest)])
		}
		out, format = append(out, text...), rest
	}
	return out
}

// directive reads what follows a %.
func (a *arguments) directive(f []byte) (d directive, rest []byte) {
	n := 0
	for n < len(f) && strings.IndexByte("-+ #0", f[n]) >= 0 {
		n++
	}
	d.flags, f = string(f[:n]), f[n:]
	if d.width, f = a.amount(f); d.width < 0 {
		d.flags, d.width = d.flags+"-", -d.width
	}
	d.precision = -1
	if len(f) > 0 && f[0] == '.' {
		d.precision, f = a.amount(f[1:])
	}
	d.size = 4
	for ; len(f) > 0; f = f[1:] {
		switch f[0] {
		case 'h':
			d.size = max(d.size/2, 1)
			continue
		case 'l', 'j', 'z', 't', 'L', 'q':
			d.size = 8
			continue
		}
		break
	}
	if len(f) == 0 {
		return d, f
	}
	d.verb = f[0]
	return d, f[1:]
}

// amount reads a width or a precision.
func (a *arguments) amount(f []byte) (n int, rest []byte) {
	if len(f) > 0 && f[0] == '*' {
		return max(min(int(int32(a.next(false))), maxWidth), -maxWidth), f[1:]
	}
	for len(f) > 0 && f[0] >= '0' && f[0] <= '9' {
		n, f = min(10*n+int(f[0]-'0'), maxWidth), f[1:]
	}
	return n, f
}

// convert is the text of one conversion.
func (a *arguments) convert(d directive) (text string, ok bool) {
	switch d.verb {
	case '%':
		return "%", true
	case 'd', 'i':
		shift := 64 - 8*d.size
		return d.text("d", int64(a.next(d.size == 8)<<shift)>>shift), true
	case 'u':
		return d.text("d", a.integer(d)), true
	case 'o', 'x', 'X':
		return d.text(string(d.verb), a.integer(d)), true
	case 'p':
		return directive{flags: d.flags + "#", width: d.width, precision: -1}.text("x", a.next(true)), true
	case 'c':
		return directive{flags: d.flags, width: d.width, precision: -1}.text("s", string([]byte{byte(a.next(false))})), true
	case 's':
		s, _ := a.g.text(a.op.text, a.next(true), a.lane)
		return d.text("s", string(s)), true
	case 'e', 'E', 'f', 'F', 'g', 'G', 'a', 'A':
		return d.float(math.Float64frombits(a.next(true))), true
	}
	return "", false
}

func (a *arguments) integer(d directive) uint64 {
	return a.next(d.size == 8) & (math.MaxUint64 >> (64 - 8*d.size))
}

// text formats a value with a verb of package fmt, which means the same as C's.
func (d directive) text(verb string, v any) string {
	if d.precision >= 0 {
		return fmt.Sprintf("%"+d.flags+"*.*"+verb, d.width, d.precision, v)
	}
	return fmt.Sprintf("%"+d.flags+"*"+verb, d.width, v)
}

// float formats a number: the precision is 6 unless there is one, and what is no number is named in C's words.
func (d directive) float(v float64) string {
	upper := d.verb < 'a'
	if math.IsInf(v, 0) || math.IsNaN(v) {
		d.flags, d.precision = strings.ReplaceAll(d.flags, "0", ""), -1
		s := strings.ToLower(strings.TrimPrefix(fmt.Sprint(v), "+"))
		if v > 0 && strings.Contains(d.flags, "+") {
			s = "+" + s
		}
		if upper {
			s = strings.ToUpper(s)
		}
		return d.text("s", s)
	}
	verb := string(d.verb)
	switch {
	case verb == "a":
		verb = "x"
	case verb == "A":
		verb = "X"
	case d.precision < 0:
		d.precision = 6
	}
	return d.text(verb, v)
}
