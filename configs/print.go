package configs

import (
	"fmt"
	"strings"
)

// Marshal returns the configuration as a file that Parse reads back to an equal one: it contains every key,
// with the defaults filled in.
func (c *Config) Marshal() []byte { return Print(c.Tables(), nil) }

// Print returns tables as a file. comment, if not nil, returns the text of a comment behind a setting; "": none.
func Print(tables []Table, comment func(Table, Setting) string) []byte {
	var b []byte
	for i, t := range tables {
		if i > 0 {
			b = append(b, '\n')
		}
		b = fmt.Appendln(b, t.header())
		for _, s := range t.Settings {
			line := s.Key + " = " + s.Value
			if text := commentOf(t, s, comment); text != "" {
				line = fmt.Sprintf("%-36s # %s", line, text)
			}
			b = fmt.Appendln(b, line)
		}
	}
	return b
}

// commentOf returns a comment of one line: TOML permits no control characters in it.
func commentOf(t Table, s Setting, comment func(Table, Setting) string) string {
	if comment == nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(comment(t, s), "?"))
}

// header returns the line with which a table begins.
func (t *Table) header() string {
	if t.Kind == "accelerator" || t.Kind == "domain" {
		return "[[" + t.Kind + "]]"
	}
	return "[" + t.Kind + "]"
}
