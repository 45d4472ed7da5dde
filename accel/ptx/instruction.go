package ptx

import (
	"fmt"
	"strings"
)

// instructionParser parses instructions and packs them. It has the reader, not a reference to it: most of the text is
// instructions, and each access would load the reference.
type instructionParser struct {
	operandParser
	when    When
	opcodes opcodeTable
	// flush is set if the target is so old that f32 is always flushed.
	flush bool
}

// instruction parses "@p op a, b, c;".
func (p *instructionParser) instruction() error {
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
	op, err := p.opcodes.opcode(text)
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
func (p *instructionParser) unknown(in *Inst, why error) error {
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

func (p *instructionParser) branch(in *Inst) error {
	line := p.tok.line
	name, err := p.name()
	if err != nil {
		return err
	}
	in.Args = p.destination(name, line)
	return nil
}

// callee parses "(returns), name, (arguments)", or a register and a prototype.
func (p *instructionParser) callee(in *Inst) error {
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

// match finds the form that fits and checks the operands against it.
func (p *instructionParser) match(in *Inst, op *opcode, text string) error {
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

var opCall, opBra, opBrx = OpOf("call"), OpOf("bra"), OpOf("brx")
