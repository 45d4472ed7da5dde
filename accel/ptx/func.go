package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// function reads an entry or a device function, or its declaration.
func (p *parser) function(linkage Linkage) error {
	f := &Func{Entry: p.tok.text == ".entry", Linkage: linkage, Line: p.tok.line, Target: p.mod.Target}
	if p.funcs++; p.funcs > maxFuncs {
		return p.fail("more than %d functions", maxFuncs)
	}
	p.advance()
	p.fn, p.scope = f, newScope(nil)
	p.pack.begin()
	defer func() { p.fn, p.scope = nil, nil }()
	err := p.attribute()
	if err != nil {
		return err
	}
	if !f.Entry && p.tok.is("(") {
		if f.Returns, err = p.declarations.params(f, true); err != nil {
			return err
		}
	}
	if f.Name, err = p.name(); err != nil {
		return err
	}
	f.Name = strings.Clone(f.Name)
	if err = p.rest(f); err != nil {
		return f.failed(err)
	}
	return p.define(f)
}

// rest reads a function from the end of its name on.
func (p *parser) rest(f *Func) (err error) {
	if p.tok.is("(") {
		if f.Params, err = p.declarations.params(f, false); err != nil {
			return err
		}
	}
	if err = p.declarations.attributes(f); err != nil {
		return err
	}
	if !p.tok.is("{") {
		p.accept(";") // which old compilers leave out
		return nil
	}
	f.Defined = true
	if p.mod.Funcs[f.Name] == nil {
		p.mod.Funcs[f.Name] = f // it may call itself
	}
	if f.Entry {
		if err = p.declarations.inheritRegisters(); err != nil {
			return err
		}
	}
	if err = p.body(); err != nil {
		return err
	}
	f.source.first, f.source.last, f.source.files = f.Line, p.tok.line, p.files
	return nil
}

// failed returns the error with the function's name.
func (f *Func) failed(err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	what := "function"
	if f.Entry {
		what = "kernel"
	}
	return &Error{e.Line, fmt.Sprintf("%s %.100s: %s", what, f.Name, e.Msg), e.Result}
}

// params reads a parenthesised list of parameters and lays them out.
func (p *declarationParser) params(f *Func, returned bool) ([]Param, error) {
	list := p.parameters[:0]
	p.advance()
	offset := 0
	for !p.accept(")") {
		if !p.tok.is(".param") {
			p.split()
		}
		inRegister := p.tok.is(".reg") && !f.Entry
		if !p.tok.is(".param") && !inRegister {
			return nil, p.fail("parameters in %q are not supported", p.tok.text)
		}
		if p.vars++; p.vars > maxVars {
			return nil, p.fail("more than %d variables", maxVars)
		}
		v := &Var{Space: ParamSpace, Line: p.tok.line, Kernel: f.Entry}
		p.advance()
		if v.Pred = inRegister && p.accept(".pred"); v.Pred {
			v.Type, v.Size, v.Align = U32, 4, 4
		} else if err := p.varType(v); err != nil {
			return nil, err
		}
		if v.Opaque != Plain {
			return nil, p.fail("parameters that are %s are not supported", v.Opaque)
		}
		one := v.Size
		if err := p.variable(v); err != nil {
			return nil, err
		}
		if inRegister && v.Size != one {
			return nil, p.fail("parameter %s is not a single register", v.Name)
		}
		offset = (offset + v.Align - 1) &^ (v.Align - 1)
		v.Offset = int64(offset)
		if int64(offset)+v.Size > maxParamBytes {
			return nil, p.fail("more than %d bytes of parameters", maxParamBytes)
		}
		if inRegister {
			if err := p.registerParam(v, returned); err != nil {
				return nil, err
			}
		}
		list = append(list, Param{v.Name, int(v.Size), v.Align, offset, v.Type, v})
		offset += int(v.Size)
		if _, taken := p.scope.vars[v.Name]; taken && v.Name != "_" {
			return nil, p.fail("%s is declared twice", v.Name)
		}
		if !inRegister {
			p.scope.vars[v.Name] = v
		}
		if !p.accept(",") && !p.tok.is(")") {
			return nil, p.fail("%q within parameters", p.tok.text)
		}
	}
	if f.Entry {
		f.ParamBytes = offset
	}
	p.parameters = list
	return slices.Clone(list), nil
}

