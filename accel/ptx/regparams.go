package ptx

// registerParam is a parameter or result of a device function that is declared
// with .reg, as text before version 2.0 does: a variable like any other
// parameter, which is loaded into the register where the function begins, or
// stored from it where it returns.
type registerParam struct {
	reg      int32
	v        *Var
	returned bool
}

// registerParam declares the register of a parameter.
func (p *parser) registerParam(v *Var, returned bool) error {
	if v.Type.Size() != int(v.Size) {
		return p.fail("parameter %s is not a single register", v.Name)
	}
	if _, taken := p.scope.regs[v.Name]; taken {
		return p.fail("%s is declared twice", v.Name)
	}
	if p.regs++; p.regs > maxRegisters {
		return p.fail("more than %d registers", maxRegisters)
	}
	r := int32(len(p.fn.Regs))
	p.fn.Regs = append(p.fn.Regs, v.Type)
	p.scope.regs[v.Name] = r
	p.fn.inRegisters = append(p.fn.inRegisters, registerParam{r, v, returned})
	return nil
}

func (p *parser) loadRegisterParams() {
	for _, r := range p.fn.inRegisters {
		if !r.returned {
			p.moveRegisterParam(r, &Inst{Line: int32(p.tok.line), Guard: None}, opLd, "RM")
		}
	}
}

// storeRegisterReturns stores the results for the threads that return.
func (p *parser) storeRegisterReturns(ret *Inst) {
	for _, r := range p.fn.inRegisters {
		if r.returned {
			p.moveRegisterParam(r, ret, opSt, "Mr")
		}
	}
}

var opSt = OpOf("st")

// moveRegisterParam appends a load or a store with the guard of another instruction.
func (p *parser) moveRegisterParam(r registerParam, like *Inst, op Op, form string) {
	p.insts++
	in := Inst{Line: like.Line, Guard: like.Guard, Not: like.Not, Op: op, Type: r.v.Type, Form: form}
	in.Mods.Add(ModParam)
	reg := Operand{Kind: Register, Reg: r.reg, Pair: None}
	mem := Operand{Kind: Address, Reg: None, Pair: None, Var: r.v}
	if op == opLd {
		in.Args = p.keep(reg, mem)
	} else {
		in.Args = p.keep(mem, reg)
	}
	p.fn.Insts = append(p.fn.Insts, in)
}
