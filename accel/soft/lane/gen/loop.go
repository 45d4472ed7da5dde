package gen

import (
	"slices"

	"pegasus/accel/soft/lane/asm"
	"pegasus/accel/soft/lane/ir"
)

// Loop describes a block that branches to itself, in which a run only loads and computes, and all other instructions
// compute numbers that grow by the same amounts in each iteration: affine registers, of which the run reads none but as
// addresses, and the condition of the branch. If the executor finds that all threads stay in the loop for some
// iterations, it lets the code execute these at once, unit by unit, and sets the affine registers to the values that
// they have behind them.
type Loop struct {
	Code      int         // offset of the code
	Same      int         // offset of the code for loads of which all lanes have the same address, or -1
	Compare   int         // number of the comparison of the branch's condition, in the block
	Continue  bool        // the outcome with which the loop goes on
	Compared  [2]ir.Place // its operands; they are the same at the begin of the run, or at the end of the block
	Addresses []Number    // of the access groups
	Ahead     []Number    // operands that are extended from 32 bits to 64 before the run
	Behind    []Number    // and behind it
	Written   []Number    // affine registers that the block writes
}

// Number is a register as a number.
type Number struct {
	Place  ir.Place
	Width  int  // bits
	Signed bool // it is extended with its sign
}

func number(p ir.Place, signed bool) Number {
	if p.Kind == ir.Row64 {
		return Number{p, 64, signed}
	}
	return Number{p, 32, signed}
}

// loopOf returns the loop that a block is, or nil. alone: it has one run.
func loopOf(blocks []ir.Block, s *Span, alone bool) *Loop {
	b := &blocks[s.Block]
	if !alone || len(s.phases) > 0 || b.Ending != ir.Jumps || b.Guard < 0 {
		return nil
	}
	l := &Loop{Compare: -1, Same: -1}
	switch int32(s.Block) {
	case through(blocks, b.Target):
		l.Continue = !b.GuardNot
	case through(blocks, b.Next):
		l.Continue = b.GuardNot
	default:
		return nil
	}
	for i := range b.Code {
		in := &b.Code[i]
		switch {
		case i >= s.At && i < s.At+s.Count:
			if in.Op == ir.OpAdd {
				if groupOf(s, &in.Mem).Bound < 0 {
					return nil
				}
				continue
			}
			if a := in.Mem.Address; in.Op == ir.OpStore || a.Kind != ir.Nowhere && a.Kind != ir.Single && a.Affine == 0 {
				return nil
			}
		case in.Guard >= 0:
			return nil
		case in.Op == ir.OpCompareAffine:
			if l.Compare >= 0 || in.Dst.Kind != ir.Predicate || in.Dst.Slot != b.Guard || in.Dst2.Kind != ir.Nowhere || in.Combine != ir.BoolNone {
				return nil
			}
			until := b.Code[i+1:]
			if i < s.At {
				until = b.Code[i+1 : s.At]
			}
			if written(until, in.A, in.B) {
				return nil
			}
			l.Compare, l.Compared = i, [2]ir.Place{in.A, in.B}
		case in.Op == ir.OpFill: // of a register that stays the same
			if written(b.Code, in.A) {
				return nil
			}
		case in.Dst.Kind == ir.Single:
		case in.Op == ir.OpRow && in.Dst.Affine != 0 && linear(in):
			l.Written = append(l.Written, number(in.Dst, false))
			if extends(in) && !l.extend(b.Code, i, s.At) {
				return nil
			}
		default:
			return nil
		}
	}
	if l.Compare < 0 {
		return nil
	}
	for i := range s.Groups {
		m := s.Groups[i].First
		if s.Groups[i].Adds { // the run computes and bounds the indices
			l.Addresses = append(l.Addresses, Number{Width: 64})
			continue
		}
		n := number(m.Address, m.SignedIndex)
		if m.Address.Kind == ir.Single && m.Scale == 0 {
			n.Width = 64
		}
		l.Addresses = append(l.Addresses, n)
	}
	return l
}

// groupOf returns the access group of an access in a run of one phase.
func groupOf(s *Span, m *ir.Memory) *AccessGroup {
	return &s.Groups[slices.IndexFunc(s.Groups, func(g AccessGroup) bool { return g.holds(m, 0) })]
}

