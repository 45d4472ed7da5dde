package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// lowerWmma lowers wmma.load, wmma.store and wmma.mma.
func lowerWmma(l *lowerer, in *ptx.Inst) {
	switch {
	case in.Mods.Has(ptx.MatrixMul):
		lowerProduct(l, in, plainLayout)
	case in.Mods.Has(ptx.MatrixLoad):
		lowerMoveTile(l, in, 0, 1, false)
	default:
		lowerMoveTile(l, in, 1, 0, true)
	}
}

func lowerMoveTile(l *lowerer, in *ptx.Inst, regs, address int, write bool) {
	m := &ir.TileMove{Tile: l.tile(in, regs, plainLayout), ByRows: in.Mods.Has(ptx.Row), Write: write}
	m.Bytes = max(m.BitsOf()/8, 1)
	if m.BitsOf() < 8 {
		m.Bytes = 4 // a register at a time
	}
	if len(in.Args) > 2 {
		m.Stride = l.src(&in.Args[2], ptx.U32)
	}
	c := l.accessTo(&in.Args[address], spaceMod(in), m.Bytes, write)
	c.Op, c.Detail = ir.OpLoadStoreTile, m
	l.emit(c)
}

// spaceMod returns the modifier that names the space, or RN.
func spaceMod(in *ptx.Inst) ptx.Mod { return in.Mods.First(ptx.RN, ptx.ModGlobal, ptx.ModShared) }

// lowerMatrixMemory lowers ldmatrix and stmatrix.
func lowerMatrixMemory(l *lowerer, in *ptx.Inst) {
	m := &ir.MatrixRows{Trans: in.Mods.Has(ptx.Trans), Write: in.Op == opStmatrix}
	regs, address := &in.Args[0], &in.Args[1]
	if m.Write {
		regs, address = address, regs
	}
	for _, e := range elements(regs) {
		if m.Write {
			m.Regs = append(m.Regs, l.src(e, ptx.B32))
		} else {
			m.Regs = append(m.Regs, l.dst(e, false))
		}
	}
	c := l.accessTo(address, spaceMod(in), 16, m.Write)
	c.Op, c.Detail = ir.OpLoadStoreMatrix, m
	l.emit(c)
}

var opStmatrix = ptx.OpOf("stmatrix")

// lowerMovmatrix lowers movmatrix.
func lowerMovmatrix(l *lowerer, in *ptx.Inst) {
	l.emit(ir.Instr{Op: ir.OpTransposeMatrix, Dst: l.dst(&in.Args[0], false), A: l.src(&in.Args[1], ptx.B32)})
}
