package ptx

import "strings"

// kind is the kind of a token.
type kind uint8

const (
	end    kind = iota
	number      // an integer or a float, with its suffixes
	str         // a string, without its quotes
	word        // an identifier, a directive or an opcode with its modifiers, dots included
	punct       // one character
)

type token struct {
	kind kind
	text string
	line int
}

// is reports whether the token is this punctuation or word.
func (t *token) is(s string) bool { return t.text == s && t.kind >= word }

// lexer cuts the source into tokens, one at a time.
type lexer struct {
	src  string
	pos  int
	line int
	err  *Error
}

// class has the classes of each character, by bits.
var class = func() (set [256]uint8) {
	for c := range set {
		b := byte(c)
		switch {
		case b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b == '$' || b == '%':
			set[c] = isLetter
		case b >= '0' && b <= '9':
			set[c] = isDigit
		case b == ' ' || b == '\t' || b == '\r' || b == '\f' || b == '\v' || b == 0:
			set[c] = isBlank // a trailing NUL belongs to the string that held the text
		}
	}
	return set
}()

const (
	isLetter = 1 << iota
	isDigit
	isBlank
	inWord = isLetter | isDigit
)

func letter(c byte) bool { return class[c] == isLetter }

func digit(c byte) bool { return class[c] == isDigit }

func (l *lexer) at(i int) byte {
	if i < len(l.src) {
		return l.src[i]
	}
	return 0
}

// skip skips blanks and comments.
func (l *lexer) skip() {
	src, i := l.src, l.pos
	for ; i < len(src); i++ {
		switch c := src[i]; {
		case class[c] == isBlank:
		case c == '\n':
			l.line++
		case c == '/' && l.at(i+1) == '/':
			n := strings.IndexByte(src[i:], '\n')
			if n < 0 {
				n = len(src) - i
			}
			i += n - 1
		case c == '/' && l.at(i+1) == '*':
			l.pos = i
			l.comment()
			i = l.pos - 1
		default:
			l.pos = i
			return
		}
	}
	l.pos = i
}

func (l *lexer) comment() {
	start := l.line
	for l.pos += 2; l.pos < len(l.src); l.pos++ {
		if l.src[l.pos] == '\n' {
			l.line++
		}
		if l.src[l.pos] == '*' && l.at(l.pos+1) == '/' {
			l.pos += 2
			return
		}
	}
	l.err = &Error{start, "comment without an end", ErrInvalidPTX}
}

// next returns the next token; after an error, end.
func (l *lexer) next() token {
	l.skip()
	if l.err != nil || l.pos >= len(l.src) {
		return token{end, "end of the text", l.line}
	}
	start, c := l.pos, l.src[l.pos]
	switch {
	case letter(c) || c == '.' && class[l.at(l.pos+1)]&inWord != 0:
		return l.word(start)
	case digit(c):
		return l.number(start)
	case c == '"':
		return l.str(start)
	}
	l.pos++
	return token{punct, l.src[start:l.pos], l.line}
}

// word takes letters and digits joined by dots and, within modifiers, by "::".
func (l *lexer) word(start int) token {
	src, i := l.src, start+1
	for ; i < len(src); i++ {
		c := src[i]
		if class[c]&inWord != 0 || c == '.' && class[l.at(i+1)]&inWord != 0 {
			continue
		}
		if c != ':' || l.at(i+1) != ':' || class[l.at(i+2)]&inWord == 0 {
			break
		}
		i++
	}
	l.pos = i
	return l.cut(start)
}

func (l *lexer) cut(start int) token {
	if n := l.pos - start; n > maxIdentifier || n > maxDirectives && l.src[start] == '.' {
		l.err = &Error{l.line, "identifier is too long", ErrInvalidPTX}
		return token{end, "end of the text", l.line}
	}
	return token{word, l.src[start:l.pos], l.line}
}

func (l *lexer) number(start int) token {
	hex := l.src[start] == '0' && (l.at(start+1)|0x20 == 'x' || l.at(start+1)|0x20 == 'f' || l.at(start+1)|0x20 == 'd')
	for l.pos++; l.pos < len(l.src); l.pos++ {
		c := l.src[l.pos]
		sign := (c == '+' || c == '-') && !hex && l.src[l.pos-1]|0x20 == 'e'
		if (!letter(c) || c == '%') && !digit(c) && c != '.' && !sign {
			break
		}
	}
	return token{number, l.src[start:l.pos], l.line}
}

func (l *lexer) str(start int) token {
	line := l.line
	for l.pos++; l.pos < len(l.src); l.pos++ {
		switch l.src[l.pos] {
		case '\\':
			l.pos++
		case '\n':
			l.line++
		case '"':
			l.pos++
			return token{str, l.src[start+1 : l.pos-1], line}
		}
	}
	l.err = &Error{line, "string without an end", ErrInvalidPTX}
	return token{end, "end of the text", l.line}
}

// after returns the character after the current token and blanks.
func (l *lexer) after() byte {
	l.skip()
	return l.at(l.pos)
}

// registerNext reports whether a name that is no number follows the current token.
func (l *lexer) registerNext() bool {
	return letter(l.after()) && !strings.HasPrefix(l.src[l.pos:], "WARP_SZ")
}
