package exec

import (
	"math"
	"math/bits"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// matrices are the operands of a product as numbers; all types but f64 and f32 have so few bits that sums of products
// are exact, or nearly so.
type matrices struct{ a, b, c [1024]float64 }

func runMultiply(g *group, in *instr) {
	if g.awaits(ir.Place{}) {
		return
	}
	op := in.Detail.(*ir.Product)
	if g.matrices == nil {
		g.matrices = new(matrices)
	}
	m := g.matrices
	for w := range ir.MaxLanes / ir.WarpLanes {
		part := g.act.m.warp(w)
		if part == 0 {
			continue
		}
		g.gather(op.A, w, &m.a)
		g.gather(op.B, w, &m.b)
		g.gather(op.C, w, &m.c)
		rows, cols, k := op.D.Rows, op.D.Cols, op.A.Cols
		for p := range op.D.Parts {
			multiplyInto(op, m.a[p*rows*k:], m.b[p*cols*k:], m.c[p*rows*cols:], rows, cols, k)
		}
		g.scatter(op.D, w, part, &m.c, op.Saturates)
	}
}

// multiplyInto adds to c the product of a, by rows, and b, by columns.
func multiplyInto(op *ir.Product, a, b, c []float64, rows, cols, k int) {
	add := addProducts
	switch op.A.Type {
	case ptx.F64:
		add = addFused
	case ptx.B1:
		add = addDifferences
		if op.CountsCommon {
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
func (f *registerFile) gather(t *ir.Tile, warp int, to *[1024]float64) {
	get := elementOf(t.Type)
	n := t.BitsOf()
	for r, p := range t.Regs {
		row, step := f.row(p)
		for lane := range ir.WarpLanes {
			at := t.At[lane]
			if n == 64 {
				to[at[r]] = math.Float64frombits(arith.Get64(row, step, warp*ir.WarpLanes+lane))
				continue
			}
			x := arith.Get32(row, step, warp*ir.WarpLanes+lane)
			each := 32 / n
			for i := range each {
				to[at[r*each+i]] = get(uint64(x >> (i * n)))
			}
		}
	}
}

// elementOf returns the function that converts the lower bits of a register to a number.
func elementOf(t ptx.Type) func(x uint64) float64 {
	if f := arith.SmallFloats[t]; f != nil {
		return f.Value
	}
	switch t {
	case ptx.F32:
		return func(x uint64) float64 { return float64(arith.FloatOf(x)) }
	case ptx.TF32:
		return func(x uint64) float64 { return float64(arith.FloatOf(x &^ 0x1fff)) }
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
func (f *registerFile) scatter(t *ir.Tile, warp int, part uint32, from *[1024]float64, sat bool) {
	put := resultOf(t.Type, sat)
	n := t.BitsOf()
	for r, p := range t.Regs {
		row, _ := f.row(p)
		for rest := part; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			at := t.At[lane]
			if n == 64 {
				arith.Put64(row, warp*ir.WarpLanes+lane, math.Float64bits(from[at[r]]))
				continue
			}
			var x uint32
			each := 32 / n
			for i := range each {
				x |= put(from[at[r*each+i]]) << (i * n)
			}
			arith.Put32(row, warp*ir.WarpLanes+lane, x)
		}
	}
}

// resultOf returns the function that converts a number to an element of D.
func resultOf(t ptx.Type, sat bool) func(v float64) uint32 {
	switch t {
	case ptx.F16:
		f := arith.SmallFloats[t]
		return func(v float64) uint32 { return uint32(f.Bits(v, ptx.RN)) }
	case ptx.F32:
		return func(v float64) uint32 { return math.Float32bits(arith.CanonF32(float32(v))) }
	}
	return func(v float64) uint32 {
		if sat {
			return uint32(arith.SaturateS32(int64(v)))
		}
		return uint32(int64(v))
	}
}
