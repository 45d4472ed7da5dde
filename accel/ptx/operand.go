package ptx

import (
	"fmt"
	"slices"
	"strings"
)

// instruction parses "@p op a, b, c;".
func (p *parser) instruction() error {
	in := Inst{Line: int32(p.tok.line), Guard: None}
	p.slab, p.stack = p.slab[:0], p.stack[:0] // the instruction before is packed
	if p.accept("@") {
		in.Not = p.accept("!")
		name, err := p.name()
		if err != nil {
			return err
		}
		r, ok := p.scope.register(name)
		if !ok || p.fn.Regs[r] != Pred {
			return p.fail("guard %s is not a predicate", name)
		}
		in.Guard = r
		in.Line = int32(p.tok.line)
	}
	text, err := p.name()
	if err != nil {
		return err
	}
	for p.tok.kind == word && p.tok.text[0] == '.' { // modifiers may stand apart
		if len(text) > maxDirectives {
			return p.fail("too many modifiers")
		}
		text += p.advance().text
	}
	if strings.HasSuffix(text, ".const") && p.tok.is("[") { // as "ld.const[2].u32"
		if err := p.bank(text); err != nil {
			return err
		}
		text += p.advance().text
	}
	op, err := p.opcode(text)
	if err != nil {
		return p.unknown(&in, err)
	}
	line, guard, not := in.Line, in.Guard, in.Not
	in = op.inst
	in.Line, in.Guard, in.Not = line, guard, not
	if p.insts++; p.insts > maxInsts {
		return p.fail("more than %d instructions", maxInsts)
	}
	if p.when == AtLaunch && len(op.forms) == 0 {
		return p.unknown(&in, fmt.Errorf("unknown form %s", text))
	}
	switch in.Op {
	case opCall:
		err = p.callee(&in)
	case opBra:
		err = p.branch(&in)
	case opBrx:
		return p.indexed(&in)
	default:
		err = p.operands(&in)
	}
	if err != nil {
		return err
	}
	if err := p.match(&in, op, text); err != nil {
		return &Error{int(in.Line), err.Error(), ErrInvalidPTX}
	}
	if in.Op == opRet {
		if p.storeRegisterReturns(&in); p.insts > maxInsts {
			return p.fail("more than %d instructions", maxInsts)
		}
	}
	p.fn.allocates = p.fn.allocates || in.Op == opAlloca
	if op.template < 0 || in.Form != op.form || in.Mods != op.mods {
		op.form, op.mods, op.template = in.Form, in.Mods, p.pack.templates.of(&in)
	}
	p.pack.add(&in, op.template)
	return p.expect(";")
}

// unknown refuses an unknown instruction: the module, or the function alone, which is parsed on after it.
func (p *parser) unknown(in *Inst, why error) error {
	if p.when == AtLoad {
		return p.fail("%s", why)
	}
	if p.fn.Refusal == nil {
		p.fn.Refusal = &Error{int(in.Line), strings.Clone(why.Error()), ErrInvalidPTX}
	}
	for p.tok.kind != end && !p.tok.is(";") {
		p.advance()
	}
	return p.expect(";")
}

var opCall, opBra, opBrx = OpOf("call"), OpOf("bra"), OpOf("brx")

// keep copies operands to storage that lives until the instruction is packed.
func (p *parser) keep(args ...Operand) []Operand {
	if cap(p.slab)-len(p.slab) < len(args) {
		p.slab = make([]Operand, 0, max(64, len(args)))
	}
	n := len(p.slab)
	p.slab = append(p.slab, args...)
	return p.slab[n:len(p.slab):len(p.slab)]
}

func (p *parser) operands(in *Inst) error {
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

func (p *parser) branch(in *Inst) error {
	line := p.tok.line
	name, err := p.name()
	if err != nil {
		return err
	}
	in.Args = p.destination(name, line)
	return nil
}

// destination returns the operand of a branch to a label.
func (p *parser) destination(label string, line int) []Operand {
	n := len(p.pack.targets)
	p.pack.targets = append(p.pack.targets, 0)
	p.scope.pending = append(p.scope.pending, fixup{n, label, line})
	return p.keep(Operand{Kind: Label, Reg: None, Pair: None, Imm: uint64(n)})
}

// emit appends an instruction to the function.
func (p *parser) emit(in *Inst) { p.pack.add(in, p.pack.templates.of(in)) }

// callee parses "(returns), name, (arguments)", or a register and a prototype.
func (p *parser) callee(in *Inst) error {
	o := Operand{Kind: Callee, Reg: None, Pair: None}
	var err error
	if p.tok.is("(") {
		if o.Elems, err = p.list("(", ")", 0); err != nil {
			return err
		}
		o.Returns = len(o.Elems)
		if err = p.expect(","); err != nil {
			return err
		}
	}
	name, err := p.called(&o)
	if err != nil {
		return err
	}
	if o.Returns != len(o.Func.Returns) || len(o.Elems)-o.Returns != len(o.Func.Params) {
		return p.fail("call of %s with the wrong number of operands", name)
	}
	check := checker{p.fn}
	for i := range o.Elems {
		if returned := i < o.Returns; returned && !check.passed(&o.Elems[i], &o.Func.Returns[i], true) || !returned && !check.passed(&o.Elems[i], &o.Func.Params[i-o.Returns], false) {
			return p.fail("operand %d of the call of %s doesn't fit", i+1, name)
		}
	}
	in.Args = p.keep(o)
	return nil
}

// list parses operands between brackets.
func (p *parser) list(open, shut string, depth int) ([]Operand, error) {
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

func (p *parser) operand(depth int) (o Operand, err error) {
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
func (p *parser) displaced(o Operand) (Operand, error) {
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
func (p *parser) named() (o Operand, err error) {
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
func (p *parser) subscript(v *Var) (uint64, error) {
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

func (p *parser) find(name string) *Var {
	if v := p.scope.variable(name); v != nil {
		return v
	}
	v := p.mod.byName[name]
	if v != nil {
		v.used = true
	}
	return v
}

// address parses "[base+n]", or "[texture, {coordinates}]".
func (p *parser) address(depth int) (o Operand, err error) {
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
func (p *parser) coordinates(depth int) ([]Operand, error) {
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

// match finds the form that fits and checks the operands against it.
func (p *parser) match(in *Inst, op *opcode, text string) error {
	var why error
	check := checker{p.fn}
	for _, f := range op.forms {
		if p.flush && f.allowed.Has(FTZ) && (in.Type == F32 || in.Type2 == F32) {
			in.Mods.Add(FTZ)
		}
		form, err := check.operands(in, f)
		if err == nil {
			in.Form = form
			return nil
		}
		why = err
	}
	if why != nil {
		return fmt.Errorf("%s: %w", text, why)
	}
	return fmt.Errorf("unknown form %s", text)
}
