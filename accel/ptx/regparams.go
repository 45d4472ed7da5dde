package ptx

// registerParam is a parameter or result of a device function that is declared with .reg, as in text before version
// 2.0: a variable like any other parameter, which is loaded into the register where the function begins, or stored from
// it where it returns. A vector is as many registers in a row.
type registerParam struct {
	regs     regRange
	v        *Var
	returned bool
}

// registerParam declares the register of a parameter.
func (p *declarationParser) registerParam(v *Var, returned bool) error {
	n := int32(v.Size) / int32(v.Type.Size())
	_, single := p.scope.regs[v.Name]
	_, vector := p.scope.vectors[v.Name]
	if (single || vector) && v.Name != "_" {
		return p.fail("%s is declared twice", v.Name)
	}
	if p.regs += int(n); p.regs > maxRegisters {
		return p.fail("more than %d registers", maxRegisters)
	}
	regs := regRange{int32(len(p.fn.Regs)), n}
	t := v.Type
	if v.Pred {
		t = Pred
	}
	for range n {
		p.fn.Regs = append(p.fn.Regs, t)
	}
	if n > 1 {
		p.scope.setVector(v.Name, regs)
	} else {
		p.scope.setRegister(v.Name, regs.first)
	}
	p.fn.inRegisters = append(p.fn.inRegisters, registerParam{regs, v, returned})
	return nil
}

func (b *builder) loadRegisterParams(line int) {
	for _, r := range b.fn.inRegisters {
		if !r.returned {
			b.moveRegisterParam(r, &Inst{Line: int32(line), Guard: None}, opLd, "RM")
		}
	}
}

// storeRegisterReturns stores the results for the threads that return.
func (b *builder) storeRegisterReturns(ret *Inst) {
	for _, r := range b.fn.inRegisters {
		if r.returned {
			b.moveRegisterParam(r, ret, opSt, "Mr")
		}
	}
}

var opSt = OpOf("st")

// moveRegisterParam appends loads or stores with the guard of another instruction.
func (b *builder) moveRegisterParam(r registerParam, like *Inst, op Op, form string) {
	for i := range r.regs.count {
		b.insts++
		in := Inst{Line: like.Line, Guard: like.Guard, Not: like.Not, Op: op, Type: r.v.Type, Form: form}
		in.Mods.Add(ModParam)
		reg := Operand{Kind: Register, Reg: r.regs.first + i, Pair: None}
		mem := Operand{Kind: Address, Reg: None, Pair: None, Var: r.v, Imm: uint64(i) * uint64(r.v.Type.Size())}
		if op == opLd {
			in.Args = b.keep(reg, mem)
		} else {
			in.Args = b.keep(mem, reg)
		}
		if r.v.Pred {
			b.insts++
			b.regs++
			b.fn.Regs = append(b.fn.Regs, U32)
			for _, in := range movePredicate(in, int32(len(b.fn.Regs)-1)) {
				b.emit(&in)
			}
			continue
		}
		b.emit(&in)
	}
}

var opSelp = OpOf("selp")

// movePredicate returns a load or a store of a predicate through a register that holds 1 or 0.
func movePredicate(in Inst, word int32) []Inst {
	w, one := Operand{Kind: Register, Reg: word, Pair: None}, Operand{Kind: Integer, Imm: 1, Reg: None, Pair: None}
	zero := one
	zero.Imm = 0
	convert := Inst{Line: in.Line, Guard: in.Guard, Not: in.Not, Type: U32}
	if in.Op == opLd {
		convert.Op, convert.Form, convert.Args = opSetp, "Qaa", []Operand{in.Args[0], w, zero}
		convert.Mods.Add(NE)
		in.Args = []Operand{w, in.Args[1]}
		return []Inst{in, convert}
	}
	convert.Op, convert.Form, convert.Args = opSelp, "Aaap", []Operand{w, one, zero, in.Args[1]}
	in.Args = []Operand{in.Args[0], w}
	return []Inst{convert, in}
}
