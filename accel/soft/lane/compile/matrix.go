package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// tile returns the fragment of operand i; where returns the place of each element in the matrix.
func (l *lowerer) tile(in *ptx.Inst, i int, where func(t *ir.Tile, lane, k int) int) *ir.Tile {
	t := &ir.Tile{Fragment: in.Fragment(i)}
	if t.Type == ptx.B1 { // words of bits, along K
		t.PerLane /= 32
		if t.Role == ptx.RoleA {
			t.Cols /= 32
		} else {
			t.Rows /= 32
		}
	}
	for _, e := range elements(&in.Args[i]) {
		if in.Form[i] == 'Y' {
			t.Regs = append(t.Regs, l.dst(e, t.Type == ptx.F64))
		} else {
			t.Regs = append(t.Regs, l.src(e, t.RegType()))
		}
	}
	n := len(t.Regs) * 8 * t.RegType().Size() / t.BitsOf()
	for lane := range t.At {
		for k := range n {
			t.At[lane] = append(t.At[lane], uint16(where(t, lane, k)))
		}
	}
	return t
}

// numberIn returns the number of an element, counted as the multiplication reads them.
func numberIn(t *ir.Tile, row, col int) int {
	if t.Role == ptx.RoleB {
		return col*t.Rows + row
	}
	return row*t.Cols + col
}

// warpLayout returns the position of element k of a thread for mma: the manual's figures follow one rule. Four threads
// have a row of A or a column of B; each of them has the elements of a register side by side.
func warpLayout(t *ir.Tile, lane, k int) int {
	group, member := lane>>2, lane&3
	each := max(32/t.BitsOf(), 1) // elements of a register
	reg, part := k/each, k%each
	switch t.Role {
	case ptx.RoleA:
		high := 0
		if t.Rows == 16 {
			high, reg = reg&1, reg>>1
		}
		return numberIn(t, group+8*high, (4*reg+member)*each+part)
	case ptx.RoleB:
		return numberIn(t, (4*reg+member)*each+part, group)
	}
	return numberIn(t, group+8*(k>>1), 2*member+k&1)
}

// quadLayout returns the layout of m8n8k4 with f16, where each four threads of the lower half of the warp and four of
// the upper multiply matrices of their own.
func quadLayout(rowA, rowB bool) func(t *ir.Tile, lane, k int) int {
	return func(t *ir.Tile, lane, k int) int {
		own, upper := lane&3, lane>>4*4
		row, col := own+upper, k
		switch {
		case t.Role == ptx.RoleA && !rowA:
			row, col = k+upper, own
		case t.Role == ptx.RoleB && rowB:
			row, col = own, k+upper
		case t.Role == ptx.RoleB:
			row, col = k, own+upper
		case t.Type == ptx.F32 && t.Role != ptx.RoleA:
			row, col = lane&1+k&2+upper, k&4+lane&2+k&1
		}
		return lane>>2&3*t.Rows*t.Cols + numberIn(t, row, col)
	}
}

// plainLayout is the layout of wmma's fragments, for which none is documented: elements in order. If there are more
// registers than elements, they are there twice.
func plainLayout(t *ir.Tile, lane, k int) int { return lane*t.PerLane + k%t.PerLane }

// lowerProduct lowers mma and wmma.mma.
func lowerProduct(l *lowerer, in *ptx.Inst, where func(t *ir.Tile, lane, k int) int) {
	op := &ir.Product{Saturates: in.Mods.Has(ptx.SatFinite), CountsCommon: in.Mods.Has(ptx.And),
		D: l.tile(in, 0, where), A: l.tile(in, 1, where), B: l.tile(in, 2, where), C: l.tile(in, 3, where)}
	l.emit(ir.Instr{Op: ir.OpMultiply, Detail: op})
}

func lowerMma(l *lowerer, in *ptx.Inst) {
	where := warpLayout
	if f := in.Fragment(1); f.Parts > 1 {
		where = quadLayout(in.Mods.Has(ptx.Row), in.Mods.Has(ptx.SecondRow))
	}
	lowerProduct(l, in, where)
}
