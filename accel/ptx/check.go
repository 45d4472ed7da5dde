package ptx

import (
	"errors"
	"fmt"
)

// checker checks the operands of instructions of a function against the letters of a form.
type checker struct{ fn *Func }

// operands matches the operands of an instruction to the letters of a form and returns the letters of those present.
func (c checker) operands(in *Inst, f *form) (string, error) {
	k := len(in.Args) - f.least
	if k < 0 || k >= len(f.letters) {
		return "", fmt.Errorf("has %d operands", len(in.Args))
	}
	letters := f.letters[k]
	for i := range in.Args {
		err := c.operand(in, &in.Args[i], letters[i])
		if letters[i]|0x20 == 'y' {
			err = c.fragment(in, i, letters[i] == 'Y')
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

func (c checker) operand(in *Inst, o *Operand, letter byte) error {
	n := in.Type.Size()
	if o.Sel.N > 0 && letter != 'D' && letter != 'd' {
		return errValue
	}
	switch letter {
	case 'D', 'd':
		return c.video(in, o, letter == 'D')
	case 'A':
		return c.written(o, n)
	case 'E':
		return c.paired(o, n)
	case 'G':
		return c.paired(o, 4)
	case 'B':
		return c.written(o, in.Type2.Size())
	case 'C':
		return c.written(o, 4)
	case 'W':
		return c.written(o, 2*n)
	case 'a':
		return c.typed(o, in.Type)
	case 'b':
		return c.typed(o, in.Type2)
	case 'c':
		return c.read(o, 4)
	case 'w':
		return c.read(o, 2*n)
	case 'P', 'Q':
		if o.Kind == Sink || c.register(o) == Pred && !o.Not && (letter == 'Q' || o.Pair == None) {
			return nil
		}
		return errPredicate
	case 'p':
		if o.Kind == Integer || c.register(o) == Pred && o.Pair == None {
			return nil
		}
		return errPredicate
	case 'M':
		return c.address(in, o, in.Mods.Space())
	case 'm':
		return c.address(in, o, Shared)
	case 'h':
		if c.read(o, 8) != nil {
			return errPolicy
		}
	case 'k':
		return c.read(o, 2)
	case 's':
		return c.read(o, 8)
	case 'n':
		return checkSize(in, o)
	case 'i':
		if c.register(o) != Pred {
			return c.read(o, 4)
		}
	case 'T':
		return c.texture(in, o)
	case 'o':
		if o.Kind == Address && (c.opaque(o, handleOf(in.Op)) || in.Mods.OfSampler() && c.opaque(o, SamplerRef)) {
			return nil
		}
		return errTexture
	case 'O':
		if o.Kind == Symbol && o.Var.Opaque != Plain && o.Imm == 0 || c.register(o).Size() == 8 && o.Pair == None {
			return nil
		}
		return errTexture
	case 'g':
		return c.gradient(o)
	case 'R', 'r':
		return c.wide(in, o, letter == 'R')
	case 'V', 'v':
		return c.moved(in, o, letter == 'V')
	case 'x':
		return c.any(in, o)
	}
	return nil // labels and callees were checked as they were read
}

// register returns the type of a register operand, or NoType.
func (c checker) register(o *Operand) Type {
	if o.Kind != Register {
		return NoType
	}
	return c.fn.Regs[o.Reg]
}

// paired accepts r|p, r alone, or the sink in place of r.
func (c checker) paired(o *Operand, n int) error {
	if o.Kind == Sink || c.register(o).Size() == n && n > 0 && !o.Not {
		return nil
	}
	return errRegister
}

func (c checker) written(o *Operand, n int) error {
	if o.Kind == Sink || n > 0 && c.register(o).Size() == n && o.Pair == None && !o.Not {
		return nil
	}
	return errRegister
}

// typed accepts a register of the size of t or an immediate. Floats of 16 bits have no literals other than their bits.
func (c checker) typed(o *Operand, t Type) error {
	if t.Half() && (o.Kind == Float32 || o.Kind == Float64) {
		return errValue
	}
	return c.read(o, t.Size())
}

// read accepts a register of n bytes or an immediate.
func (c checker) read(o *Operand, n int) error {
	switch o.Kind {
	case Integer, Float32, Float64:
		return nil
	case Special:
		if specialSize(o) == n {
			return nil
		}
	case Register:
		if n > 0 && c.fn.Regs[o.Reg].Size() == n && o.Pair == None && !o.Not {
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

func (c checker) address(in *Inst, o *Operand, space Space) error {
	if o.Kind == Symbol { // "name[n]" is one without brackets around it
		o.Kind = Address
	}
	if o.Kind != Address {
		return errAddress
	}
	if o.Reg != None {
		if n := c.fn.Regs[o.Reg].Size(); n != 4 && n != 8 {
			return errAddress
		}
	}
	if o.Var != nil && space != Generic && o.Var.Space != space {
		return fmt.Errorf("is in .%s", o.Var.Space)
	}
	return nil
}

// wide accepts a register no narrower than the type, or .vN of them.
func (c checker) wide(in *Inst, o *Operand, written bool) error {
	t := in.Type
	if in.Op == opCvt && !written {
		t = in.Type2
	}
	if lanes := in.Mods.Vector(); lanes > 1 {
		if o.Kind != Vector || len(o.Elems) != lanes || lanes*t.Size() > 32 {
			return errVector
		}
		for i := range o.Elems {
			if err := c.wideOne(t, &o.Elems[i], written); err != nil {
				return err
			}
		}
		return nil
	}
	if o.Kind == Vector && len(o.Elems) == 1 {
		*o = o.Elems[0]
	}
	return c.wideOne(t, o, written)
}

var opCvt = OpOf("cvt")

func (c checker) wideOne(t Type, o *Operand, written bool) error {
	switch o.Kind {
	case Register:
		if n := c.fn.Regs[o.Reg].Size(); n >= t.Size() && o.Pair == None && !o.Not && (!t.Float() || n == t.Size() || c.fn.Regs[o.Reg] <= B64) {
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
func (c checker) moved(in *Inst, o *Operand, written bool) error {
	n := in.Type.Size()
	if in.Type == Pred {
		if c.register(o) == Pred || o.Kind == Integer && !written {
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
			if err := c.read(e, n/len(o.Elems)); err != nil && (e.Kind != Sink || !written) || written && e.Kind != Register && e.Kind != Sink {
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
			return c.written(o, n)
		}
		return c.read(o, n)
	}
	return errValue
}

var opMov = OpOf("mov")

// any checks the vector result of tex and the address of isspacep.
func (c checker) any(in *Inst, o *Operand) error {
	if in.Type == NoType {
		if n := c.register(o).Size(); n == 4 || n == 8 {
			return nil
		}
		return errAddress
	}
	if o.Kind != Vector || len(o.Elems) != 4 {
		return errVector
	}
	for i := range o.Elems {
		if err := c.written(&o.Elems[i], 4); err != nil {
			return err
		}
	}
	return nil
}

// passed reports whether an operand of a call can stand for a parameter.
func (c checker) passed(o *Operand, param *Param, returned bool) bool {
	switch o.Kind {
	case Symbol:
		return o.Imm == 0 && (o.Var.Space == ParamSpace && !o.Var.Kernel || o.Var.Space == Local)
	case Register:
		t := c.fn.Regs[o.Reg]
		if param.v != nil && param.v.Pred || t == Pred {
			return o.Pair == None && !o.Not && t == Pred && param.v != nil && param.v.Pred
		}
		return o.Pair == None && !o.Not && t.Size() >= param.Type.Size() && param.Size == param.Type.Size()
	case Vector:
		one := Param{Size: param.Type.Size(), Type: param.Type}
		for i := range o.Elems {
			e := &o.Elems[i]
			if e.Kind == Symbol || e.Kind == Vector || !c.passed(e, &one, returned) {
				return false
			}
		}
		return param.Size == len(o.Elems)*one.Size
	case Sink:
		return returned
	case Integer, Float32, Float64:
		return !returned && param.Size == param.Type.Size()
	}
	return false
}
