package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

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
	op := &ir.Alloca{Align: leastAlign, Unit: l.frames.unit}
	if len(in.Args) > 2 {
		op.Align = in.Args[2].Imm
	}
	l.frames.allocs = append(l.frames.allocs, op)
	l.emit(ir.Instr{Op: ir.OpAlloca, Dst: l.dst(&in.Args[0], in.Type.Size() == 8), A: l.src(&in.Args[1], in.Type), B: l.prog.AllocaRow, Detail: op})
}

// lowerStacksave lowers stacksave: it returns the position in local memory where the allocated part begins.
func lowerStacksave(l *lowerer, in *ptx.Inst) {
	l.emit(ir.Instr{Op: ir.OpStackSave, Dst: l.dst(&in.Args[0], in.Type.Size() == 8), B: l.prog.AllocaRow})
}

func lowerStackrestore(l *lowerer, in *ptx.Inst) {
	if l.prog.AllocaRow.Kind == ir.Nowhere {
		return // there is nothing to free
	}
	l.emit(ir.Instr{Op: ir.OpStackRestore, A: l.src(&in.Args[0], in.Type), B: l.prog.AllocaRow})
}
