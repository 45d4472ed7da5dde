package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// accessTo returns an access to n bytes in a space, or with RN a generic one.
func (l *lowerer) accessTo(o *ptx.Operand, space ptx.Mod, n int, write bool) ir.Instr {
	as := ptx.Inst{Args: []ptx.Operand{*o}, Type: partType(min(n, 8))}
	if n == 16 {
		as.Mods.Add(ptx.V2)
	}
	if space != ptx.RN {
		as.Mods.Add(space)
	}
	c := l.access(&as, o, write)
	if c.Mem.Address.Kind == ir.Row32 {
		c.Mem.Address = l.widened(c.Mem.Address)
	}
	return c
}

func lowerCp(l *lowerer, in *ptx.Inst) {
	switch {
	case in.Mods.Has(ptx.Mbarrier):
		lowerAsyncArrive(l, in)
		return
	case in.Mods.Has(ptx.Bulk):
		lowerBulk(l, in)
		return
	}
	if len(in.Args) < 3 {
		return // about groups of copies
	}
	op := &ir.AsyncCopy{Size: int(in.Args[2].Imm)}
	op.From = l.accessTo(&in.Args[1], ptx.ModGlobal, op.Size, false).Mem
	op.Byte = l.accessTo(&in.Args[1], ptx.ModGlobal, 1, false).Mem
	if len(in.Args) > 3 && in.Form[3] == 'i' {
		switch o := &in.Args[3]; {
		case o.Kind == ptx.Register && l.body.Regs[o.Reg] == ptx.Pred:
			op.Skip, op.SkipNot = l.pred(o)
		default:
			op.Bytes = l.src(o, ptx.U32)
		}
	}
	c := l.accessTo(&in.Args[0], ptx.ModShared, op.Size, true)
	c.Op, c.Detail = ir.OpAsyncCopy, op
	l.emit(c)
}
