package ptx

// builder makes the code of the function that is being read. Outside functions, fn and scope are nil.
type builder struct {
	fn    *Func
	scope *scope // the innermost
	pack  packer
	slab  []Operand // the operands of the current instruction
	// The numbers of instructions, registers and labels in all functions so far.
	insts, regs, labels int
}

// keep copies operands to storage that lives until the instruction is packed.
func (b *builder) keep(args ...Operand) []Operand {
	if cap(b.slab)-len(b.slab) < len(args) {
		b.slab = make([]Operand, 0, max(64, len(args)))
	}
	n := len(b.slab)
	b.slab = append(b.slab, args...)
	return b.slab[n:len(b.slab):len(b.slab)]
}

// emit appends an instruction to the function.
func (b *builder) emit(in *Inst) { b.pack.add(in, b.pack.templates.of(in)) }

// destination returns the operand of a branch to a label.
func (b *builder) destination(label string, line int) []Operand {
	n := len(b.pack.targets)
	b.pack.targets = append(b.pack.targets, 0)
	b.scope.pending = append(b.scope.pending, fixup{n, label, line})
	return b.keep(Operand{Kind: Label, Reg: None, Pair: None, Imm: uint64(n)})
}

// leave closes the innermost scope and resolves its branches.
func (b *builder) leave() error {
	s := b.scope
	b.scope = s.outer
	for _, f := range s.pending {
		at, ok := s.labels[f.label]
		switch {
		case ok:
			b.pack.targets[f.target] = int32(at)
		case s.outer != nil:
			s.outer.pending = append(s.outer.pending, f)
		default:
			return &Error{f.line, "no label " + f.label, ErrInvalidPTX}
		}
	}
	return nil
}
