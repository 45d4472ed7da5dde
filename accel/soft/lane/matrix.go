package lane

import (
	"math"
	"math/bits"

	"pegasus/accel/ptx"
)

// tile returns the fragment of operand i; where returns the place of each element in the matrix.
func (l *lowerer) tile(in *ptx.Inst, i int, where func(t *tile, lane, k int) int) *tile {
	t := &tile{Fragment: in.Fragment(i)}
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
			t.regs = append(t.regs, l.dst(e, t.Type == ptx.F64))
		} else {
			t.regs = append(t.regs, l.src(e, t.RegType()))
		}
	}
	n := len(t.regs) * 8 * t.RegType().Size() / t.bitsOf()
	for lane := range t.at {
		for k := range n {
			t.at[lane] = append(t.at[lane], uint16(where(t, lane, k)))
		}
	}
	return t
}

// numberIn returns the number of an element, counted as the multiplication reads them.
func numberIn(t *tile, row, col int) int {
	if t.Role == ptx.RoleB {
		return col*t.Rows + row
	}
	return row*t.Cols + col
}

// warpLayout returns the position of element k of a thread for mma: the manual's figures follow one rule. Four threads
// have a row of A or a column of B; each of them has the elements of a register side by side.
func warpLayout(t *tile, lane, k int) int {
	group, member := lane>>2, lane&3
	each := max(32/t.bitsOf(), 1) // elements of a register
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
func quadLayout(rowA, rowB bool) func(t *tile, lane, k int) int {
	return func(t *tile, lane, k int) int {
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
func plainLayout(t *tile, lane, k int) int { return lane*t.PerLane + k%t.PerLane }

// lowerProduct lowers mma and wmma.mma.
func lowerProduct(l *lowerer, in *ptx.Inst, where func(t *tile, lane, k int) int) {
	op := &matrixOp{sat: in.Mods.Has(ptx.SatFinite), and: in.Mods.Has(ptx.And),
		d: l.tile(in, 0, where), a: l.tile(in, 1, where), b: l.tile(in, 2, where), c: l.tile(in, 3, where)}
	l.emit(irInstr{op: irMultiply, detail: op})
}

func lowerMma(l *lowerer, in *ptx.Inst) {
	where := warpLayout
	if f := in.Fragment(1); f.Parts > 1 {
		where = quadLayout(in.Mods.Has(ptx.Row), in.Mods.Has(ptx.SecondRow))
	}
	lowerProduct(l, in, where)
}

// matrices are the operands of a product as numbers; all types but f64 and f32 have so few bits that sums of products
// are exact, or nearly so.
type matrices struct{ a, b, c [1024]float64 }

func runMultiply(g *group, in *instr) {
	if g.awaits(place{}) {
		return
	}
	op := in.detail.(*matrixOp)
	if g.matrices == nil {
		g.matrices = new(matrices)
	}
	m := g.matrices
	for w := range maxLanes / warpLanes {
		part := g.act.m.warp(w)
		if part == 0 {
			continue
		}
		g.gather(op.a, w, &m.a)
		g.gather(op.b, w, &m.b)
		g.gather(op.c, w, &m.c)
		rows, cols, k := op.d.Rows, op.d.Cols, op.a.Cols
		for p := range op.d.Parts {
			multiplyInto(op, m.a[p*rows*k:], m.b[p*cols*k:], m.c[p*rows*cols:], rows, cols, k)
		}
		g.scatter(op.d, w, part, &m.c, op.sat)
	}
}

// multiplyInto adds to c the product of a, by rows, and b, by columns.
func multiplyInto(op *matrixOp, a, b, c []float64, rows, cols, k int) {
	add := addProducts
	switch op.a.Type {
	case ptx.F64:
		add = addFused
	case ptx.B1:
		add = addDifferences
		if op.and {
			add = addCommon
		}
	}
	for i := range rows {
		add(c[i*cols:i*cols+cols], a[i*k:i*k+k], b)
	}
}

// addProducts adds a row times each column. Four sums at a time are independent of each other; there are always as many
// columns.
func addProducts(sums, row, b []float64) {
	k := len(row)
	for j := 0; j+4 <= len(sums); j += 4 {
		b0, b1, b2, b3 := b[j*k:][:k], b[(j+1)*k:][:k], b[(j+2)*k:][:k], b[(j+3)*k:][:k]
		var s0, s1, s2, s3 float64
		for n, x := range row {
			s0 += x * b0[n]
			s1 += x * b1[n]
			s2 += x * b2[n]
			s3 += x * b3[n]
		}
		sums[j] += s0
		sums[j+1] += s1
		sums[j+2] += s2
		sums[j+3] += s3
	}
}

// addFused is addProducts of f64, where each sum is rounded.
func addFused(sums, row, b []float64) {
	for j := range sums {
		for n, x := range row {
			sums[j] = math.FMA(x, b[j*len(row)+n], sums[j])
		}
	}
}

// addDifferences counts the bits that differ, addCommon the bits set in both.
func addDifferences(sums, row, b []float64) {
	for j := range sums {
		for n, x := range row {
			sums[j] += float64(bits.OnesCount32(uint32(x) ^ uint32(b[j*len(row)+n])))
		}
	}
}

func addCommon(sums, row, b []float64) {
	for j := range sums {
		for n, x := range row {
			sums[j] += float64(bits.OnesCount32(uint32(x) & uint32(b[j*len(row)+n])))
		}
	}
}

// gather reads a matrix from the registers of a warp.
func (f *registerFile) gather(t *tile, warp int, to *[1024]float64) {
	get := elementOf(t.Type)
	n := t.bitsOf()
	for r, p := range t.regs {
		row, step := f.row(p)
		for lane := range warpLanes {
			at := t.at[lane]
			if n == 64 {
				to[at[r]] = math.Float64frombits(get64(row, step, warp*warpLanes+lane))
				continue
			}
			x := get32(row, step, warp*warpLanes+lane)
			each := 32 / n
			for i := range each {
				to[at[r*each+i]] = get(uint64(x >> (i * n)))
			}
		}
	}
}

// elementOf returns the function that converts the lower bits of a register to a number.
func elementOf(t ptx.Type) func(x uint64) float64 {
	if f := smallFloats[t]; f != nil {
		return f.value
	}
	switch t {
	case ptx.F32:
		return func(x uint64) float64 { return float64(float(x)) }
	case ptx.TF32:
		return func(x uint64) float64 { return float64(float(x &^ 0x1fff)) }
	case ptx.S32:
		return func(x uint64) float64 { return float64(int32(x)) }
	case ptx.S8:
		return func(x uint64) float64 { return float64(int8(x)) }
	case ptx.U8:
		return func(x uint64) float64 { return float64(uint8(x)) }
	case ptx.S4:
		return func(x uint64) float64 { return float64(int8(x<<4) >> 4) }
	case ptx.U4:
		return func(x uint64) float64 { return float64(x & 15) }
	}
	return func(x uint64) float64 { return float64(uint32(x)) } // words of bits
}

// scatter writes a matrix into the registers of the threads of a warp.
func (f *registerFile) scatter(t *tile, warp int, part uint32, from *[1024]float64, sat bool) {
	put := resultOf(t.Type, sat)
	n := t.bitsOf()
	for r, p := range t.regs {
		row, _ := f.row(p)
		for rest := part; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			at := t.at[lane]
			if n == 64 {
				put64(row, warp*warpLanes+lane, math.Float64bits(from[at[r]]))
				continue
			}
			var x uint32
			each := 32 / n
			for i := range each {
				x |= put(from[at[r*each+i]]) << (i * n)
			}
			put32(row, warp*warpLanes+lane, x)
		}
	}
}

// resultOf returns the function that converts a number to an element of D.
func resultOf(t ptx.Type, sat bool) func(v float64) uint32 {
	switch t {
	case ptx.F16:
		f := smallFloats[t]
		return func(v float64) uint32 { return uint32(f.bits(v, ptx.RN)) }
	case ptx.F32:
		return func(v float64) uint32 { return math.Float32bits(canonF32(float32(v))) }
	}
	return func(v float64) uint32 {
		if sat {
			return uint32(saturateS32(int64(v)))
		}
		return uint32(int64(v))
	}
}
