package image

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Variables returns the names of the variables that PTX text declares in .global and .const, also within functions, and
// about the bytes of those that belong to this text alone. It implements a small part of PTX, and ignores text that it
// can't parse; only the driver can decide whether such variables exist.
func Variables(text []byte) (names []string, bytes uint64) {
	s := scanner{text: text}
	for before, w := "", s.word(); w != ""; before, w = w, s.word() {
		if (w == ".global" || w == ".const") && !s.ofName {
			var n uint64
			if names, n = s.declared(names); before != ".extern" {
				bytes = min(bytes+n, mostBytes)
			}
		}
	}
	return names, bytes
}

// mostBytes caps the byte count.
const mostBytes = math.MaxUint64 / 4

func times(a, b uint64) uint64 {
	high, n := bits.Mul64(a, b)
	if high != 0 {
		return mostBytes
	}
	return min(n, mostBytes)
}

// width returns the bytes of a type of PTX, and the elements of a vector prefix; the other result is 1.
func width(word string) (bytes, lanes uint64) {
	switch word {
	case ".v2", ".v4", ".v8":
		return 1, uint64(word[2] - '0')
	}
	if kind := strings.TrimLeft(word, ".busf"); kind != word {
		if n, err := strconv.ParseUint(kind, 10, 8); err == nil {
			return n / 8, 1
		}
	}
	return 1, 1
}

// scanner cuts PTX text into words: names, their suffixes with a dot, and single other characters.
type scanner struct {
	text   []byte
	ofName bool // the last word follows a name without space, as in ld.global
	last   byte // the last character of the last word
}

func (s *scanner) word() string {
	before := len(s.text)
	s.skipSpace()
	if len(s.text) == 0 {
		return ""
	}
	glued := before == len(s.text) && partOfName(s.last)
	if !glued {
		s.ofName = false
	}
	w := s.cut()
	if s.last = w[len(w)-1]; partOfName(w[0]) && w[0] != '.' {
		s.ofName = true
	}
	return w
}

// cut removes the first word of the text and returns it.
func (s *scanner) cut() string {
	n := 1
	if partOfName(s.text[0]) {
		for n < len(s.text) && partOfName(s.text[n]) && s.text[n] != '.' {
			n++
		}
	} else if s.text[0] == '"' {
		for n < len(s.text) && s.text[n-1] != '"' || n == 1 && n < len(s.text) {
			n++
		}
	}
	w := string(s.text[:n])
	s.text = s.text[n:]
	return w
}

func partOfName(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '$' || b == '%' || b == '.'
}

// skipSpace skips white space and comments.
func (s *scanner) skipSpace() {
	for len(s.text) > 0 {
		switch b := s.text[0]; {
		case b == ' ' || b >= '\t' && b <= '\r':
			s.text = s.text[1:]
		case b == '/' && len(s.text) > 1 && s.text[1] == '/':
			s.skipTo("\n")
		case b == '/' && len(s.text) > 1 && s.text[1] == '*':
			s.text = s.text[2:]
			s.skipTo("*/")
		default:
			return
		}
	}
}

// skipTo skips to behind the next occurrence of end.
func (s *scanner) skipTo(end string) {
	for i := 0; i+len(end) <= len(s.text); i++ {
		if string(s.text[i:i+len(end)]) == end {
			s.text = s.text[i+len(end):]
			return
		}
	}
	s.text = nil
}

// mostNumbered bounds the names that are taken from b<n>, which declares b0, b1 and so on.
const mostNumbered = 1 << 20

// declared appends the names of a declaration, after its state space: the first word that begins with no dot, except
// the number after .align, and those after commas. References to textures and surfaces have none.
func (s *scanner) declared(names []string) (_ []string, bytes uint64) {
	wanted, depth := true, 0 // a name; and brackets
	each, one := uint64(1), uint64(0)
	name := ""
	done := func() uint64 { return min(bytes+one, mostBytes) }
	for {
		switch w := s.word(); w {
		case "", ";":
			return names, done()
		case ".align", ".attribute":
			s.operand()
		case ".texref", ".samplerref", ".surfref":
			return names, 0
		case "[":
			if n, err := strconv.ParseUint(s.word(), 0, 64); err == nil && depth == 0 {
				one = times(one, n)
			}
			depth++
		case "{", "(":
			depth++
		case "}", "]", ")":
			if depth--; depth < 0 {
				return names, done()
			}
		case ",":
			if depth == 0 {
				name, wanted = "", true
			}
		case "<":
			n, err := strconv.ParseUint(s.word(), 0, 32)
			if err != nil || name == "" || depth > 0 {
				continue
			}
			names, one = names[:len(names)-1], times(one, n)
			for i := uint64(0); i < n && len(names) < mostNumbered; i++ {
				names = append(names, name+strconv.FormatUint(i, 10))
			}
			name = ""
		default:
			switch {
			case !wanted || depth > 0:
			case w[0] == '.':
				n, lanes := width(w)
				each = times(times(each, n), lanes)
			case !partOfName(w[0]):
				return names, done()
			default:
				names, name, wanted = append(names, w), w, false
				bytes, one = done(), each
			}
		}
	}
}

// operand skips a number, or text in parentheses.
func (s *scanner) operand() {
	if s.word() != "(" {
		return
	}
	for depth := 1; depth > 0; {
		switch s.word() {
		case "(":
			depth++
		case ")":
			depth--
		case "":
			return
		}
	}
}
