package ptx

import (
	"strconv"
	"strings"
)

// spaceOf is the state space of a variable directive.
var spaceOf = map[string]Space{
	".global": Global, ".const": Const, ".shared": Shared, ".local": Local, ".param": ParamSpace,
	".tex": Global, // what .global .texref was called before
}

// variables reads ".space .align n .type name[…] = …, …;" and declares them.
func (p *parser) variables(linkage Linkage) error {
	word := p.advance().text
	v := Var{Space: spaceOf[word], Linkage: linkage, Extern: linkage == ExternLinkage, Line: p.tok.line}
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
			return p.fail("variables with .attribute, as managed memory, are not supported")
		case ".align":
			p.advance()
			n, err := p.number(1 << 16)
			if err != nil || n == 0 || n&(n-1) != 0 {
				return p.fail("alignment is not a power of two")
			}
			if !pointer { // else it is that of what the parameter points to
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
	for p.accept("[") {
		if p.accept("]") {
			v.Size, v.Extern = 0, true // its size is what the launch or the initialiser says
			continue
		}
		n, err := p.number(maxVarBytes)
		if err != nil {
			return err
		}
		if v.Size *= n; v.Size > maxVarBytes {
			return p.fail("variable %s is too large", name)
		}
		if err := p.expect("]"); err != nil {
			return err
		}
	}
	if p.accept("=") {
		return p.initialiser(v)
	}
	return nil
}

// initialiser reads "= value" or "= {…}".
func (p *parser) initialiser(v *Var) error {
	if v.Space != Global && v.Space != Const {
		return p.fail("variable %s can't be initialised", v.Name)
	}
	if p.init += v.Size; p.init > maxInitBytes {
		return p.fail("more than %d bytes of initial values", maxInitBytes)
	}
	unsized := v.Size == 0
	err := p.values(v, 0)
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

func (p *parser) values(v *Var, depth int) error {
	if depth > maxDepth {
		return p.fail("initialiser is nested too deeply")
	}
	if !p.accept("{") {
		return p.value(v)
	}
	for !p.accept("}") {
		if err := p.values(v, depth+1); err != nil {
			return err
		}
		if !p.accept(",") && !p.tok.is("}") {
			return p.fail("%q within an initialiser", p.tok.text)
		}
	}
	return nil
}

// value reads one number or address and appends it to v.Init.
func (p *parser) value(v *Var) error {
	size := v.Type.Size()
	if int64(len(v.Init)+size) > max(v.Size, maxInitBytes-p.init) {
		return p.fail("too many initial values for %s", v.Name)
	}
	var bits uint64
	switch {
	case p.tok.kind == word:
		r, err := p.reference()
		if err != nil {
			return err
		}
		if p.refs++; p.refs > maxRefs || size < 4 || r.Func != nil && size < 8 {
			return p.fail("the address of a variable or a function can't be an initial value here")
		}
		r.Offset, r.Size = int64(len(v.Init)), size
		v.Refs = append(v.Refs, r)
	default:
		o, err := p.literal()
		if err != nil {
			return err
		}
		bits = o.Bits(v.Type)
	}
	for range size {
		v.Init = append(v.Init, byte(bits))
		bits >>= 8
	}
	return nil
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
	for p.tok.is("+") || p.tok.is("-") {
		minus := p.advance().text == "-"
		n, err := p.number(maxVarBytes)
		if err != nil {
			return r, err
		}
		if minus {
			n = -n
		}
		r.Add += n
	}
	return r, nil
}

// literal reads a number with its sign.
func (p *parser) literal() (Operand, error) {
	minus := false
	for p.tok.is("-") || p.tok.is("+") {
		minus = minus != (p.advance().text == "-")
	}
	if p.tok.kind != number {
		if p.tok.is("WARP_SZ") {
			p.advance()
			return Operand{Kind: Integer, Imm: 32}, nil
		}
		return Operand{}, p.fail("%q where a number is expected", p.tok.text)
	}
	o, ok := immediate(p.tok.text)
	if !ok {
		return o, p.fail("malformed number %q", p.tok.text)
	}
	p.advance()
	if minus {
		switch o.Kind {
		case Float32:
			o.Imm ^= 1 << 31
		case Float64:
			o.Imm ^= 1 << 63
		default:
			o.Imm = -o.Imm
		}
	}
	return o, nil
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
	if one == v && v.Space != Shared {
		p.mod.Globals = append(p.mod.Globals, v)
	}
	return nil
}
