package configs

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// value reads one key's TOML value into its field of a Config and writes it back. set returns errors of the
// form "must be …".
type value interface {
	set(v any) error
	String() string // as spelled in TOML
}

// CheckName returns an error unless name is valid for a domain or an accelerator: it becomes part of a path
// and of metrics, so it is short and plain. It doesn't begin with a dot: Pegasus's own files beside those of
// domains do.
func CheckName(name string) error {
	if name == "" || len(name) > 63 || !alphanumeric(name[0]) {
		return mustBe("1 to 63 letters, digits, '.', '_' or '-', the first a letter or digit")
	}
	for i := range len(name) {
		if !alphanumeric(name[i]) && !strings.ContainsRune("._-", rune(name[i])) {
			return mustBe("1 to 63 letters, digits, '.', '_' or '-', the first a letter or digit")
		}
	}
	if strings.HasSuffix(name, ".sock") { // otherwise a domain's directory could have the name of another's socket
		return mustBe("a name that doesn't end in \".sock\"")
	}
	return nil
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func mustBe(format string, args ...any) error {
	return fmt.Errorf("must be "+format, args...)
}

func quote(s string) string { return strconv.Quote(s) }

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, ", ")
}

// name is a name that other tables refer to.
type name struct{ p *string }

func (n name) String() string { return quote(*n.p) }
func (n name) set(v any) error {
	s, ok := v.(string)
	if !ok {
		return mustBe("a string")
	}
	if err := CheckName(s); err != nil {
		return err
	}
	*n.p = s
	return nil
}

// text is any printable string of one line; empty is allowed.
type text struct {
	p    *string
	what string
}

