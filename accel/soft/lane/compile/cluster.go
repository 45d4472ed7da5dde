package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// lowerMapa lowers mapa: the address in a block of the cluster that corresponds to an address of this one.
func lowerMapa(l *lowerer, in *ptx.Inst) {
	wide := in.Type.Size() == 8
	d := l.dst(&in.Args[0], wide)
	l.op(arith.Pick(wide, "movU32", "movU64"), d, l.src(&in.Args[1], in.Type))
	l.emit(ir.Instr{Op: ir.OpOnlyBlock, A: l.src(&in.Args[2], ptx.U32)})
}

// lowerGetctarank lowers getctarank: all addresses are of block 0.
func lowerGetctarank(l *lowerer, in *ptx.Inst) {
	l.op("movU32", l.dst(&in.Args[0], false), l.constant(0))
}
