package ptx

import (
	"fmt"
	"strconv"
	"strings"
)

// tokens is the text of an object, read with one token of look-ahead. Its methods parse the smallest parts of the text:
// names, numbers, constant expressions, and directives of these alone.
type tokens struct {
	lex lexer
	tok token
}

// advance returns the current token and reads the next one.
func (t *tokens) advance() token {
	current := t.tok
	t.next()
	return current
}

// next reads the next token. It is never inlined, so that accept is, and compares with a constant.
//
//go:noinline
func (t *tokens) next() { t.tok = t.lex.next() }

// fail returns an error at the current token.
func (t *tokens) fail(format string, args ...any) error {
	return &Error{t.tok.line, fmt.Sprintf(format, args...), ErrInvalidPTX}
}

// accept reports whether the current token is s, and if so reads the next one.
func (t *tokens) accept(s string) bool {
	if !t.tok.is(s) {
		return false
	}
	t.next()
	return true
}

// expect reads the next token if the current one is s, and fails otherwise.
func (t *tokens) expect(s string) error {
	if !t.accept(s) {
		return t.fail("%q where %q is expected", t.tok.text, s)
	}
	return nil
}

// name parses a plain identifier.
func (t *tokens) name() (string, error) {
	if t.tok.kind != word || t.tok.text[0] == '.' {
		return "", t.fail("%q where a name is expected", t.tok.text)
	}
	return t.advance().text, nil
}

// number parses an unsigned integer no larger than limit.
func (t *tokens) number(limit int64) (int64, error) {
	v, ok := integer(t.tok.text)
	if t.tok.kind != number || !ok || v > uint64(limit) {
		return 0, t.fail("%q where a number up to %d is expected", t.tok.text, limit)
	}
	t.advance()
	return int64(v), nil
}

// split cuts the current word, if it is one, after its first directive, so that
// the rest is read next.
func (t *tokens) split() {
	if t.tok.kind != word {
		return // a string's text differs from the source
	}
	i := strings.IndexByte(t.tok.text[1:], '.')
	if i < 0 {
		return
	}
	t.lex.pos -= len(t.tok.text) - 1 - i
	t.tok.text = t.tok.text[:1+i]
}

// passNumbers parses up to three numbers and returns them.
func (t *tokens) passNumbers() (all []int) {
	for i := 0; i < 3 && t.tok.kind == number; i++ {
		n, _ := strconv.ParseInt(t.advance().text, 0, 32)
		all = append(all, int(n))
	}
	return all
}

// colonFollows reports whether a colon follows the current word.
func (t *tokens) colonFollows() bool { return t.lex.after() == ':' }
