package ptx

import (
	"errors"
	"fmt"
)

// check matches the operands of an instruction to the letters of a form and returns the letters of those present.
func (p *parser) check(in *Inst, f *form) (string, error) {
	k := len(in.Args) - f.least
	if k < 0 || k >= len(f.letters) {
		return "", fmt.Errorf("has %d operands", len(in.Args))
	}
	letters := f.letters[k]
	for i := range in.Args {
		err := p.checkOperand(in, &in.Args[i], letters[i])
		if letters[i]|0x20 == 'y' {
			err = p.fragment(in, i, letters[i] == 'Y')
		}
		if err != nil {
			return "", fmt.Errorf("operand %d %w", i+1, err)
		}
	}
	return letters, nil
}

var (
	errRegister  = errors.New("is not a register of the right size")
	errValue     = errors.New("is not a value of the right size")
	errPredicate = errors.New("is not a predicate")
	errAddress   = errors.New("is not an address")
	errVector    = errors.New("is not a vector of the right length")
	errTexture   = errors.New("is not a texture or surface, or lacks coordinates")
)

func (p *parser) checkOperand(in *Inst, o *Operand, letter byte) error {
	n := in.Type.Size()
	if o.Sel.N > 0 && letter != 'D' && letter != 'd' {
		return errValue
	}
	switch letter {
	case 'D', 'd':
		return p.video(in, o, letter == 'D')
	case 'A':
		return p.written(o, n)
	case 'E':
		return p.paired(o, n)
	case 'G':
		return p.paired(o, 4)
	case 'B':
		return p.written(o, in.Type2.Size())
	case 'C':
		return p.written(o, 4)
	case 'W':
		return p.written(o, 2*n)
	case 'a':
		return p.typed(o, in.Type)
	case 'b':
		return p.typed(o, in.Type2)
	case 'c':
		return p.read(o, 4)
	case 'w':
		return p.read(o, 2*n)
	case 'P', 'Q':
		if o.Kind == Sink || p.register(o) == Pred && !o.Not && (letter == 'Q' || o.Pair == None) {
			return nil
		}
		return errPredicate
	case 'p':
		if o.Kind == Integer || p.register(o) == Pred && o.Pair == None {
			return nil
		}
		return errPredicate
	case 'M':
		return p.checkAddress(in, o, in.Mods.Space())
	case 'm':
		return p.checkAddress(in, o, Shared)
	case 'h':
		if p.read(o, 8) != nil {
			return errPolicy
		}
	case 'k':
		return p.read(o, 2)
	case 's':
		return p.read(o, 8)
	case 'n':
		return p.copySize(in, o)
	case 'i':
		if p.register(o) != Pred {
			return p.read(o, 4)
		}
	case 'T':
		return p.checkTexture(in, o)
	case 'o':
		if o.Kind == Address && (p.opaque(o, handleOf(in.Op)) || in.Mods.OfSampler() && p.opaque(o, SamplerRef)) {
			return nil
		}
		return errTexture
	case 'O':
		if o.Kind == Symbol && o.Var.Opaque != Plain && o.Imm == 0 || p.register(o).Size() == 8 && o.Pair == None {
			return nil
		}
		return errTexture
	case 'g':
		return p.checkGradient(o)
	case 'R', 'r':
		return p.wide(in, o, letter == 'R')
	case 'V', 'v':
		return p.moved(in, o, letter == 'V')
	case 'x':
		return p.checkAny(in, o)
	}
	return nil // labels and callees were checked as they were read
}

// register returns the type of a register operand, or NoType.
func (p *parser) register(o *Operand) Type {
	if o.Kind != Register {
		return NoType
	}
	return p.fn.Regs[o.Reg]
}

// paired accepts r|p, r alone, or the sink in place of r.
func (p *parser) paired(o *Operand, n int) error {
	if o.Kind == Sink || p.register(o).Size() == n && n > 0 && !o.Not {
		return nil
	}
	return errRegister
}

func (p *parser) written(o *Operand, n int) error {
	if o.Kind == Sink || n > 0 && p.register(o).Size() == n && o.Pair == None && !o.Not {
		return nil
	}
	return errRegister
}

// typed accepts a register of the size of t or an immediate. Floats of 16 bits have no literals other than their bits.
func (p *parser) typed(o *Operand, t Type) error {
	if t.Half() && (o.Kind == Float32 || o.Kind == Float64) {
		return errValue
	}
	return p.read(o, t.Size())
}

