package ptx

import (
	"fmt"
	"math"
)

// constantValue is the value of a constant expression: a signed or an unsigned integer of 64 bits, or a float, for
// which alone the written precision is kept.
type constantValue struct {
	Kind     OperandKind // Integer, Float32 or Float64
	unsigned bool
	Imm      uint64
}

func signedConstant(v int64) constantValue {
	return constantValue{Kind: Integer, Imm: uint64(v)}
}

func truth(b bool) constantValue {
	if b {
		return signedConstant(1)
	}
	return signedConstant(0)
}

func (c *constantValue) isFloat() bool { return c.Kind != Integer }

func (c *constantValue) float() float64 {
	switch {
	case c.Kind == Float32:
		return float64(math.Float32frombits(uint32(c.Imm)))
	case c.Kind == Float64:
		return math.Float64frombits(c.Imm)
	case c.unsigned:
		return float64(c.Imm)
	}
	return float64(int64(c.Imm))
}

func (c *constantValue) zero() bool {
	if c.isFloat() {
		return c.float() == 0
	}
	return c.Imm == 0
}

// expression parses a constant expression as in C, except that ~ gives an unsigned integer, and % takes unsigned ones
// and gives a signed one.
func (t *tokens) expression() (Operand, error) {
	c, err := t.conditional(0)
	return Operand{Kind: c.Kind, Reg: None, Pair: None, Imm: c.Imm}, err
}

// term parses a constant that is added to an address.
func (t *tokens) term() (uint64, error) {
	c, err := t.binary(precedence("*"), 0)
	if err == nil && c.isFloat() {
		err = t.fail("offset is not an integer")
	}
	return c.Imm, err
}

// plus parses any number of "+n" and "-n".
func (t *tokens) plus() (sum uint64, err error) {
	for t.tok.is("+") || t.tok.is("-") {
		minus := t.advance().text == "-"
		n, err := t.term()
		if err != nil {
			return 0, err
		}
		if minus {
			n = -n
		}
		sum += n
	}
	return sum, nil
}

// size parses a constant that is an integer no larger than limit.
func (t *tokens) size(limit int64) (int64, error) {
	line := t.tok.line
	c, err := t.conditional(0)
	if err != nil {
		return 0, err
	}
	if c.isFloat() || c.Imm > uint64(limit) {
		return 0, &Error{line, fmt.Sprintf("this is no number up to %d", limit), ErrInvalidPTX}
	}
	return int64(c.Imm), nil
}

// constantNext reports whether a constant begins at the current token.
func (t *tokens) constantNext() bool {
	switch {
	case t.tok.kind == number || t.tok.is("WARP_SZ") || t.tok.is("(") || t.tok.is("~"):
		return true
	case t.tok.is("-") || t.tok.is("+") || t.tok.is("!"):
		return !t.lex.registerNext()
	}
	return false
}

// conditional parses "a ? b : c" and operators of higher precedence.
func (t *tokens) conditional(depth int) (constantValue, error) {
	c, err := t.binary(1, depth)
	if err != nil || !t.accept("?") {
		return c, err
	}
	then, err := t.conditional(depth + 1)
	if err != nil {
		return c, err
	}
	if err := t.expect(":"); err != nil {
		return c, err
	}
	otherwise, err := t.conditional(depth + 1)
	if err != nil {
		return c, err
	}
	unsigned := then.unsigned || otherwise.unsigned
	if c.zero() {
		then = otherwise
	}
	then.unsigned = unsigned
	return then, nil
}

// precedence returns the precedence of operators of two operands: larger numbers bind closer. It returns 0 for other
// text.
func precedence(operator string) int {
	switch operator {
	case "||":
		return 1
	case "&&":
		return 2
	case "|":
		return 3
	case "^":
		return 4
	case "&":
		return 5
	case "==", "!=":
		return 6
	case "<", "<=", ">", ">=":
		return 7
	case "<<", ">>":
		return 8
	case "+", "-":
		return 9
	case "*", "/", "%":
		return 10
	}
	return 0
}

// operator returns the operator at the current token, of one character or two.
func (t *tokens) operator() string {
	if t.tok.kind == word && t.tok.text[0] == '%' { // the lexer takes it for the beginning of a name
		t.lex.pos -= len(t.tok.text) - 1
		t.tok.text = "%"
		return "%"
	}
	if t.tok.kind != punct {
		return ""
	}
	if next := t.lex.at(t.lex.pos); next == t.tok.text[0] || next == '=' {
		if two := t.tok.text + string(next); precedence(two) != 0 {
			return two
		}
	}
	return t.tok.text
}

// binary parses operators of precedence level and higher.
func (t *tokens) binary(level, depth int) (constantValue, error) {
	a, err := t.unary(depth)
	for err == nil {
		op := t.operator()
		if precedence(op) < max(level, 1) {
			break
		}
		for range op {
			t.next()
		}
		var b constantValue
		if b, err = t.binary(precedence(op)+1, depth+1); err == nil {
			a, err = t.apply(op, a, b)
		}
	}
	return a, err
}

