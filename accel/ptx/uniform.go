package ptx

// varying are instructions with results that may differ between executions or lanes even if the
// operands don't, and those that are lowered to comparisons, whose result is a row of bits.
var varying = func() (set [256]bool) {
	for _, name := range []string{"ldu", "atom", "shfl", "vote", "activemask", "match", "redux", "elect", "tex", "tld4", "txq", "suq", "suld", "call", "bar", "barrier",
		"setp", "set", "slct", "cnot", "testp", "mma", "wmma", "ldmatrix", "movmatrix", "addc", "subc", "madc", "mbarrier", "alloca", "stacksave"} {
		set[OpOf(name)] = true
	}
	return set
}()

var opLd = OpOf("ld")

// uniform returns the registers that hold one value for the whole block all the time: written by one instruction,
// without a guard, from constants, kernel parameters and other such registers. However threads part, the value is the
// same.
func (b *Body) uniform() []bool {
	writers := make([]int32, len(b.Regs))
	writer := make([]int32, len(b.Regs))
	for i := range b.Insts {
		b.Insts[i].Visit(func(r int32, w bool) {
			if w {
				writers[r]++
				writer[r] = int32(i)
			}
		})
	}
	u := make([]bool, len(b.Regs))
	// Text is almost always in the order of the data flow. Registers that a few passes miss are only slower.
	for pass, changed := 0, true; changed && pass < 8; pass++ {
		changed = false
		for i := range b.Insts {
			in := &b.Insts[i]
			if in.Guard != None || !b.steady(in) {
				continue
			}
			ok := true
			in.Visit(func(r int32, w bool) {
				switch {
				case w:
					ok = ok && writers[r] == 1 && b.Regs[r] != Pred
				default:
					ok = ok && u[r]
				}
			})
			if !ok {
				continue
			}
			in.Visit(func(r int32, w bool) {
				if w && !u[r] {
					u[r], changed = true, true
				}
			})
		}
	}
	return u
}

// steady reports whether the instruction computes the same result from the same operands.
func (b *Body) steady(in *Inst) bool {
	if varying[in.Op] || in.Type == Pred || in.Mods.Has(CC) || in.Mods.Vector() > 1 {
		return false
	}
	if in.Op == opLd {
		a := &in.Args[1]
		return in.Mods.Space() == ParamSpace && a.Var != nil && a.Var.Kernel && a.Reg == None
	}
	if len(in.Args) == 0 {
		return false
	}
	for i := range in.Args {
		o := &in.Args[i]
		switch {
		case o.Kind == Special && !SpecialReg(o.Imm).Uniform(), o.Kind == Vector, o.Kind == Sink, o.Var != nil && o.Var.Framed:
			return false
		}
	}
	return true
}
