package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

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

// blind reports whether instructions read no memory that other threads may write. Of stores with no other instructions
// between them, only the first lets other threads continue: what those have not read then, they read behind stores of
// their own.
func blind(code []ir.Instr) bool {
	for i := range code {
		switch in := &code[i]; in.Op {
		case ir.OpRow, ir.OpCompare, ir.OpCompareAffine, ir.OpSelect, ir.OpPredicates, ir.OpFill, ir.OpSpecial, ir.OpLoadParam, ir.OpStore:
		case ir.OpAdd, ir.OpAtomic:
			if in.Dst.Kind != ir.Nowhere {
				return false
			}
		default:
			return false
		}
	}
	return true
}

var opBar, opBarrier, opCp = ptx.OpOf("bar"), ptx.OpOf("barrier"), ptx.OpOf("cp")