// unary parses signs, negations, casts and parentheses.
func (t *tokens) unary(depth int) (c constantValue, err error) {
	if depth > maxDepth {
		return c, t.fail("expression is nested too deeply")
	}
	op := t.tok.text
	switch {
	case t.tok.kind == number || t.tok.is("WARP_SZ"):
		return t.literal()
	case t.accept("("):
		if t.tok.is(".s64") || t.tok.is(".u64") {
			return t.cast(depth)
		}
		if c, err = t.conditional(depth + 1); err != nil {
			return c, err
		}
		return c, t.expect(")")
	case !t.tok.is("-") && !t.tok.is("+") && !t.tok.is("!") && !t.tok.is("~"):
		return c, t.fail("%q where a number is expected", op)
	}
	t.advance()
	if c, err = t.unary(depth + 1); err != nil {
		return c, err
	}
	switch {
	case op == "-" && c.Kind == Float32:
		c.Imm ^= 1 << 31
	case op == "-" && c.Kind == Float64:
		c.Imm ^= 1 << 63
	case op == "-":
		c.Imm = -c.Imm
	case op == "!":
		return truth(c.zero()), nil
	case op == "~" && c.isFloat():
		return c, t.fail("'~' of a float")
	case op == "~":
		c.Imm, c.unsigned = ^c.Imm, true
	}
	return c, nil
}

// cast parses ".s64) a" or ".u64) a".
func (t *tokens) cast(depth int) (c constantValue, err error) {
	unsigned := t.advance().text == ".u64"
	if err = t.expect(")"); err != nil {
		return c, err
	}
	if c, err = t.unary(depth + 1); err == nil && c.isFloat() {
		err = t.fail("cast of a float")
	}
	c.unsigned = unsigned
	return c, err
}

// literal parses a number without its sign.
func (t *tokens) literal() (c constantValue, err error) {
	if t.accept("WARP_SZ") {
		return signedConstant(32), nil
	}
	text := t.tok.text
	c, ok := immediate(text)
	if !ok {
		return c, t.fail("malformed number %q", text)
	}
	t.next()
	return c, nil
}

// apply calculates with integers if both are, otherwise with floats.
func (t *tokens) apply(op string, a, b constantValue) (constantValue, error) {
	switch op {
	case "&&":
		return truth(!a.zero() && !b.zero()), nil
	case "||":
		return truth(!a.zero() || !b.zero()), nil
	}
	if a.isFloat() || b.isFloat() {
		return t.applyFloat(op, a.float(), b.float())
	}
	if (op == "/" || op == "%") && b.Imm == 0 {
		return a, t.fail("division by zero in a constant expression")
	}
	switch op {
	case "<<":
		a.Imm <<= b.Imm
		return a, nil
	case ">>":
		if a.unsigned {
			a.Imm >>= b.Imm
		} else {
			a.Imm = uint64(int64(a.Imm) >> b.Imm)
		}
		return a, nil
	}
	unsigned := a.unsigned || b.unsigned
	less, equal := int64(a.Imm) < int64(b.Imm), a.Imm == b.Imm
	if unsigned {
		less = a.Imm < b.Imm
	}
	if order, ok := compare(op, less, equal); ok {
		return truth(order), nil
	}
	a.unsigned = unsigned
	switch op {
	case "+":
		a.Imm += b.Imm
	case "-":
		a.Imm -= b.Imm
	case "*":
		a.Imm *= b.Imm
	case "&":
		a.Imm &= b.Imm
	case "|":
		a.Imm |= b.Imm
	case "^":
		a.Imm ^= b.Imm
	case "/":
		if unsigned {
			a.Imm /= b.Imm
		} else {
			a.Imm = uint64(int64(a.Imm) / int64(b.Imm))
		}
	case "%":
		a.Imm, a.unsigned = a.Imm%b.Imm, false
	}
	return a, nil
}

// compare returns the result of a comparison of numbers that are less, equal or neither.
func compare(op string, less, equal bool) (result, ok bool) {
	switch op {
	case "==":
		return equal, true
	case "!=":
		return !equal, true
	case "<":
		return less, true
	case "<=":
		return less || equal, true
	case ">":
		return !less && !equal, true
	case ">=":
		return !less, true
	}
	return false, false
}

func (t *tokens) applyFloat(op string, a, b float64) (constantValue, error) {
	if a == a && b == b {
		if order, ok := compare(op, a < b, a == b); ok {
			return truth(order), nil
		}
	} else if _, ok := compare(op, false, false); ok {
		return truth(op == "!="), nil
	}
	switch op {
	case "+":
		a += b
	case "-":
		a -= b
	case "*":
		a *= b
	case "/":
		a /= b
	default:
		return constantValue{}, t.fail("%q of floats in a constant expression", op)
	}
	return constantValue{Kind: Float64, Imm: math.Float64bits(a)}, nil
}
