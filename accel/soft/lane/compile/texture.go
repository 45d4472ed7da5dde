package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// coordinates lowers the coordinate operands and returns their places.
func (l *lowerer) coordinates(o *ptx.Operand, shape ptx.Geometry, t ptx.Type) (at [3]ir.Place, layer ir.Place) {
	elems := o.Elems
	if shape.Layered {
		layer = l.src(&elems[0], ptx.U32)
		elems = elems[1:]
	}
	for d := range shape.Dims {
		at[d] = l.src(&elems[d], t)
	}
	return at, layer
}

// handle returns the place of a texture's or surface's handle.
func (l *lowerer) handle(o *ptx.Operand) ir.Place {
	if o.Var != nil {
		return l.constant(l.address(o.Var))
	}
	return l.reg(o.Reg)
}

// lowerTex lowers tex and tld4. There are no mipmaps, so the level operand is ignored.
func lowerTex(l *lowerer, in *ptx.Inst) {
	o := &in.Args[1]
	op := &ir.Texture{Shape: in.Mods.Geometry(), Integer: in.Type2 == ptx.S32, Gather: -1}
	if in.Op == opTld4 {
		op.Gather = map[ptx.Mod]int{ptx.R: 0, ptx.Green: 1, ptx.MatrixB: 2, ptx.MatrixA: 3}[in.Mods.First(ptx.R, ptx.Green, ptx.MatrixB, ptx.MatrixA)]
	}
	for i := range op.Out {
		if e := &in.Args[0].Elems[i]; e.Kind == ptx.Register && l.reads[e.Reg] > 0 {
			op.Out[i] = l.reg(e.Reg)
		}
	}
	op.At, op.Layer = l.coordinates(o, op.Shape, in.Type2)
	if s := &o.Elems[len(o.Elems)-1]; s.Kind == ptx.Address {
		op.Sampler = l.handle(s)
	}
	op.Plain = op.Shape.Dims <= 2 && !op.Shape.Layered && op.Gather < 0 && op.Sampler.Kind == ir.Nowhere
	l.emit(ir.Instr{Op: ir.OpTexture, A: l.handle(o), B: op.At[0], C: op.At[1], Detail: op})
}

var opTld4 = ptx.OpOf("tld4")

// lowerTexQuery lowers txq and suq.
func lowerTexQuery(l *lowerer, in *ptx.Inst) {
	what := in.Mods.First(ptx.QWidth, ptx.QHeight, ptx.QDepth, ptx.QDataType, ptx.QOrder, ptx.QNormalized, ptx.QArraySize, ptx.QLevels,
		ptx.QSamples, ptx.QLayout, ptx.QUnnormalized, ptx.QFilter, ptx.QAddress0, ptx.QAddress1, ptx.QAddress2)
	op := &ir.Query{Property: what, Sampler: in.Mods.OfSampler(), Surface: in.Op == opSuq}
	l.emit(ir.Instr{Op: ir.OpQuery, A: l.handle(&in.Args[1]), Dst: l.dst(&in.Args[0], false), Detail: op})
}

var opSuq = ptx.OpOf("suq")
