package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// special emits a read of a special register to a temporary place.
func (l *lowerer) special(s ptx.SpecialReg) ir.Place {
	var like ir.Place
	if s.Uniform() {
		like.Kind = ir.Single
	}
	d := l.temp(like, s.Wide())
	l.emit(ir.Instr{Op: ir.OpSpecial, Dst: d, Imm: uint64(s)})
	return d
}

func lowerMovSpecial(l *lowerer, d *ptx.Operand, s ptx.SpecialReg, t ptx.Type) {
	to := l.dst(d, t.Size() == 8)
	if s.Wide() == (t.Size() == 8) {
		l.emit(ir.Instr{Op: ir.OpSpecial, Dst: to, Imm: uint64(s), TakesAffine: true})
		l.trim(to, t)
		return
	}
	from := l.special(s)
	if t.Size() == 8 {
		l.op("cvtU64U32", to, from)
	} else {
		l.op("cvtU32U64", to, from)
	}
}