// read accepts a register of n bytes or an immediate.
func (p *parser) read(o *Operand, n int) error {
	switch o.Kind {
	case Integer, Float32, Float64:
		return nil
	case Special:
		if specialSize(o) == n {
			return nil
		}
	case Register:
		if n > 0 && p.fn.Regs[o.Reg].Size() == n && o.Pair == None && !o.Not {
			return nil
		}
	}
	return errValue
}

func specialSize(o *Operand) int {
	if SpecialReg(o.Imm).Wide() {
		return 8
	}
	return 4
}

func (p *parser) checkAddress(in *Inst, o *Operand, space Space) error {
	if o.Kind == Symbol { // "name[n]" is one without brackets around it
		o.Kind = Address
	}
	if o.Kind != Address {
		return errAddress
	}
	if o.Reg != None {
		if n := p.fn.Regs[o.Reg].Size(); n != 4 && n != 8 {
			return errAddress
		}
	}
	if o.Var != nil && space != Generic && o.Var.Space != space {
		return fmt.Errorf("is in .%s", o.Var.Space)
	}
	return nil
}

// wide accepts a register no narrower than the type, or .vN of them.
func (p *parser) wide(in *Inst, o *Operand, written bool) error {
	t := in.Type
	if in.Op == opCvt && !written {
		t = in.Type2
	}
	if lanes := in.Mods.Vector(); lanes > 1 {
		if o.Kind != Vector || len(o.Elems) != lanes || lanes*t.Size() > 32 {
			return errVector
		}
		for i := range o.Elems {
			if err := p.wideOne(t, &o.Elems[i], written); err != nil {
				return err
			}
		}
		return nil
	}
	if o.Kind == Vector && len(o.Elems) == 1 {
		*o = o.Elems[0]
	}
	return p.wideOne(t, o, written)
}

var opCvt = OpOf("cvt")

func (p *parser) wideOne(t Type, o *Operand, written bool) error {
	switch o.Kind {
	case Register:
		if n := p.fn.Regs[o.Reg].Size(); n >= t.Size() && o.Pair == None && !o.Not && (!t.Float() || n == t.Size() || p.fn.Regs[o.Reg] <= B64) {
			return nil
		}
	case Sink:
		if written {
			return nil
		}
	case Integer, Float32, Float64:
		if !written {
			return nil
		}
	case Special:
		if !written && specialSize(o) >= t.Size() && !t.Float() {
			return nil
		}
	}
	return errRegister
}

// moved accepts the operands of mov and cvta: registers, immediates, addresses, vectors.
func (p *parser) moved(in *Inst, o *Operand, written bool) error {
	n := in.Type.Size()
	if in.Type == Pred {
		if p.register(o) == Pred || o.Kind == Integer && !written {
			return nil
		}
		return errPredicate
	}
	switch o.Kind {
	case Vector:
		if in.Op != opMov || len(in.Args) != 2 || in.Args[0].Kind == Vector && in.Args[1].Kind == Vector {
			return errVector
		}
		if k := len(o.Elems); k != 2 && k != 4 {
			return errVector
		}
		for i := range o.Elems {
			e := &o.Elems[i]
			if err := p.read(e, n/len(o.Elems)); err != nil && (e.Kind != Sink || !written) || written && e.Kind != Register && e.Kind != Sink {
				return errVector
			}
		}
		return nil
	case Symbol:
		if !written && n >= 4 {
			return nil
		}
	case FuncAddress:
		if !written && n == 8 {
			return nil
		}
	case Special:
		// Old text reads the low halves of %tid and the like.
		if s := specialSize(o); !written && (s == n || s == 8 && n == 4 || s == 4 && n == 8 || s == 4 && n == 2) {
			return nil
		}
	default:
		if written {
			return p.written(o, n)
		}
		return p.read(o, n)
	}
	return errValue
}

var opMov = OpOf("mov")

// checkAny checks the vector result of tex and the address of isspacep.
func (p *parser) checkAny(in *Inst, o *Operand) error {
	if in.Type == NoType {
		if n := p.register(o).Size(); n == 4 || n == 8 {
			return nil
		}
		return errAddress
	}
	if o.Kind != Vector || len(o.Elems) != 4 {
		return errVector
	}
	for i := range o.Elems {
		if err := p.written(&o.Elems[i], 4); err != nil {
			return err
		}
	}
	return nil
}
