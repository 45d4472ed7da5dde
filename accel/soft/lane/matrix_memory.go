package lane

import (
	"math/bits"

	"pegasus/accel/ptx"
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
	m := &tileMove{tile: l.tile(in, regs, plainLayout), rows: in.Mods.Has(ptx.Row), write: write}
	m.bytes = max(m.bitsOf()/8, 1)
	if m.bitsOf() < 8 {
		m.bytes = 4 // a register at a time
	}
	if len(in.Args) > 2 {
		m.stride = l.src(&in.Args[2], ptx.U32)
	}
	c := l.accessTo(&in.Args[address], spaceMod(in), m.bytes, write)
	c.op, c.detail = irLoadStoreTile, m
	l.emit(c)
}

// spaceMod returns the modifier that names the space, or RN.
func spaceMod(in *ptx.Inst) ptx.Mod { return in.Mods.First(ptx.RN, ptx.ModGlobal, ptx.ModShared) }

// tileOffset returns the position in memory of an element of a matrix, in bytes.
func tileOffset(m *tileMove, number int, stride uint64) uint64 {
	long := m.Cols // of the contiguous dimension in the numbering
	if m.Role == ptx.RoleB {
		long = m.Rows
	}
	outer, inner := uint64(number/long), uint64(number%long)
	each := 1
	if m.Type == ptx.B1 {
		each = 32
	}
	if m.rows == (m.Role == ptx.RoleB) { // the other way round in memory
		outer, inner = inner, outer
	}
	size := uint64(8 * m.Type.Size())
	switch m.Type {
	case ptx.U4, ptx.S4:
		size = 4
	case ptx.B1:
		size = 1
	}
	return (outer*stride + inner*uint64(each)) * size / 8
}

// packedStride returns the stride of a matrix without gaps.
func packedStride(m *tileMove) uint64 {
	n := m.Rows
	if m.rows {
		n = m.Cols
	}
	if m.Type == ptx.B1 {
		n *= 32
	}
	return uint64(n)
}

func runMoveTile(g *group, in *instr) {
	m := in.detail.(*tileMove)
	ap, step := g.row(in.mem.address)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		stride := packedStride(m)
		if m.stride.kind != nowhere {
			stride = uint64(uint32(g.scalar(m.stride, l)))
		}
		if !moveElements(g, &in.mem, m, l, get64(ap, step, l)+in.mem.offset, stride) {
			return
		}
	}
}

// moveElements moves one thread's elements of a matrix. It returns false after a fault.
func moveElements(g *group, at *memOperand, m *tileMove, lane int, base, stride uint64) bool {
	elements := m.at[lane%warpLanes]
	perReg := len(elements) / len(m.regs)
	atOnce := max(8*m.bytes/m.bitsOf(), 1)
	for r, p := range m.regs {
		var v uint64
		if m.write {
			v = g.valueOf(p, lane)
		}
		for k := 0; k < perReg; k += atOnce {
			mem := g.pointer(at, base+tileOffset(m, int(elements[r*perReg+k]), stride), lane)
			if mem == nil {
				return false
			}
			shift := k * m.bitsOf()
			if m.write {
				storeBytes(mem, v>>shift, m.bytes)
			} else {
				v |= loadBytes(mem, m.bytes) << shift
			}
		}
		if !m.write {
			g.setValue(p, lane, v)
		}
	}
	return true
}

// lowerMatrixMemory lowers ldmatrix and stmatrix.
func lowerMatrixMemory(l *lowerer, in *ptx.Inst) {
	m := &matrixRows{trans: in.Mods.Has(ptx.Trans), write: in.Op == opStmatrix}
	regs, address := &in.Args[0], &in.Args[1]
	if m.write {
		regs, address = address, regs
	}
	for _, e := range elements(regs) {
		if m.write {
			m.regs = append(m.regs, l.src(e, ptx.B32))
		} else {
			m.regs = append(m.regs, l.dst(e, false))
		}
	}
	c := l.accessTo(address, spaceMod(in), 16, m.write)
	c.op, c.detail = irLoadStoreMatrix, m
	l.emit(c)
}

var opStmatrix = ptx.OpOf("stmatrix")

// eight is an 8×8 matrix of 16-bit elements.
type eight [8][8]uint16

func (e *eight) transpose() {
	for i := range e {
		for j := range i {
			e[i][j], e[j][i] = e[j][i], e[i][j]
		}
	}
}

// runMatrixRows moves 8×8 matrices between memory and registers. The threads
// 8i to 8i+7 have the addresses of the rows of matrix i.
func runMatrixRows(g *group, in *instr) {
	if g.awaits(place{}) {
		return
	}
	m := in.detail.(*matrixRows)
	ap, step := g.row(in.mem.address)
	for w := range maxLanes / warpLanes {
		var all [4]eight
		part := g.act.m.warp(w)
		if part == 0 {
			continue
		}
		for i, p := range m.regs {
			if m.write {
				g.rowsOf(p, w, &all[i], m.trans)
			}
		}
		for rest := part; rest != 0; rest &= rest - 1 {
			own := bits.TrailingZeros32(rest)
			if own >= 8*len(m.regs) {
				break
			}
			l := w*warpLanes + own
			mem := g.pointer(&in.mem, get64(ap, step, l)+in.mem.offset, l)
			if mem == nil {
				return
			}
			moveRow(mem, &all[own>>3][own&7], m.write)
		}
		for i, p := range m.regs {
			if !m.write {
				g.setRows(p, w, part, &all[i], m.trans)
			}
		}
	}
}

// rowsOf reads a matrix of which each thread has two elements of a row, or of
// a column, in a register.
func (r *registerFile) rowsOf(p place, warp int, e *eight, trans bool) {
	for lane := range warpLanes {
		v := r.valueOf(p, warp*warpLanes+lane)
		row := &e[lane>>2]
		row[lane&3*2], row[lane&3*2+1] = uint16(v), uint16(v>>16)
	}
	if trans {
		e.transpose()
	}
}

// setRows is the inverse of rowsOf, for the threads that take part.
func (r *registerFile) setRows(p place, warp int, part uint32, e *eight, trans bool) {
	if trans {
		e.transpose()
	}
	for ; part != 0; part &= part - 1 {
		lane := bits.TrailingZeros32(part)
		row := &e[lane>>2]
		r.setValue(p, warp*warpLanes+lane, uint64(row[lane&3*2])|uint64(row[lane&3*2+1])<<16)
	}
}

// lowerMovmatrix lowers movmatrix.
func lowerMovmatrix(l *lowerer, in *ptx.Inst) {
	l.emit(irInstr{op: irTransposeMatrix, d: l.dst(&in.Args[0], false), a: l.src(&in.Args[1], ptx.B32)})
}

func runMovmatrix(g *group, in *instr) {
	if g.awaits(place{}) {
		return
	}
	for w := range maxLanes / warpLanes {
		if part := g.act.m.warp(w); part != 0 {
			var e eight
			g.rowsOf(in.a, w, &e, true)
			g.setRows(in.d, w, part, &e, false)
		}
	}
}
