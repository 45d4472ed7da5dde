package exec

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

func runAlloca(g *group, in *instr) {
	op := in.Detail.(*ir.Alloca)
	least := uint64(g.sp + op.Frame)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		end, n := uint64(g.w.depth)-g.valueOf(in.B, l), g.valueOf(in.A, l)
		if end < least || n > end-least || (end-n)&^(op.Align-1) < least {
			g.fail(in.Line, l, ptx.ErrHardwareStack, 0, "stack overflow: alloca of more than is left of what a thread has")
			return
		}
		at := (end - n) &^ (op.Align - 1)
		g.setValue(in.B, l, uint64(g.w.depth)-at)
		g.setValue(in.Dst, l, at)
	}
}

func runStacksave(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		l := int(lane)
		used := uint64(0)
		if in.B.Kind != ir.Nowhere {
			used = g.valueOf(in.B, l)
		}
		g.setValue(in.Dst, l, uint64(g.w.depth)-used)
	}
}

func runStackrestore(g *group, in *instr) {
	depth := uint64(g.w.depth)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		if to := g.valueOf(in.A, l); to <= depth && depth-to <= g.valueOf(in.B, l) {
			g.setValue(in.B, l, depth-to)
			continue
		}
		g.fail(in.Line, l, ptx.ErrLaunchFailed, 0, "stackrestore of what is no earlier state of the stack")
		return
	}
}

// room reports whether n bytes of frames leave the running threads' allocations untouched.
func (g *group) room(n int) bool {
	used := g.w.prog.AllocaRow
	if used.Kind == ir.Nowhere {
		return true
	}
	for _, lane := range g.act.lanes() {
		if n > g.w.depth-int(g.valueOf(used, int(lane))) {
			return false
		}
	}
	return true
}
