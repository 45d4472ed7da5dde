package exec

import (
	"math/bits"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// tileOffset returns the position in memory of an element of a matrix, in bytes.
func tileOffset(m *ir.TileMove, number int, stride uint64) uint64 {
	long := m.Cols // of the contiguous dimension in the numbering
	if m.Role == ptx.RoleB {
		long = m.Rows
	}
	outer, inner := uint64(number/long), uint64(number%long)
	each := 1
	if m.Type == ptx.B1 {
		each = 32
	}
	if m.ByRows == (m.Role == ptx.RoleB) { // the other way round in memory
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
func packedStride(m *ir.TileMove) uint64 {
	n := m.Rows
	if m.ByRows {
		n = m.Cols
	}
	if m.Type == ptx.B1 {
		n *= 32
	}
	return uint64(n)
}

func runMoveTile(g *group, in *instr) {
	m := in.Detail.(*ir.TileMove)
	ap, step := g.row(in.Mem.Address)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		stride := packedStride(m)
		if m.Stride.Kind != ir.Nowhere {
			stride = uint64(uint32(g.scalar(m.Stride, l)))
		}
		if !moveElements(g, &in.Mem, m, l, arith.Get64(ap, step, l)+in.Mem.Offset, stride) {
			return
		}
	}
}

// moveElements moves one thread's elements of a matrix. It returns false after a fault.
func moveElements(g *group, at *ir.Memory, m *ir.TileMove, lane int, base, stride uint64) bool {
	elements := m.At[lane%ir.WarpLanes]
	perReg := len(elements) / len(m.Regs)
	atOnce := max(8*m.Bytes/m.BitsOf(), 1)
	for r, p := range m.Regs {
		var v uint64
		if m.Write {
			v = g.valueOf(p, lane)
		}
		for k := 0; k < perReg; k += atOnce {
			mem := g.pointer(at, base+tileOffset(m, int(elements[r*perReg+k]), stride), lane)
			if mem == nil {
				return false
			}
			shift := k * m.BitsOf()
			if m.Write {
				storeBytes(mem, v>>shift, m.Bytes)
			} else {
				v |= loadBytes(mem, m.Bytes) << shift
			}
		}
		if !m.Write {
			g.setValue(p, lane, v)
		}
	}
	return true
}

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
	if g.awaits(ir.Place{}) {
		return
	}
	m := in.Detail.(*ir.MatrixRows)
	ap, step := g.row(in.Mem.Address)
	for w := range ir.MaxLanes / ir.WarpLanes {
		var all [4]eight
		part := g.act.m.warp(w)
		if part == 0 {
			continue
		}
		for i, p := range m.Regs {
			if m.Write {
				g.rowsOf(p, w, &all[i], m.Trans)
			}
		}
		for rest := part; rest != 0; rest &= rest - 1 {
			own := bits.TrailingZeros32(rest)
			if own >= 8*len(m.Regs) {
				break
			}
			l := w*ir.WarpLanes + own
			mem := g.pointer(&in.Mem, arith.Get64(ap, step, l)+in.Mem.Offset, l)
			if mem == nil {
				return
			}
			moveRow(mem, &all[own>>3][own&7], m.Write)
		}
		for i, p := range m.Regs {
			if !m.Write {
				g.setRows(p, w, part, &all[i], m.Trans)
			}
		}
	}
}

// rowsOf reads a matrix of which each thread has two elements of a row, or of
// a column, in a register.
func (r *registerFile) rowsOf(p ir.Place, warp int, e *eight, trans bool) {
	for lane := range ir.WarpLanes {
		v := r.valueOf(p, warp*ir.WarpLanes+lane)
		row := &e[lane>>2]
		row[lane&3*2], row[lane&3*2+1] = uint16(v), uint16(v>>16)
	}
	if trans {
		e.transpose()
	}
}

// setRows is the inverse of rowsOf, for the threads that take part.
func (r *registerFile) setRows(p ir.Place, warp int, part uint32, e *eight, trans bool) {
	if trans {
		e.transpose()
	}
	for ; part != 0; part &= part - 1 {
		lane := bits.TrailingZeros32(part)
		row := &e[lane>>2]
		r.setValue(p, warp*ir.WarpLanes+lane, uint64(row[lane&3*2])|uint64(row[lane&3*2+1])<<16)
	}
}

func runMovmatrix(g *group, in *instr) {
	if g.awaits(ir.Place{}) {
		return
	}
	for w := range ir.MaxLanes / ir.WarpLanes {
		if part := g.act.m.warp(w); part != 0 {
			var e eight
			g.rowsOf(in.A, w, &e, true)
			g.setRows(in.Dst, w, part, &e, false)
		}
	}
}
