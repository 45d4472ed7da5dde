package ptx

import (
	"strconv"
	"strings"
)

// spaceOf is the state space of a variable directive.
var spaceOf = map[string]Space{
	".global": Global, ".const": Const, ".shared": Shared, ".local": Local, ".param": ParamSpace,
	".tex": Global, // the older spelling of .global .texref
}

// declarationParser parses what a module or a function declares: variables, registers and parameters.
type declarationParser struct {
	*reader
	initialisers initialiserParser
	vars         int     // declared so far, parameters included
	parameters   []Param // of the current list
}

// variables reads ".space .align n .type name[…] = …, …;" and declares them.
func (p *declarationParser) variables(linkage Linkage) error {
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
func (p *declarationParser) declareMany(v *Var) error {
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
func (p *declarationParser) varType(v *Var) error {
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
func (p *declarationParser) variable(v *Var) error {
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
		err = p.initialisers.initialiser(v, rows)
	}
	return err
}

// rows parses the dimensions of an array, and returns the bytes of the whole, of one of its rows, and so on down to
// vectors. An open size is 0: the launch or the initialiser determines it.
func (p *declarationParser) rows(v *Var) (rows []int64, err error) {
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

// declare puts a variable into the scope it was read in.
func (p *declarationParser) declare(v *Var) error {
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