func (t text) String() string { return quote(*t.p) }
func (t text) set(v any) error {
	s, ok := v.(string)
	if !ok || !printable(s) || len(s) > 255 {
		return mustBe("%s, a printable string of at most 255 bytes, or \"\"", t.what)
	}
	*t.p = s
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// list is a few texts, none of them empty or repeated.
type list struct {
	p    *[]string
	most int
	what string
}

func (l list) String() string { return "[" + quoteAll(*l.p) + "]" }
func (l list) set(v any) error {
	all, ok := v.([]any)
	next := []string{}
	for _, e := range all {
		var s string
		if (text{&s, ""}).set(e) != nil || s == "" || slices.Contains(next, s) {
			ok = false
		}
		next = append(next, s)
	}
	if !ok || len(next) > l.most {
		return mustBe("a list of at most %d different URIs %s, or []", l.most, l.what)
	}
	*l.p = next
	return nil
}

// account is the name of a user or group that this host has, or a number, or empty.
type account struct {
	p    *string
	kind string
	find func(name string) error
}

func (a account) String() string { return quote(*a.p) }
func (a account) set(v any) error {
	what := fmt.Sprintf("the name or number of a %s", a.kind)
	var s string
	if err := (text{&s, what}).set(v); err != nil {
		return err
	}
	if _, err := strconv.ParseUint(s, 10, 31); err != nil && s != "" && a.find(s) != nil {
		return mustBe("%s, and this host has no %s of that name", what, a.kind)
	}
	*a.p = s
	return nil
}

func findUser(name string) error  { _, err := user.Lookup(name); return err }
func findGroup(name string) error { _, err := user.LookupGroup(name); return err }

// path is an absolute path of at most max bytes, or empty.
type path struct {
	p   *string
	max int
}

func (p path) String() string { return quote(*p.p) }
func (p path) set(v any) error {
	s, ok := v.(string)
	if !ok || !printable(s) || s != "" && !filepath.IsAbs(s) || len(s) > p.max {
		return mustBe("an absolute path of at most %d bytes, or \"\"", p.max)
	}
	if s != "" {
		s = filepath.Clean(s)
	}
	*p.p = s
	return nil
}

// choice is one of a few words, ignoring case. An empty list allows every name.
type choice struct {
	p    *string
	from []string
}

func (c choice) String() string { return quote(*c.p) }
func (c choice) set(v any) error {
	s, ok := v.(string)
	if !ok {
		return mustBe("a string: %s", quoteAll(c.from))
	}
	if len(c.from) == 0 {
		return name{c.p}.set(v)
	}
	i := slices.IndexFunc(c.from, func(f string) bool { return strings.EqualFold(f, s) })
	if i < 0 {
		return mustBe("one of %s%s", quoteAll(c.from), DidYouMean(s, c.from))
	}
	*c.p = c.from[i]
	return nil
}

// boolean is true or false.
type boolean struct{ p *bool }

func (f boolean) String() string { return strconv.FormatBool(*f.p) }
func (f boolean) set(v any) error {
	b, ok := v.(bool)
	if !ok {
		return mustBe("true or false")
	}
	*f.p = b
	return nil
}

// whole is an integer within bounds; zero is the meaning of 0, if it is special.
type whole struct {
	p      *int
	lo, hi int
	zero   string
}

func (w whole) String() string { return strconv.Itoa(*w.p) }
func (w whole) set(v any) error {
	n, ok := v.(int64)
	if !ok || n < int64(w.lo) || n > int64(w.hi) {
		return mustBe("a whole number from %d to %d%s", w.lo, w.hi, zeroMeans(w.zero))
	}
	*w.p = int(n)
	return nil
}

func zeroMeans(what string) string {
	if what == "" {
		return ""
	}
	return " (0: " + what + ")"
}

// bytes is a size within bounds and a multiple of unit, or 0 if that is allowed.
type bytes struct {
	p            *Size
	lo, hi, unit Size
	zero         string
}

func (b bytes) String() string { return quote(b.p.String()) }
func (b bytes) set(v any) error {
	var s Size
	var err error
	switch v := v.(type) {
	case int64:
		s = Size(v)
	case string:
		s, err = ParseSize(v)
	default:
		err = mustBe("a size")
	}
	if err != nil || (s < b.lo || s > b.hi || s%b.unit != 0) && (s != 0 || b.zero == "") {
		return mustBe("a size from %q to %q%s, as a string with B, KiB, MiB, GiB or TiB, or in bytes%s",
			b.lo, b.hi, inUnits(b.unit), zeroMeans(b.zero))
	}
	*b.p = s
	return nil
}

func inUnits(unit Size) string {
	if unit == 1 {
		return ""
	}
	return fmt.Sprintf(", a multiple of %q", unit)
}

// span is a duration within bounds, or 0 if that is allowed.
type span struct {
	p      *time.Duration
	lo, hi time.Duration
	zero   string
}

func (s span) String() string { return quote(shortest(*s.p)) }
func (s span) set(v any) error {
	str, _ := v.(string)
	d, err := time.ParseDuration(str)
	if err != nil || (d < s.lo || d > s.hi) && (d != 0 || s.zero == "") {
		return mustBe("a duration from %q to %q, a string such as \"30ms\" or \"1.5s\"%s",
			shortest(s.lo), shortest(s.hi), zeroMeans(s.zero))
	}
	*s.p = d
	return nil
}

// shortest formats a duration without the zero minutes and seconds that Go adds.
func shortest(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// percent is a whole number of per cent within bounds, or 0 if that is allowed.
type percent struct {
	p      *int
	lo, hi int
	zero   string
}

func (p percent) String() string { return quote(strconv.Itoa(*p.p) + "%") }
func (p percent) set(v any) error {
	s, _ := v.(string)
	number, ok := strings.CutSuffix(s, "%")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || (n < p.lo || n > p.hi) && n != 0 {
		return mustBe("a string from \"%d%%\" to \"%d%%\", such as \"150%%\" for one and a half CPUs (\"0%%\": %s)", p.lo, p.hi, p.zero)
	}
	*p.p = n
	return nil
}

// permissions are a file's, as an octal string.
type permissions struct{ p *fs.FileMode }

func (m permissions) String() string { return fmt.Sprintf("\"%04o\"", uint32(*m.p)) }
func (m permissions) set(v any) error {
	s, _ := v.(string)
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return mustBe("permission bits as an octal string from \"0000\" to \"0777\", such as \"0660\"")
	}
	*m.p = fs.FileMode(n)
	return nil
}

// address is a TCP address to listen at, or empty.
type address struct{ p *string }

func (a address) String() string { return quote(*a.p) }
func (a address) set(v any) error {
	s, ok := v.(string)
	if ok && s != "" {
		_, err := netip.ParseAddrPort(s)
		ok = err == nil
	}
	if !ok {
		return mustBe("an IP address and a port, such as \"127.0.0.1:7070\" or \"[::]:7070\", or \"\"")
	}
	*a.p = s
	return nil
}
