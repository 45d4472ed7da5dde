package compile

import "pegasus/accel/ptx"

// reveals reports whether an instruction changes memory that other warps may read.
func reveals(in *ptx.Inst) bool {
	o := 0
	switch in.Op {
	case opSt, opRed, opCp, opStmatrix:
	case opAtom:
		o = 1
	default:
		return false
	}
	space := in.Mods.Space()
	if o < len(in.Args) && in.Args[o].Var != nil {
		space = in.Args[o].Var.Space
	}
	return space != ptx.Local && space != ptx.ParamSpace
}

var opBar, opBarrier, opCp = ptx.OpOf("bar"), ptx.OpOf("barrier"), ptx.OpOf("cp")
