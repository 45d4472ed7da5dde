package lane

import "pegasus/accel/ptx"

// call lowers calls of functions that the engine provides; all others were inlined.
func (l *lowerer) call(in *ptx.Inst) {
	l.fail("function %s is not supported", in.Args[0].Func.Name)
}
