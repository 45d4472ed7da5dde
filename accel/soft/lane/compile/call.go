package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// lowerCall lowers calls of functions that the engine provides. Operands are variables: results first, then arguments.
func lowerCall(l *lowerer, in *ptx.Inst) {
	c := &in.Args[0]
	returns, params := c.Elems[:c.Returns], c.Elems[c.Returns:]
	text := l.view(1)
	switch c.Func.Name {
	case "vprintf":
		d := l.temp(ir.Place{}, false)
		l.emit(ir.Instr{Op: ir.OpPrint, Dst: d, A: l.passed(&params[0], ptx.U64), B: l.passed(&params[1], ptx.U64),
			Detail: &ir.Print{Text: text, Word: l.view(4), Long: l.view(8)}})
		l.giveBack(&returns[0], ptx.U32, d)
	case "__assertfail":
		l.emit(ir.Instr{Op: ir.OpAssertFail, A: l.passed(&params[0], ptx.U64), B: l.passed(&params[1], ptx.U64),
			C: l.passed(&params[2], ptx.U32), Detail: &ir.Assert{Text: text, Function: l.passed(&params[3], ptx.U64)}})
	case "malloc":
		d := l.temp(ir.Place{}, true)
		l.emit(ir.Instr{Op: ir.OpMalloc, Dst: d, A: l.passed(&params[0], ptx.U64)})
		l.giveBack(&returns[0], ptx.U64, d)
	case "free":
		l.emit(ir.Instr{Op: ir.OpFree, A: l.passed(&params[0], ptx.U64)})
	}
}

// passed returns a place with the value of a variable.
func (l *lowerer) passed(o *ptx.Operand, t ptx.Type) ir.Place {
	c, d := l.variable(o, t, false), l.temp(ir.Place{}, t.Size() == 8)
	c.Op, c.Dst = ir.OpLoad, d
	l.emit(c)
	return d
}

// giveBack stores a value in a variable.
func (l *lowerer) giveBack(o *ptx.Operand, t ptx.Type, from ir.Place) {
	c := l.variable(o, t, true)
	c.Op, c.B = ir.OpStore, from
	l.emit(c)
}

// variable returns an access to a variable.
func (l *lowerer) variable(o *ptx.Operand, t ptx.Type, write bool) ir.Instr {
	return l.access(&ptx.Inst{Type: t}, &ptx.Operand{Kind: ptx.Address, Reg: ptx.None, Var: o.Var, Imm: o.Imm}, write)
}

// view returns a way to read n bytes at a time of generic memory.
func (l *lowerer) view(n uint64) *ir.Memory {
	l.prog.Caches++
	return &ir.Memory{Space: ptx.Generic, Size: n, Align: n - 1, Cache: int32(l.prog.Caches - 1), Line: l.line}
}
