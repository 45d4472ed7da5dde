package ptx

import (
	"math/bits"
	"strconv"
	"strings"
)

// spaceOf is the state space of a variable directive.
var spaceOf = map[string]Space{
	".global": Global, ".const": Const, ".shared": Shared, ".local": Local, ".param": ParamSpace,
	".tex": Global, // the older spelling of .global .texref
}

// variables reads ".space .align n .type name[…] = …, …;" and declares them.
func (p *parser) variables(linkage Linkage) error {
	word := p.advance().text
	v := Var{Space: spaceOf[word], Linkage: linkage, Extern: linkage == ExternLinkage, Line: p.tok.line}
	if err := p.bank(word); err != nil {
		return err
	}
	if err := p.varType(&v); err != nil {
		return err
	}
	if word == ".tex" {
		v.beOpaque(TexRef)
	}
	if v.Opaque != Plain && (v.Space != Global || p.fn != nil) {
		return p.fail("%s variables are .global ones of the module", v.Opaque)
	}
	for {
		one := v
		if err := p.variable(&one); err != nil {
			return err
		}
		declare := p.declare
		if p.accept("<") {
			declare = p.declareMany
		}
		if err := declare(&one); err != nil {
			return err
		}
		if !p.accept(",") {
			return p.expect(";")
		}
	}
}

// bank parses the number of a bank after ".const", which old text specifies. All banks are one here.
func (t *tokens) bank(word string) error {
	if !strings.HasSuffix(word, ".const") || !t.accept("[") {
		return nil
	}
	if _, err := t.number(10); err != nil {
		return err
	}
	return t.expect("]")
}

// declareMany reads "n>" and declares variables name0 up to name(n-1).
func (p *parser) declareMany(v *Var) error {
	n, err := p.number(maxVars)
	if err != nil {
		return err
	}
	for i := range n {
		one := *v
		one.Name = v.Name + strconv.FormatInt(i, 10)
		if err := p.declare(&one); err != nil {
			return err
		}
	}
	return p.expect(">")
}

// varType reads alignment, vector and type; Size becomes that of one element.
func (p *parser) varType(v *Var) error {
	lanes, pointer := int64(1), false
	for p.tok.kind == word && p.tok.text[0] == '.' {
		p.split()
		text := p.tok.text
		if n, ok := vectorTypes[text]; ok {
			lanes = n
			p.advance()
			continue
		}
		switch text {
		case ".attribute":
			if err := p.attribute(); err != nil {
				return err
			}
			continue
		case ".align":
			p.advance()
			n, err := p.size(maxAlign)
			if err != nil || n == 0 || n&(n-1) != 0 {
				return p.fail("alignment is not a power of two")
			}
			if !pointer { // else it is the alignment of the parameter's target
				v.Align = int(n)
			}
			continue
		case ".ptr":
			pointer = true
		case ".global", ".const", ".shared", ".local": // attributes of a pointer parameter
		default:
			if what := opaqueByName[text]; what != Plain {
				v.beOpaque(what)
				break
			}
			if text == ".b128" && lanes == 1 {
				text, lanes = ".b64", 2
			}
			t, ok := typeByName[text[1:]]
			if !ok || t == Pred || !t.declarable() {
				return p.fail("unknown type %s", text)
			}
			if v.Type == NoType {
				v.Type = t
			}
		}
		p.advance()
	}
	if v.Type == NoType {
		return p.fail("variable without a type")
	}
	v.Size = int64(v.Type.Size()) * lanes
	if natural := int(v.Size); v.Align == 0 {
		v.Align = natural
	}
	return nil
}

// variable reads name, dimensions and initialiser.
func (p *parser) variable(v *Var) error {
	name, err := p.name()
	if err != nil {
		return err
	}
	v.Name, v.Line = name, p.tok.line
	if v.Opaque != Plain {
		return p.opaqueValues(v)
	}
	rows, err := p.rows(v)
	if err == nil && p.accept("=") {
		err = p.initialiser(v, rows)
	}
	return err
}

// rows parses the dimensions of an array, and returns the bytes of the whole, of one of its rows, and so on down to
// vectors. An open size is 0: the launch or the initialiser determines it.
func (p *parser) rows(v *Var) (rows []int64, err error) {
	for p.accept("[") {
		n := int64(0)
		if v.Extern = v.Extern || p.tok.is("]"); !p.tok.is("]") {
			if n, err = p.size(maxVarBytes); err != nil {
				return nil, err
			}
		}
		if rows = append(rows, n); len(rows) > maxDepth {
			return nil, p.fail("variable %s has too many dimensions", v.Name)
		}
		if err := p.expect("]"); err != nil {
			return nil, err
		}
	}
	one := v.Size
	if len(rows) == 1 {
		v.Element = one
	}
	for i := len(rows) - 1; i >= 0; i-- {
		if v.Size *= rows[i]; v.Size > maxVarBytes {
			return nil, p.fail("variable %s is too large", v.Name)
		}
		rows[i] = v.Size
	}
	if one > int64(v.Type.Size()) {
		rows = append(rows, one)
	}
	return rows, nil
}

