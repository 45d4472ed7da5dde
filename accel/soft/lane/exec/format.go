package exec

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bounds on printed text: width and precision of a directive, and the bytes that one call prints.
const (
	maxWidth = 1 << 10
	maxText  = 16 << 10
)

// directive is one conversion of a format: %, flags, width, precision, length, verb.
type directive struct {
	flags            string
	width, precision int // precision is -1 if absent
	size             int // bytes of an integer
	verb             byte
}

// print formats the arguments by a format, as C's printf does. It stops at a fault.
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

// directive parses a directive after its %.
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

// amount parses a width or a precision.
func (a *arguments) amount(f []byte) (n int, rest []byte) {
	if len(f) > 0 && f[0] == '*' {
		return max(min(int(int32(a.next(false))), maxWidth), -maxWidth), f[1:]
	}
	for len(f) > 0 && f[0] >= '0' && f[0] <= '9' {
		n, f = min(10*n+int(f[0]-'0'), maxWidth), f[1:]
	}
	return n, f
}

// convert returns the text of one conversion.
func (a *arguments) convert(d directive) (text string, ok bool) {
	switch d.verb {
	case '%':
		return "%", true
	case 'd', 'i':
		shift := 64 - 8*d.size
		return d.signed(int64(a.next(d.size == 8)<<shift) >> shift), true
	case 'u':
		return d.unsigned(a.integer(d), 10, ""), true
	case 'o':
		return d.unsigned(a.integer(d), 8, ""), true
	case 'x':
		return d.unsigned(a.integer(d), 16, "0x"), true
	case 'X':
		return strings.ToUpper(d.unsigned(a.integer(d), 16, "0x")), true
	case 'p':
		v := a.next(true)
		if v == 0 {
			return d.pad("", "(nil)", false), true
		}
		d.flags += "#"
		return d.unsigned(v, 16, "0x"), true
	case 'c':
		return d.pad("", string([]byte{byte(a.next(false))}), false), true
	case 's':
		s := []byte("(null)")
		if at := a.next(true); at != 0 {
			s, _ = readText(a.g, a.op.Text, at, a.lane)
		}
		if d.precision >= 0 {
			s = s[:min(d.precision, len(s))]
		}
		return d.pad("", string(s), false), true
	case 'e', 'f', 'g', 'a':
		return d.float(math.Float64frombits(a.next(true))), true
	case 'E', 'F', 'G', 'A':
		d.verb += 'a' - 'A'
		return strings.ToUpper(d.float(math.Float64frombits(a.next(true)))), true
	}
	return "", false
}

func (a *arguments) integer(d directive) uint64 {
	return a.next(d.size == 8) & (math.MaxUint64 >> (64 - 8*d.size))
}

func (d *directive) has(flag string) bool { return strings.Contains(d.flags, flag) }

// pad pads a text to the width, in bytes: with spaces around it, or zeros after its prefix.
func (d *directive) pad(prefix, body string, zeros bool) string {
	n := max(d.width-len(prefix)-len(body), 0)
	switch {
	case d.has("-"):
		return prefix + body + strings.Repeat(" ", n)
	case zeros && d.has("0"):
		return prefix + strings.Repeat("0", n) + body
	}
	return strings.Repeat(" ", n) + prefix + body
}

// sign returns the prefix of a number that may be negative.
func (d *directive) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case d.has("+"):
		return "+"
	case d.has(" "):
		return " "
	}
	return ""
}

func (d *directive) signed(v int64) string {
	magnitude := uint64(v)
	if v < 0 {
		magnitude = -magnitude
	}
	return d.pad(d.sign(v < 0), d.digits(magnitude, 10), d.precision < 0)
}

// unsigned formats an unsigned number, with the prefix if it is requested and the number isn't zero. That of octal
// numbers is one more digit.
func (d *directive) unsigned(v uint64, base int, prefix string) string {
	digits := d.digits(v, base)
	if !d.has("#") || v == 0 {
		prefix = ""
	}
	if base == 8 && d.has("#") && !strings.HasPrefix(digits, "0") {
		digits = "0" + digits
	}
	return d.pad(prefix, digits, d.precision < 0)
}

// digits returns at least as many digits as the precision requires; none for a zero at precision 0.
func (d *directive) digits(v uint64, base int) string {
	if v == 0 && d.precision == 0 {
		return ""
	}
	s := strconv.FormatUint(v, base)
	return strings.Repeat("0", max(d.precision-len(s), 0)) + s
}

// float formats a number; infinities and NaNs get C's names.
func (d *directive) float(v float64) string {
	sign := d.sign(math.Signbit(v))
	v = math.Abs(v)
	switch {
	case math.IsInf(v, 0):
		return d.pad(sign, "inf", false)
	case math.IsNaN(v):
		return d.pad(sign, "nan", false)
	case d.verb == 'a':
		return d.pad(sign+"0x", d.hexadecimal(math.Float64bits(v)), true)
	}
	precision, form := d.precision, "%.*"
	if precision < 0 {
		precision = 6
	}
	if d.has("#") {
		form = "%#.*"
	}
	return d.pad(sign, fmt.Sprintf(form+string(d.verb), precision, v), true)
}

// hexadecimal formats the positive number with these bits, after its prefix: with as many digits as it needs, or
// rounded to the precision.
func (d *directive) hexadecimal(bits uint64) string {
	const digits = 13 // 52 bits
	exponent, m := int(bits>>52)-1023, bits&(1<<52-1)|1<<52
	switch {
	case bits == 0:
		exponent, m = 0, 0
	case bits>>52 == 0:
		exponent, m = -1022, bits
	}
	fraction := fmt.Sprintf("%013x", m&(1<<52-1))
	switch {
	case d.precision < 0:
		fraction = strings.TrimRight(fraction, "0")
	case d.precision < digits:
		drop := 4 * (digits - d.precision)
		m += 1<<(drop-1) - 1 + m>>drop&1
		fraction = fmt.Sprintf("%013x", m&(1<<52-1))[:d.precision]
	default:
		fraction += strings.Repeat("0", d.precision-digits)
	}
	point := ""
	if fraction != "" || d.has("#") {
		point = "."
	}
	return fmt.Sprintf("%d%s%sp%+d", m>>52, point, fraction, exponent)
}
