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
func (p *parser) expression() (Operand, error) {
	c, err := p.conditional(0)
	return Operand{Kind: c.Kind, Reg: None, Pair: None, Imm: c.Imm}, err
}

// term parses a constant that is added to an address.
func (p *parser) term() (uint64, error) {
	c, err := p.binary(precedence("*"), 0)
	if err == nil && c.isFloat() {
		err = p.fail("offset is not an integer")
	}
	return c.Imm, err
}

// size parses a constant that is an integer no larger than limit.
func (p *parser) size(limit int64) (int64, error) {
	line := p.tok.line
	c, err := p.conditional(0)
	if err != nil {
		return 0, err
	}
	if c.isFloat() || c.Imm > uint64(limit) {
		return 0, &Error{line, fmt.Sprintf("this is no number up to %d", limit), ErrInvalidPTX}
	}
	return int64(c.Imm), nil
}

// constantNext reports whether a constant begins at the current token.
func (p *parser) constantNext() bool {
	switch {
	case p.tok.kind == number || p.tok.is("WARP_SZ") || p.tok.is("(") || p.tok.is("~"):
		return true
	case p.tok.is("-") || p.tok.is("+") || p.tok.is("!"):
		return !p.lex.registerNext()
	}
	return false
}

// conditional parses "a ? b : c" and operators of higher precedence.
func (p *parser) conditional(depth int) (constantValue, error) {
	c, err := p.binary(1, depth)
	if err != nil || !p.accept("?") {
		return c, err
	}
	then, err := p.conditional(depth + 1)
	if err != nil {
		return c, err
	}
	if err := p.expect(":"); err != nil {
		return c, err
	}
	otherwise, err := p.conditional(depth + 1)
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
func (p *parser) operator() string {
	if p.tok.kind == word && p.tok.text[0] == '%' { // the lexer takes it for the beginning of a name
		p.lex.pos -= len(p.tok.text) - 1
		p.tok.text = "%"
		return "%"
	}
	if p.tok.kind != punct {
		return ""
	}
	if next := p.lex.at(p.lex.pos); next == p.tok.text[0] || next == '=' {
		if two := p.tok.text + string(next); precedence(two) != 0 {
			return two
		}
	}
	return p.tok.text
}

// binary parses operators of precedence level and higher.
func (p *parser) binary(level, depth int) (constantValue, error) {
	a, err := p.unary(depth)
	for err == nil {
		op := p.operator()
		if precedence(op) < max(level, 1) {
			break
		}
		for range op {
			p.next()
		}
		var b constantValue
		if b, err = p.binary(precedence(op)+1, depth+1); err == nil {
			a, err = p.apply(op, a, b)
		}
	}
	return a, err
}

// unary parses signs, negations, casts and parentheses.
func (p *parser) unary(depth int) (c constantValue, err error) {
	if depth > maxDepth {
		return c, p.fail("expression is nested too deeply")
	}
	op := p.tok.text
	switch {
	case p.tok.kind == number || p.tok.is("WARP_SZ"):
		return p.literal()
	case p.accept("("):
		if p.tok.is(".s64") || p.tok.is(".u64") {
			return p.cast(depth)
		}
		if c, err = p.conditional(depth + 1); err != nil {
			return c, err
		}
		return c, p.expect(")")
	case !p.tok.is("-") && !p.tok.is("+") && !p.tok.is("!") && !p.tok.is("~"):
		return c, p.fail("%q where a number is expected", op)
	}
	p.advance()
	if c, err = p.unary(depth + 1); err != nil {
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
		return c, p.fail("'~' of a float")
	case op == "~":
		c.Imm, c.unsigned = ^c.Imm, true
	}
	return c, nil
}

// cast parses ".s64) a" or ".u64) a".
func (p *parser) cast(depth int) (c constantValue, err error) {
	unsigned := p.advance().text == ".u64"
	if err = p.expect(")"); err != nil {
		return c, err
	}
	if c, err = p.unary(depth + 1); err == nil && c.isFloat() {
		err = p.fail("cast of a float")
	}
	c.unsigned = unsigned
	return c, err
}

// literal parses a number without its sign.
func (p *parser) literal() (c constantValue, err error) {
	if p.accept("WARP_SZ") {
		return signedConstant(32), nil
	}
	text := p.tok.text
	c, ok := immediate(text)
	if !ok {
		return c, p.fail("malformed number %q", text)
	}
	p.next()
	return c, nil
}

// apply calculates with integers if both are, otherwise with floats.
func (p *parser) apply(op string, a, b constantValue) (constantValue, error) {
	switch op {
	case "&&":
		return truth(!a.zero() && !b.zero()), nil
	case "||":
		return truth(!a.zero() || !b.zero()), nil
	}
	if a.isFloat() || b.isFloat() {
		return p.applyFloat(op, a.float(), b.float())
	}
	if (op == "/" || op == "%") && b.Imm == 0 {
		return a, p.fail("division by zero in a constant expression")
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

func (p *parser) applyFloat(op string, a, b float64) (constantValue, error) {
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
		return constantValue{}, p.fail("%q of floats in a constant expression", op)
	}
	return constantValue{Kind: Float64, Imm: math.Float64bits(a)}, nil
}
