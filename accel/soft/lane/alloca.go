package lane

import "pegasus/accel/ptx"

// alloca allocates from the end of a thread's local memory, towards the frames of its calls. A row counts the bytes; a
// call saves the count, so that a function's allocations are freed when it returns.

// leastAlign is the default alignment of alloca.
const leastAlign = 8

// allocates reports whether a kernel, or a function that it calls, may use alloca.
func allocates(b *ptx.Body) bool {
	for i := range b.Insts {
		if b.Insts[i].Op == opAlloca {
			return true
		}
	}
	return false
}

func lowerAlloca(l *lowerer, in *ptx.Inst) {
	op := &allocaOp{align: leastAlign, unit: l.frames.unit}
	if len(in.Args) > 2 {
		op.align = in.Args[2].Imm
	}
	l.frames.allocs = append(l.frames.allocs, op)
	l.emit(irInstr{op: irAlloca, d: l.dst(&in.Args[0], in.Type.Size() == 8), a: l.src(&in.Args[1], in.Type), b: l.prog.taken, detail: op})
}

func runAlloca(g *group, in *instr) {
	op := in.detail.(*allocaOp)
	least := uint64(g.sp + op.frame)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		end, n := uint64(g.w.depth)-g.valueOf(in.b, l), g.valueOf(in.a, l)
		if end < least || n > end-least || (end-n)&^(op.align-1) < least {
			g.fail(in.line, l, ptx.ErrHardwareStack, 0, "stack overflow: alloca of more than is left of what a thread has")
			return
		}
		at := (end - n) &^ (op.align - 1)
		g.setValue(in.b, l, uint64(g.w.depth)-at)
		g.setValue(in.d, l, at)
	}
}

// lowerStacksave lowers stacksave: it returns the position in local memory where the allocated part begins.
func lowerStacksave(l *lowerer, in *ptx.Inst) {
	l.emit(irInstr{op: irStackSave, d: l.dst(&in.Args[0], in.Type.Size() == 8), b: l.prog.taken})
}

func runStacksave(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		l := int(lane)
		used := uint64(0)
		if in.b.kind != nowhere {
			used = g.valueOf(in.b, l)
		}
		g.setValue(in.d, l, uint64(g.w.depth)-used)
	}
}

func lowerStackrestore(l *lowerer, in *ptx.Inst) {
	if l.prog.taken.kind == nowhere {
		return // there is nothing to free
	}
	l.emit(irInstr{op: irStackRestore, a: l.src(&in.Args[0], in.Type), b: l.prog.taken})
}

func runStackrestore(g *group, in *instr) {
	depth := uint64(g.w.depth)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		if to := g.valueOf(in.a, l); to <= depth && depth-to <= g.valueOf(in.b, l) {
			g.setValue(in.b, l, depth-to)
			continue
		}
		g.fail(in.line, l, ptx.ErrLaunchFailed, 0, "stackrestore of what is no earlier state of the stack")
		return
	}
}

// room reports whether n bytes of frames leave the running threads' allocations untouched.
func (g *group) room(n int) bool {
	used := g.w.prog.taken
	if used.kind == nowhere {
		return true
	}
	for _, lane := range g.act.lanes() {
		if n > g.w.depth-int(g.valueOf(used, int(lane))) {
			return false
		}
	}
	return true
}
