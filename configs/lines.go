package configs

import (
	"fmt"
	"strconv"
	"strings"
)

// lines maps each table and key to its line, which the TOML library doesn't return. A key is "table.key", the
// i-th of an array of tables "table[i]".
type lines map[string]int

// of returns the line of a key in a table, or of the nearest enclosing object with a recorded line, such as the
// line on which an inline table begins.
func (l lines) of(table, key string) int {
	if n, ok := l[join(table, key)]; ok && key != "" {
		return n
	}
	if n, ok := l[table]; ok {
		return n
	}
	plain, _, _ := strings.Cut(table, "[")
	return l[plain]
}

func element(table string, i int) string { return fmt.Sprintf("%s[%d]", table, i) }

func join(table, key string) string {
	if table == "" {
		return key
	}
	return table + "." + key
}

// findLines scans text that the TOML library has accepted. It skips text that it can't interpret: the worst
// outcome is an error that names the line of a table in place of a key's.
func findLines(text string) lines {
	found := lines{}
	s := lineScanner{rest: text, line: 1}
	table, count := "", map[string]int{}
	for s.skipBlank() {
		at := s.line
		switch {
		case s.take("[["):
			key := s.key()
			table = element(key, count[key])
			count[key]++
			found.add(key, at)
			found.add(table, at)
			s.skipLine()
		case s.take("["):
			table = s.key()
			found.add(table, at)
			s.skipLine()
		default:
			found.add(join(table, s.key()), at)
			s.skipValue()
		}
	}
	return found
}

// add stores the first line of each path.
func (l lines) add(path string, line int) {
	if _, ok := l[path]; !ok {
		l[path] = line
	}
}

// lineScanner is a reader of TOML that only finds where values end.
type lineScanner struct {
	rest string
	line int
}

func (s *lineScanner) advance(n int) {
	s.line += strings.Count(s.rest[:n], "\n")
	s.rest = s.rest[n:]
}

func (s *lineScanner) take(prefix string) bool {
	if !strings.HasPrefix(s.rest, prefix) {
		return false
	}
	s.advance(len(prefix))
	return true
}

// skipBlank advances to the next key or table and reports whether there is one.
func (s *lineScanner) skipBlank() bool {
	for s.rest != "" {
		switch s.rest[0] {
		case ' ', '\t', '\r', '\n':
			s.advance(1)
		case '#':
			s.skipLine()
		default:
			return true
		}
	}
	return false
}

func (s *lineScanner) skipLine() {
	if i := strings.IndexByte(s.rest, '\n'); i >= 0 {
		s.advance(i + 1)
		return
	}
	s.rest = ""
}

// key reads a bare, quoted or dotted key up to its '=' or ']'.
func (s *lineScanner) key() string {
	var b strings.Builder
	for s.rest != "" && !strings.ContainsRune("=]\n", rune(s.rest[0])) {
		switch s.rest[0] {
		case '"', '\'':
			text := s.rest
			s.skipString()
			b.WriteString(unquote(text[:len(text)-len(s.rest)]))
		case ' ', '\t':
			s.advance(1)
		default:
			b.WriteByte(s.rest[0])
			s.advance(1)
		}
	}
	return b.String()
}

// unquote returns the value of a quoted key. A basic string's escapes are Go's, except for a few that Go
// doesn't have.
func unquote(s string) string {
	if s[0] == '"' {
		if plain, err := strconv.Unquote(s); err == nil {
			return plain
		}
	}
	return strings.Trim(s, s[:1])
}

// skipValue skips "= value": to the end of the line, ignoring line ends inside an array or string.
func (s *lineScanner) skipValue() {
	depth := 0
	for s.rest != "" {
		switch s.rest[0] {
		case '"', '\'':
			s.skipString()
			continue
		case '#':
			s.skipLine()
			if depth <= 0 {
				return
			}
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case '\n':
			if depth <= 0 {
				s.advance(1)
				return
			}
		}
		s.advance(1)
	}
}

// skipString skips a string of any of the four kinds.
func (s *lineScanner) skipString() {
	quote := s.rest[:1]
	if triple := strings.Repeat(quote, 3); s.take(triple) {
		s.skipTo(triple)
		for s.take(quote) { // up to two quotes may stand before the closing three
		}
		return
	}
	s.advance(1)
	s.skipTo(quote)
}

func (s *lineScanner) skipTo(end string) {
	for s.rest != "" && !s.take(end) {
		if s.rest[0] == '\\' && end[0] == '"' && len(s.rest) > 1 {
			s.advance(1)
		}
		s.advance(1)
	}
}
