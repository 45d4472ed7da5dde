package ptx

import "slices"

// operandParser parses operands.
type operandParser struct {
	reader
	stack []Operand // of the lists that are being read
}

// operands parses the operands of an instruction.
func (p *operandParser) operands(in *Inst) error {
	for !p.tok.is(";") {
		o, err := p.operand(0)
		if err != nil {
			return err
		}
		if p.stack = append(p.stack, o); len(p.stack) > operandLimit {
			return p.fail("too many operands")
		}
		if !p.accept(",") && !p.tok.is(";") {
			return p.fail("%q within operands", p.tok.text)
		}
	}
	in.Args = p.keep(p.stack...)
	return nil
}

// list parses operands between brackets.
func (p *operandParser) list(open, shut string, depth int) ([]Operand, error) {
	if err := p.expect(open); err != nil {
		return nil, err
	}
	first := len(p.stack)
	for !p.accept(shut) {
		o, err := p.operand(depth + 1)
		if err != nil {
			return nil, err
		}
		if p.stack = append(p.stack, o); len(p.stack)-first > operandLimit {
			return nil, p.fail("too many operands")
		}
		if !p.accept(",") && !p.tok.is(shut) {
			return nil, p.fail("%q within operands", p.tok.text)
		}
	}
	list := p.keep(p.stack[first:]...)
	p.stack = p.stack[:first]
	return list, nil
}

func (p *operandParser) operand(depth int) (o Operand, err error) {
	o.Reg, o.Pair = None, None
	if depth > maxNested {
		return o, p.fail("operands are nested too deeply")
	}
	switch {
	case p.tok.kind == word && p.tok.text != "WARP_SZ":
		if o, err = p.named(); err == nil && o.Kind == Register && (p.tok.is("+") || p.tok.is("-")) {
			return p.displaced(o)
		}
		return o, err
	case p.tok.is("{"):
		o.Kind = Vector
		o.Elems, err = p.list("{", "}", depth)
		return o, err
	case p.tok.is("["):
		return p.address(depth)
	case p.constantNext():
		return p.expression()
	case p.accept("!"):
		o, err = p.operand(depth + 1)
		if err == nil && (o.Kind != Register || o.Not) {
			err = p.fail("'!' without a predicate")
		}
		o.Not = true
		return o, err
	case p.accept("-"):
		if o, err = p.named(); err == nil && o.Kind != Register {
			err = p.fail("'-' without a register")
		}
		o.Not = true
		return o, err
	}
	return p.named()
}

// displaced parses the displacement of a register that isn't an address: an instruction of its own adds it.
func (p *operandParser) displaced(o Operand) (Operand, error) {
	t := map[int]Type{2: U16, 4: U32, 8: U64}[p.fn.Regs[o.Reg].Size()]
	if t == NoType || o.Pair != None {
		return o, p.fail("%q after a predicate", p.tok.text)
	}
	n, err := p.plus()
	if err != nil {
		return o, err
	}
	if p.regs++; p.regs > maxRegisters {
		return o, p.fail("more than %d registers", maxRegisters)
	}
	sum := Operand{Kind: Register, Reg: int32(len(p.fn.Regs)), Pair: None}
	p.fn.Regs = append(p.fn.Regs, t)
	p.insts++
	p.emit(&Inst{Line: int32(p.tok.line), Guard: None, Op: opAdd, Type: t, Form: "Aaa",
		Args: p.keep(sum, o, Operand{Kind: Integer, Reg: None, Pair: None, Imm: n})})
	return sum, nil
}

var opAdd = OpOf("add")

// named parses a register, a pair, a special register, a variable or the sink.
func (p *operandParser) named() (o Operand, err error) {
	o.Reg, o.Pair = None, None
	name, err := p.name()
	if err != nil {
		return o, err
	}
	if name == "_" {
		o.Kind = Sink
	} else if r, ok := p.scope.register(name); ok {
		o.Kind, o.Reg = Register, r
	} else if s, ok := specials[name]; ok {
		o.Kind, o.Imm = Special, uint64(s)
		return o, nil
	} else if o.Var = p.find(name); o.Var != nil {
		o.Kind = Symbol
		if o.Imm, err = p.subscript(o.Var); err != nil {
			return o, err
		}
		add, err := p.plus()
		o.Imm += add
		return o, err
	} else if o.Func = p.mod.Funcs[name]; o.Func != nil {
		o.Kind = FuncAddress
		return o, p.pointed(o.Func)
	} else if o, ok := p.part(name); ok {
		return o, nil
	} else if name == "%is_explicit_cluster" {
		o = Operand{Kind: Integer, Reg: None, Pair: None}
		if p.fn.clustered {
			o.Imm = 1
		}
		return o, nil
	} else {
		return o, p.undeclared(name)
	}
	if p.accept("|") {
		second, err := p.name()
		if err != nil {
			return o, err
		}
		if second == "_" {
			return o, nil
		}
		r, ok := p.scope.register(second)
		if !ok || p.fn.Regs[r] != Pred {
			return o, p.fail("%s is not a predicate", second)
		}
		o.Pair = r
	}
	return o, nil
}

// subscript parses "[n]" after the name of an array, if it is there, and returns the offset in the array, in bytes.
func (p *operandParser) subscript(v *Var) (uint64, error) {
	if !p.tok.is("[") {
		return 0, nil
	}
	if v.Element == 0 {
		return 0, p.fail("%s is not an array of one dimension", v.Name)
	}
	p.advance()
	n, err := p.size(maxVarBytes)
	if err != nil {
		return 0, err
	}
	return uint64(n * v.Element), p.expect("]")
}

// address parses "[base+n]", or "[texture, {coordinates}]".
func (p *operandParser) address(depth int) (o Operand, err error) {
	o.Kind, o.Reg, o.Pair = Address, None, None
	p.advance()
	if p.tok.kind == word {
		base, err := p.named()
		if err != nil {
			return o, err
		}
		switch {
		case base.Kind == Register && base.Pair == None:
			o.Reg = base.Reg
		case base.Kind == Symbol:
			o.Var, o.Imm = base.Var, base.Imm
		default:
			return o, p.fail("this can't be an address")
		}
	}
	sum, err := uint64(0), error(nil)
	if o.Reg == None && o.Var == nil && p.constantNext() {
		var n Operand
		if n, err = p.expression(); err == nil && n.Kind != Integer {
			err = p.fail("address is not an integer")
		}
		sum = n.Imm
	} else {
		sum, err = p.plus()
	}
	if err != nil {
		return o, err
	}
	o.Imm += sum
	if p.accept(",") {
		o.Kind = Texture
		if o.Elems, err = p.coordinates(depth + 1); err != nil {
			return o, err
		}
	}
	if err = p.expect("]"); err == nil {
		p.accept(".unified")
	}
	return o, err
}

// coordinates parses the operands after a texture: perhaps a sampler, then a vector or a single coordinate.
func (p *operandParser) coordinates(depth int) ([]Operand, error) {
	c, err := p.operand(depth)
	if err != nil {
		return nil, err
	}
	sampler := c
	sampled := p.accept(",")
	if sampled {
		if !(checker{p.fn}).opaque(&c, SamplerRef) || c.Imm != 0 {
			return nil, p.fail("this can't be a sampler")
		}
		sampler.Kind = Address
		if c, err = p.operand(depth); err != nil {
			return nil, err
		}
	}
	list := c.Elems
	if c.Kind != Vector {
		list = p.keep(c)
	}
	if sampled {
		list = slices.Concat(list, []Operand{sampler})
	}
	return list, nil
}
