package ptx

// branchTargets parses ".branchtargets L0, L1, …;" after its label.
func (p *parser) branchTargets(label string) error {
	p.advance()
	var list []string
	for {
		name, err := p.name()
		if err != nil {
			return err
		}
		list = append(list, name)
		if p.labels++; p.labels > maxLabels {
			return p.fail("more than %d labels", maxLabels)
		}
		if !p.accept(",") {
			break
		}
	}
	if p.scope.branches == nil {
		p.scope.branches = map[string][]string{}
	}
	p.scope.branches[label] = list
	return p.expect(";")
}

func (s *scope) targets(label string) []string {
	for ; s != nil; s = s.outer {
		if list := s.branches[label]; list != nil {
			return list
		}
	}
	return nil
}

// indexed parses the operands of brx.idx and replaces it by comparisons with branches; the last branch needs none, as
// an index beyond the list is not allowed.
func (p *instructionParser) indexed(in *Inst) error {
	line := p.tok.line
	index, err := p.operand(0)
	if err == nil && (checker{p.fn}).read(&index, 4) != nil {
		err = p.fail("brx.idx: the index is not a register of 32 bits")
	}
	if err == nil {
		err = p.expect(",")
	}
	if err != nil {
		return err
	}
	name, err := p.name()
	if err != nil {
		return err
	}
	list := p.scope.targets(name)
	if list == nil {
		return p.fail("%s is not a list of branch targets", name)
	}
	if p.insts += 2 * len(list); p.insts > maxInsts {
		return p.fail("more than %d instructions", maxInsts)
	}
	if p.regs++; p.regs > maxRegisters {
		return p.fail("more than %d registers", maxRegisters)
	}
	hit := int32(len(p.fn.Regs))
	p.fn.Regs = append(p.fn.Regs, Pred)
	last := len(list) - 1
	for i, label := range list[:last] {
		p.emit(p.isIndex(in, &index, i, hit))
		p.jump(&Inst{Line: in.Line, Guard: hit}, label, line)
	}
	p.jump(&Inst{Line: in.Line, Guard: in.Guard, Not: in.Not}, list[last], line)
	return p.expect(";")
}

// isIndex is "setp.eq.u32 hit, index, i", in threads for which the guard of brx.idx holds.
func (b *builder) isIndex(brx *Inst, index *Operand, i int, hit int32) *Inst {
	in := &Inst{Line: brx.Line, Guard: None, Op: opSetp, Type: U32, Form: "Qaa"}
	in.Mods.Add(EQ)
	in.Args = b.keep(Operand{Kind: Register, Reg: hit, Pair: None}, *index, Operand{Kind: Integer, Reg: None, Pair: None, Imm: uint64(i)})
	if brx.Guard != None {
		in.Mods.Add(And)
		in.Form = "Qaap"
		in.Args = b.keep(in.Args[0], in.Args[1], in.Args[2], Operand{Kind: Register, Reg: brx.Guard, Pair: None, Not: brx.Not})
	}
	return in
}

var opSetp = OpOf("setp")

// jump appends a branch to a label.
func (b *builder) jump(in *Inst, label string, line int) {
	in.Op, in.Form, in.Args = opBra, "L", b.destination(label, line)
	b.emit(in)
}