// extend records the operands of an instruction that are extended. Their values are observed when the run begins, or at
// the end of the block: they must be the same then.
func (l *Loop) extend(code []ir.Instr, i, run int) bool {
	in := &code[i]
	list, until := &l.Behind, code[i+1:]
	if i < run {
		list, until = &l.Ahead, code[i+1:run]
	}
	if same(in.Dst, in.A) || same(in.Dst, in.B) || written(until, in.A, in.B) {
		return false
	}
	signed := in.Row == "cvtS64S32" || in.Row == "wideS" || in.Row == "madWideS"
	for _, p := range []ir.Place{in.A, in.B} {
		if p.Kind == ir.Row32 || p.Kind == ir.Single {
			*list = append(*list, Number{p, 32, signed})
		}
	}
	return true
}

// written reports whether instructions write one of some places.
func written(code []ir.Instr, list ...ir.Place) bool {
	for i := range code {
		for _, p := range list {
			if p.Kind != ir.Nowhere && (same(code[i].Dst, p) || same(code[i].Dst2, p)) {
				return true
			}
		}
	}
	return false
}

// repeats reports whether a block may branch to itself.
func repeats(blocks []ir.Block, i int) bool {
	b := &blocks[i]
	return b.Ending == ir.Jumps && b.Guard >= 0 && (through(blocks, b.Target) == int32(i) || through(blocks, b.Next) == int32(i))
}

// through returns the block that a branch to a block leads to, past blocks that only jump.
func through(blocks []ir.Block, n int32) int32 {
	for range 4 {
		if n < 0 || int(n) >= len(blocks) {
			return -1
		}
		b := &blocks[n]
		if len(b.Code) > 0 || b.Ending != ir.Jumps || b.Guard >= 0 {
			return n
		}
		n = b.Target
	}
	return n
}

// linear reports whether the result of an operation changes by the same amount in each iteration if its operands do,
// modulo the range of its width.
func linear(in *ir.Instr) bool {
	single := func(p ir.Place) bool { return p.Kind == ir.Single }
	switch in.Row {
	case "movU32", "movU64", "cvtU32U64", "addU32", "addU64", "subU32", "subU64", "negU32", "negU64", "cvtU64U32", "cvtS64S32":
		return true
	case "mulU32", "mulU64", "madU32", "madU64", "wideU", "wideS", "madWideU", "madWideS":
		return single(in.A) || single(in.B)
	case "shlU32", "shlU64":
		return single(in.B)
	}
	return false
}

// extends reports whether an operation extends 32 bits to 64, so that it is linear only while its operands do not leave
// their range.
func extends(in *ir.Instr) bool {
	w := widthsOf(in.Row)
	return w[0] && !w[1] && in.Row != "shlU64"
}

// kept is a value that an iteration begins with, in registers.
type kept struct {
	v    *value
	regs []asm.Vec
	nan  bool
}

// mostKept bounds the registers of values that are kept, so that enough are left for those within an iteration.
const mostKept = 16

// enterLoop loads the values that iterations read before they write them, if they write them, and some of the others.
func (e *emitter) enterLoop(code []ir.Instr) {
	e.at = -1
	for _, written := range []bool{true, false} {
		for _, v := range e.order {
			if v.uses[0].write || v.place.Kind == ir.Predicate || writes(v) != written || !isOperand(code, v) {
				continue
			}
			if len(v.regs) > 0 || len(e.kept) >= mostKept/2 && v.place.Kind == ir.Row64 || e.keptRegs() >= mostKept {
				continue
			}
			e.pinned, e.temps = e.pinned[:0], firstTemp
			e.row(v.place)
			k := kept{v: v, regs: append([]asm.Vec(nil), v.regs...)}
			k.nan = written && v.place.Kind == ir.Row32 && anyNaN(code, v)
			e.kept = append(e.kept, k)
		}
	}
	for _, k := range e.kept {
		k.v.nan = k.nan
		if writes(k.v) {
			k.v.home = false
		}
	}
}

// isOperand reports whether a run reads a value other than as an address.
func isOperand(code []ir.Instr, v *value) bool {
	for _, u := range v.uses {
		if in := &code[u.at]; !u.write && (same(in.A, v.place) || same(in.B, v.place) || same(in.C, v.place)) {
			return true
		}
	}
	return false
}

