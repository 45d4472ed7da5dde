package configs

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// Error is one mistake in a file.
type Error struct {
	File    string
	Line    int    // counted from 1; 0 for the whole file
	Table   string // such as daemon, or domain "web"; empty at the top
	Key     string // empty for the table itself
	Value   string // as spelled in TOML; empty if there is none
	Problem string // the mistake and the allowed values
}

// Error returns all fields on one line, the position first, like a compiler.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Table != "" {
		b.WriteString(": " + short(e.Table))
	}
	if e.Key != "" {
		b.WriteString(": " + short(e.Key))
		if e.Value != "" {
			b.WriteString(" = " + short(e.Value))
		}
	}
	b.WriteString(": " + e.Problem)
	return b.String()
}

// mostShown is the number of bytes after which an error leaves out the rest of a name or value.
const mostShown = 200

func short(s string) string {
	if len(s) <= mostShown {
		return s
	}
	return strings.ToValidUTF8(s[:mostShown], "") + "…"
}

// Errors is all mistakes in a file, in the order of its lines.
type Errors []*Error

// Error returns one line for each mistake.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find the single errors.
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// syntaxError converts an error of the TOML parser.
func syntaxError(file string, err error, opt Options) Errors {
	e := &Error{File: file, Problem: "not TOML: " + err.Error()}
	var at toml.ParseError
	if errors.As(err, &at) {
		e.Line = at.Position.Line
		e.Key = at.LastKey
		e.Problem = "not TOML: " + at.Message
		if at.Message == "" {
			e.Problem = "not TOML: " + strings.TrimPrefix(at.Error(), "toml: ")
		}
		e.explain(at, opt)
	}
	return Errors{e}
}

// twice matches the TOML parser's error for a duplicate key or table.
var twice = regexp.MustCompile(`^Key '([a-z_]+)' has already been defined`)

// explain adds the values that the key accepts, if the value is the part that isn't TOML.
func (e *Error) explain(at toml.ParseError, opt Options) {
	if m := twice.FindStringSubmatch(at.Message); m != nil && slices.Contains(topTables, m[1]) && !strings.HasSuffix(filepath.Dir(e.File), ".d") {
		e.Problem += fmt.Sprintf(" [%s] stands once in a file: write its keys under the first, or all that is new into a file of its own, %s.d/NAME.toml", m[1], e.File)
		return
	}
	table, key, _ := strings.Cut(at.LastKey, ".")
	want := allowed(table, key, opt)
	if want == "" {
		return
	}
	if number, _, is := strings.Cut(at.Message, " is out of range"); is {
		e.Table, e.Key, e.Value, e.Problem = table, key, number, want
	} else if strings.HasPrefix(at.Message, "expected value") {
		e.Problem += "; " + want
	}
}
