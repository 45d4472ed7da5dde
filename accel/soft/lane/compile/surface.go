package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// lowerSurface lowers suld, sust and sured.
func lowerSurface(l *lowerer, in *ptx.Inst) {
	o, value := &in.Args[0], &in.Args[1]
	if in.Op == opSuld {
		o, value = value, o
	}
	op := &ir.Surface{Shape: in.Mods.Geometry(), Elements: in.Mods.Has(ptx.Samples), Size: in.Type.Size(),
		Outside: in.Mods.First(ptx.Trap, ptx.Clamp, ptx.Zeros)}
	op.At, op.Layer = l.coordinates(o, op.Shape, ptx.S32)
	c := ir.Instr{A: l.handle(o), Detail: op}
	for _, e := range elements(value) {
		if in.Op == opSuld {
			op.Values = append(op.Values, l.dst(e, op.Size == 8))
		} else {
			op.Values = append(op.Values, l.src(e, in.Type))
		}
	}
	switch in.Op {
	case opSuld:
		c.Op = ir.OpLoadSurface
	case opSust:
		c.Op = ir.OpStoreSurface
	default:
		c.Op = ir.OpReduceSurface
		op.Atomic = surfaceReduction(in)
		l.prog.MayPoll = true
	}
	l.emit(c)
}

var opSuld, opSust, opSured = ptx.OpOf("suld"), ptx.OpOf("sust"), ptx.OpOf("sured")

// surfaceReduction returns the operation of sured on unsigned and on signed numbers.
func surfaceReduction(in *ptx.Inst) [2]*ir.Atomic {
	how := in.Mods.First(ptx.Add, ptx.Min, ptx.Max, ptx.And, ptx.Or)
	signed := ptx.S32
	if in.Type.Size() == 8 {
		signed = ptx.S64
	}
	return [2]*ir.Atomic{atomicOf(how, in.Type, false), atomicOf(how, signed, false)}
}
