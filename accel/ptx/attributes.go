package ptx

// attributes parses the attributes between parameters and body.
func (p *declarationParser) attributes(f *Func) error {
	for p.tok.kind == word {
		var err error
		switch p.tok.text {
		case ".maxntid":
			f.MaxNTid, err = p.dimensions()
		case ".reqntid":
			f.ReqNTid, err = p.dimensions()
		case ".reqnctapercluster":
			var blocks [3]uint32
			f.clustered = true
			if blocks, err = p.dimensions(); err == nil && blocks != [3]uint32{1, 1, 1} {
				err = p.fail("clusters of several blocks are not supported")
			}
		case ".minnctapersm", ".maxnreg", ".maxnctapersm", ".maxclusterrank", ".abi_preserve", ".abi_preserve_control":
			p.advance()
			_, err = p.number(1 << 20)
		case ".noreturn", ".explicitcluster", ".blocksareclusters":
			p.advance()
		case ".pragma":
			for !p.tok.is(";") && p.tok.kind != end {
				p.advance()
			}
			p.accept(";")
		default:
			return nil // of the module, after a declaration
		}
		if err == nil && f.MaxNTid[0] != 0 && f.ReqNTid[0] != 0 {
			err = p.fail(".maxntid and .reqntid can't both be given")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dimensions parses a directive with up to three numbers; missing ones are 1.
func (t *tokens) dimensions() ([3]uint32, error) {
	t.advance()
	d := [3]uint32{1, 1, 1}
	for i := range d {
		n, err := t.number(1 << 20)
		if err != nil {
			return d, err
		}
		d[i] = uint32(n)
		if !t.accept(",") {
			break
		}
	}
	return d, nil
}

// attribute parses ".attribute(.managed, .unified(n, n))", if it is there. The program chooses the place of managed
// memory; the device treats it as its own.
func (t *tokens) attribute() error {
	if !t.accept(".attribute") {
		return nil
	}
	if err := t.expect("("); err != nil {
		return err
	}
	for !t.accept(")") {
		switch {
		case t.accept(".managed"):
		case t.accept(".unified"):
			if err := t.uuid(); err != nil {
				return err
			}
		default:
			return t.fail("unknown attribute %s", t.tok.text)
		}
		if !t.accept(",") && !t.tok.is(")") {
			return t.fail("%q within attributes", t.tok.text)
		}
	}
	return nil
}

// uuid reads "(n, n)".
func (t *tokens) uuid() error {
	for _, before := range []string{"(", ","} {
		if err := t.expect(before); err != nil {
			return err
		}
		if _, err := t.expression(); err != nil {
			return err
		}
	}
	return t.expect(")")
}

// alias parses ".alias name, function;": a function that is declared before gets the body of one that is defined
// before.
func (p *parser) alias() error {
	p.advance()
	name, err := p.name()
	if err != nil {
		return err
	}
	if err := p.expect(","); err != nil {
		return err
	}
	of, err := p.name()
	if err != nil {
		return err
	}
	declared, known := p.mod.Funcs[name], p.mod.Funcs[of]
	switch {
	case declared == nil || declared.Defined:
		return p.fail("alias %s is not declared as a function without a body", name)
	case known == nil || !known.Defined || known.Entry:
		return p.fail("%s, which alias %s stands for, is not a function defined before", of, name)
	case !sameShape(declared, known):
		return p.fail("alias %s has other parameters than %s", name, of)
	}
	if p.insts += known.code.count; p.insts > maxInsts {
		return p.fail("more than %d instructions", maxInsts)
	}
	f := *known
	f.Name, f.Linkage, f.Line = name, declared.Linkage, p.tok.line
	if err := p.define(&f); err != nil {
		return err
	}
	return p.expect(";")
}