func (e *emitter) keptRegs() (n int) {
	for _, k := range e.kept {
		n += len(k.regs)
	}
	return n
}

func writes(v *value) bool {
	for _, u := range v.uses {
		if u.write {
			return true
		}
	}
	return false
}

// anyNaN reports whether an iteration reads a value only by operations that take any NaN, until it writes it by one that
// may leave any NaN. Then it need not be canonical between iterations: it does not get out of the loop as it came in.
func anyNaN(code []ir.Instr, v *value) bool {
	last := -1
	for _, u := range v.uses {
		if u.write {
			last = u.at
		} else if !takesNaN(&code[u.at], v.place) && last < 0 {
			return false
		}
	}
	return last >= 0 && leavesNaN[code[last].Row]
}

// takesNaN reports whether an instruction has the same result for all NaNs in a register.
func takesNaN(in *ir.Instr, p ir.Place) bool {
	return in.Op == ir.OpRow && (leavesNaN[in.Row] || in.Row == "cvtS32F32") || in.Op == ir.OpCompare && len(in.Row) > 3 && in.Row[len(in.Row)-3:] == "F32" && !same(in.C, p)
}

// leavesNaN are the operations that define their result with any NaN.
var leavesNaN = map[string]bool{"addF32": true, "subF32": true, "mulF32": true, "divF32": true, "fmaF32": true, "sqrtF32": true, "rcpF32": true, "negF32": true, "absF32": true, "minF32": true, "maxF32": true}

// endIteration brings the kept values into the registers in which the iteration began with them.
func (e *emitter) endIteration() {
	for _, v := range e.order {
		if k := e.keptOf(v); k != nil {
			if !k.nan && len(v.regs) > 0 {
				e.canonical(v)
			}
			continue
		}
		if _, needed := e.next(v); needed {
			e.save(v)
		}
		e.release(v)
	}
	e.move()
	for _, k := range e.kept {
		k.v.nan = k.nan
		if writes(k.v) {
			k.v.home = false
		}
	}
	for n := range e.groups {
		e.Load(asm.RAX, deltaOf(n))
		e.RegMem(asm.ADD, asm.RAX, pointerOf(n))
		e.StoreReg(pointerOf(n), asm.RAX)
	}
}

func (e *emitter) keptOf(v *value) *kept {
	for i := range e.kept {
		if e.kept[i].v == v {
			return &e.kept[i]
		}
	}
	return nil
}

// move emits the moves of the kept values. Each register is overwritten after it has been read.
func (e *emitter) move() {
	type pair struct{ to, from asm.Vec }
	var moves []pair
	var loads []kept
	for _, k := range e.kept {
		if len(k.v.regs) == 0 {
			loads = append(loads, k)
			continue
		}
		for i, r := range k.v.regs {
			if r != k.regs[i] {
				moves = append(moves, pair{k.regs[i], r})
			}
		}
		k.v.regs = nil
	}
	for len(moves) > 0 {
		ready := -1
		for i, m := range moves {
			blocked := false
			for j, o := range moves {
				blocked = blocked || j != i && o.from == m.to
			}
			if !blocked {
				ready = i
				break
			}
		}
		if ready < 0 { // a cycle
			e.Op2(asm.MOVD, firstTemp, moves[0].from, asm.Masking{})
			for i := range moves {
				if moves[i].from == moves[0].from && i != 0 {
					moves[i].from = firstTemp
				}
			}
			moves[0].from = firstTemp
			continue
		}
		e.Op2(asm.MOVD, moves[ready].to, moves[ready].from, asm.Masking{})
		moves = append(moves[:ready], moves[ready+1:]...)
	}
	e.freeRegs = e.freeRegs[:0]
	used := [32]bool{}
	for _, k := range e.kept {
		for _, r := range k.regs {
			used[r] = true
		}
	}
	for r := nanReg; r > 0; r-- {
		if !used[r-1] {
			e.freeRegs = append(e.freeRegs, r-1)
		}
	}
	for _, k := range loads {
		for i, r := range k.regs {
			e.Op2M(asm.MOVD, r, slot(k.v.place, i), asm.Masking{})
		}
	}
	for _, k := range e.kept {
		k.v.regs = append([]asm.Vec(nil), k.regs...)
	}
}