// initialiser reads "= value" or "= {…}".
func (p *parser) initialiser(v *Var, rows []int64) error {
	if v.Space != Global && v.Space != Const {
		return p.fail("variable %s can't be initialised", v.Name)
	}
	if p.init += v.Size; p.init > maxInitBytes {
		return p.fail("more than %d bytes of initial values", maxInitBytes)
	}
	unsized := v.Size == 0
	err := p.values(v, rows, 0)
	if err != nil {
		return err
	}
	if unsized {
		v.Size, v.Extern = int64(len(v.Init)), false
		p.init += v.Size
	}
	if int64(len(v.Init)) > v.Size {
		return p.fail("too many initial values for %s", v.Name)
	}
	v.Init = append(v.Init, make([]byte, v.Size-int64(len(v.Init)))...)
	return nil
}

// values reads a value, or values between braces: those of a row, of which the
// rest is zero.
func (p *parser) values(v *Var, rows []int64, depth int) error {
	if depth > maxDepth {
		return p.fail("initialiser is nested too deeply")
	}
	if !p.accept("{") {
		return p.value(v)
	}
	begin := int64(len(v.Init))
	for !p.accept("}") {
		if err := p.values(v, rows[min(1, len(rows)):], depth+1); err != nil {
			return err
		}
		if !p.accept(",") && !p.tok.is("}") {
			return p.fail("%q within an initialiser", p.tok.text)
		}
	}
	if depth == 0 || len(rows) == 0 {
		return nil
	}
	rest := begin + rows[0] - int64(len(v.Init))
	if rest < 0 || begin+rows[0] > p.room(v) {
		return p.fail("too many initial values for %s", v.Name)
	}
	v.Init = append(v.Init, make([]byte, rest)...)
	return nil
}

// room returns the maximum number of bytes of a variable's initial values.
func (p *parser) room(v *Var) int64 { return max(v.Size, maxInitBytes-p.init) }

// value reads one number or address and appends it to v.Init.
func (p *parser) value(v *Var) error {
	size := v.Type.Size()
	if int64(len(v.Init)+size) > p.room(v) {
		return p.fail("too many initial values for %s", v.Name)
	}
	var value uint64
	switch {
	case p.tok.kind == word && !p.tok.is("WARP_SZ"):
		r, err := p.reference()
		if err != nil {
			return err
		}
		if size < 4 || r.Func != nil && size < 8 {
			return p.fail("the address of a variable or a function can't be an initial value here")
		}
		if err := p.refer(v, r, size); err != nil {
			return err
		}
	case p.tok.kind == number && p.lex.after() == '(':
		r, err := p.byteOfAddress()
		if err != nil {
			return err
		}
		if size != 1 {
			return p.fail("a byte of an address is the initial value of a larger type")
		}
		if err := p.refer(v, r, size); err != nil {
			return err
		}
	default:
		o, err := p.expression()
		if err != nil {
			return err
		}
		value = o.Bits(v.Type)
	}
	for range size {
		v.Init = append(v.Init, byte(value))
		value >>= 8
	}
	return nil
}

// refer appends an address to the initial value.
func (p *parser) refer(v *Var, r Ref, size int) error {
	if p.refs++; p.refs > maxRefs {
		return p.fail("more than %d addresses in initial values", maxRefs)
	}
	r.Offset, r.Size = int64(len(v.Init)), size
	v.Refs = append(v.Refs, r)
	return nil
}

// byteOfAddress parses "0xff00(name)" and the like: the byte of an address that the mask selects.
func (p *parser) byteOfAddress() (r Ref, err error) {
	mask, ok := integer(p.tok.text)
	shift := bits.TrailingZeros64(mask)
	if !ok || shift%8 != 0 || mask>>shift != 0xff {
		return r, p.fail("%s is no mask of a byte", p.tok.text)
	}
	p.advance()
	if err = p.expect("("); err != nil {
		return r, err
	}
	if r, err = p.reference(); err != nil {
		return r, err
	}
	r.Shift = shift
	return r, p.expect(")")
}

// reference reads "name", "name+n" or "generic(name)+n".
func (p *parser) reference() (r Ref, err error) {
	name, err := p.name()
	if err != nil {
		return r, err
	}
	if name == "generic" && p.accept("(") {
		r.Generic = true
		if name, err = p.name(); err != nil {
			return r, err
		}
		if err = p.expect(")"); err != nil {
			return r, err
		}
	}
	if r.Func = p.mod.Funcs[name]; r.Func != nil {
		return r, p.pointed(r.Func)
	}
	if r.Var = p.mod.byName[name]; r.Var == nil || r.Var.Space == Shared {
		return r, p.fail("initialiser refers to %s, which is not a variable declared before", name)
	}
	r.Var.used = true
	add, err := p.plus()
	r.Add = int64(add)
	return r, err
}

// declare puts a variable into the scope it was read in.
func (p *parser) declare(v *Var) error {
	if p.vars++; p.vars > maxVars {
		return p.fail("more than %d variables", maxVars)
	}
	if p.fn != nil {
		if _, taken := p.scope.vars[v.Name]; taken {
			return p.fail("%s is declared twice", v.Name)
		}
		if v.Space == Global || v.Space == Const {
			v.Name = strings.Clone(v.Name)
			p.mod.Globals = append(p.mod.Globals, v)
		}
		p.scope.vars[v.Name] = v
		p.fn.Vars = append(p.fn.Vars, v)
		return nil
	}
	one, err := p.join.variable(p.mod, v)
	if err != nil {
		return err
	}
	p.mod.byName[v.Name] = one
	switch {
	case one != v || v.Space == Shared:
	case v.Space == Local:
		p.mod.locals = append(p.mod.locals, v)
	default:
		p.mod.Globals = append(p.mod.Globals, v)
	}
	return nil
}
