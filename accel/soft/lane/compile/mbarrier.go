package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

func lowerMbarrier(l *lowerer, in *ptx.Inst) {
	args := in.Args
	if in.Mods.Has(ptx.PendingCount) {
		l.lanes(func(a, _, _ uint64) uint64 { return ir.MbarrierState(a).Pending() }, l.dst(&args[0], false), [4]bool{false, true}, l.src(&args[1], ptx.B64))
		return
	}
	var d ir.Place
	if in.Form[0] != 'M' {
		if args[0].Kind != ptx.Sink {
			d = l.reg(args[0].Reg)
		}
		args = args[1:]
	}
	c := l.accessTo(&args[0], spaceMod(in), 8, true)
	c.Dst = d
	op := &ir.Mbarrier{Sign: 1, Drop: in.Mods.Has(ptx.ArriveDrop), Parity: in.Mods.Has(ptx.Parity)}
	c.Detail = op
	switch args = args[1:]; {
	case in.Mods.Has(ptx.InitMod):
		c.Op, c.B = ir.OpInitMbarrier, l.src(&args[0], ptx.U32)
	case in.Mods.Has(ptx.Inval):
		c.Op = ir.OpInvalMbarrier
	case in.Mods.Has(ptx.TestWait) || in.Mods.Has(ptx.TryWait):
		c.Op, c.B = ir.OpWaitMbarrier, l.src(&args[0], arith.Pick(op.Parity, ptx.B64, ptx.B32))
	case in.Mods.Has(ptx.ExpectTx) || in.Mods.Has(ptx.CompleteTx):
		op.Bytes = l.src(&args[0], ptx.U32)
		if in.Mods.Has(ptx.CompleteTx) {
			op.Sign = -1
		}
		if in.Form[0] == 'M' {
			op.Count = l.constant(0)
		}
		c.Op = ir.OpArriveMbarrier
	default:
		if len(args) > 0 {
			op.Count = l.src(&args[0], ptx.U32)
		}
		c.Op = ir.OpArriveMbarrier
	}
	l.emit(c)
}

// lowerAsyncArrive lowers cp.async.mbarrier.arrive. The copies are complete, so that the arrival, which follows them, is
// executed now. One that the barrier doesn't expect is added to those that it waits for, and makes no difference.
func lowerAsyncArrive(l *lowerer, in *ptx.Inst) {
	op := &ir.Mbarrier{}
	if !in.Mods.Has(ptx.NoInc) {
		op.Count = l.constant(0)
	}
	c := l.accessTo(&in.Args[0], spaceMod(in), 8, true)
	c.Op, c.Detail = ir.OpArriveMbarrier, op
	l.emit(c)
}