// body reads the statements between braces.
func (p *parser) body() error {
	if err := p.expect("{"); err != nil {
		return err
	}
	p.loadRegisterParams(p.tok.line)
	if err := p.block(); err != nil {
		return err
	}
	// Falling off the end is a return.
	p.storeRegisterReturns(&Inst{Line: int32(p.tok.line), Guard: None})
	p.emit(&Inst{Line: int32(p.tok.line), Guard: None, Op: opRet})
	if err := p.leave(); err != nil {
		return err
	}
	p.fn.code = p.pack.end()
	return nil
}

var opRet = OpOf("ret")

func (p *parser) block() error {
	if p.depth++; p.depth > maxDepth {
		return p.fail("braces are nested too deeply")
	}
	for !p.tok.is("}") {
		if err := p.statement(); err != nil {
			return err
		}
	}
	p.depth--
	p.advance()
	return nil
}

func (p *parser) statement() error {
	switch {
	case p.tok.kind == end:
		return p.fail("function without an end")
	case p.accept(";"):
		return nil
	case p.accept("{"):
		p.scope = newScope(p.scope)
		if err := p.block(); err != nil {
			return err
		}
		return p.leave()
	case p.tok.kind == word && p.tok.text[0] == '.':
		return p.local()
	case p.tok.is("@") && p.lex.at(p.lex.pos) == '@':
		return p.noise() // @@DWARF
	case p.tok.is("@"):
		return p.instruction()
	case p.tok.kind == word && p.colonFollows():
		name := p.advance().text
		p.advance()
		if _, taken := p.scope.labels[name]; taken {
			return p.fail("label %s is defined twice", name)
		}
		if p.labels++; p.labels > maxLabels {
			return p.fail("more than %d labels", maxLabels)
		}
		p.scope.setLabel(name, p.pack.count)
		if p.tok.is(".branchtargets") {
			return p.branchTargets(name)
		}
		if p.tok.is(".callprototype") || p.tok.is(".calltargets") {
			return p.prototype(name)
		}
		return nil
	}
	return p.instruction()
}

// local reads a directive within a body.
func (p *parser) local() error {
	if p.tok.text != ".reg" {
		if _, ok := spaceOf[p.tok.text]; !ok {
			switch p.tok.text {
			case ".loc", ".file", ".pragma":
				return p.noise()
			}
			p.split()
		}
	}
	switch p.tok.text {
	case ".reg":
		return p.declarations.registers()
	case ".loc", ".file", ".pragma":
		return p.noise()
	case ".extern":
		p.advance()
		return p.declarations.variables(ExternLinkage)
	}
	if _, ok := spaceOf[p.tok.text]; ok {
		return p.declarations.variables(StaticLinkage)
	}
	return p.fail("unknown directive %s", p.tok.text)
}

// define adds a function to the module.
func (p *parser) define(f *Func) error {
	m := p.mod
	p.all = append(p.all, f)
	if old := m.Funcs[f.Name]; old != nil && old != f {
		if old.Defined && f.Defined {
			return p.fail("%s is defined twice", f.Name)
		}
		old.Linkage = max(old.Linkage, f.Linkage)
		f.Linkage = old.Linkage
		if !f.Defined {
			return nil
		}
		if len(old.Params) != len(f.Params) || len(old.Returns) != len(f.Returns) || old.Entry != f.Entry {
			return p.fail("%s differs from its declaration", f.Name)
		}
	}
	m.Funcs[f.Name] = f
	if f.Entry && f.Defined {
		m.Kernels = append(m.Kernels, f)
	}
	return nil
}
