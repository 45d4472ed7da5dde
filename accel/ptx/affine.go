package ptx

// computing are instructions that an engine may execute on progressions: the value of the first lane, and the step from
// lane to lane.
var computing = opSet("mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "neg", "min", "max", "div", "rem", "cvt", "cvta")

func opSet(names ...string) (set [256]bool) {
	for _, name := range names {
		set[OpOf(name)] = true
	}
	return set
}

// maxAffine bounds the registers of functions that are searched for affine ones.
const maxAffine = 1<<16 - 2

// affine returns the registers with values that may differ by a constant step from lane to lane, as thread indices,
// loop counters and many addresses do: they are computed from other such registers, uniform ones and constants,
// without a guard. It returns none if there are calls, across which registers are kept elsewhere.
func (b *Body) affine(uniform []bool) []bool {
	may := make([]bool, len(b.Regs))
	if len(b.Units) > 1 || len(b.Regs) > maxAffine {
		return may
	}
	for i := range b.Insts {
		b.Insts[i].Visit(func(r int32, written bool) {
			if written {
				may[r] = !uniform[r] && b.Regs[r] != Pred
			}
		})
	}
	for pass, changed := 0, true; changed && pass < 8; pass++ {
		changed = false
		for i := range b.Insts {
			in := &b.Insts[i]
			follows := computing[in.Op] && in.Guard == None && (b.steady(in) || in.readsThread())
			in.Visit(func(r int32, written bool) {
				if !written {
					follows = follows && (may[r] || uniform[r])
				} else if !follows && may[r] {
					may[r], changed = false, true
				}
			})
		}
	}
	return may
}

// readsThread reports whether the instruction is a mov of the thread's index in its block.
func (in *Inst) readsThread() bool {
	return in.Op == opMov && len(in.Args) == 2 && in.Args[0].Kind == Register && in.Args[1].Kind == Special && SpecialReg(in.Args[1].Imm) <= TidZ
}
