package lane

import (
	"encoding/binary"
	"unsafe"

	"pegasus/accel/ptx"
)

// coordinates lowers the coordinate operands and returns their places.
func (l *lowerer) coordinates(o *ptx.Operand, shape ptx.Geometry, t ptx.Type) (at [3]place, layer place) {
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
func (l *lowerer) handle(o *ptx.Operand) place {
	if o.Var != nil {
		return l.constant(l.address(o.Var))
	}
	return l.reg(o.Reg)
}

// lowerTex lowers tex and tld4. There are no mipmaps, so the level operand is ignored.
func lowerTex(l *lowerer, in *ptx.Inst) {
	o := &in.Args[1]
	op := &textureOp{shape: in.Mods.Geometry(), integer: in.Type2 == ptx.S32, gather: -1}
	if in.Op == opTld4 {
		op.gather = map[ptx.Mod]int{ptx.R: 0, ptx.Green: 1, ptx.MatrixB: 2, ptx.MatrixA: 3}[in.Mods.First(ptx.R, ptx.Green, ptx.MatrixB, ptx.MatrixA)]
	}
	for i := range op.out {
		if e := &in.Args[0].Elems[i]; e.Kind == ptx.Register && l.reads[e.Reg] > 0 {
			op.out[i] = l.reg(e.Reg)
		}
	}
	op.at, op.layer = l.coordinates(o, op.shape, in.Type2)
	if s := &o.Elems[len(o.Elems)-1]; s.Kind == ptx.Address {
		op.sampler = l.handle(s)
	}
	op.plain = op.shape.Dims <= 2 && !op.shape.Layered && op.gather < 0 && op.sampler.kind == nowhere
	l.emit(irInstr{op: irTexture, a: l.handle(o), b: op.at[0], c: op.at[1], detail: op})
}

var opTld4 = ptx.OpOf("tld4")

// rows are operands as they are read lane by lane.
type rows struct {
	p    [3]unsafe.Pointer
	step [3]int
	n    int
}

func (f *registerFile) rows(at *[3]place, n int) (r rows) {
	r.n = n
	for d := range n {
		r.p[d], r.step[d] = f.row(at[d])
	}
	return r
}

func (r *rows) get(lane int) (v [3]uint32) {
	for d := range r.n {
		v[d] = get32(r.p[d], r.step[d], lane)
	}
	return v
}

// runPlainTex is runTex for one or two f32 coordinates and no other operands, the form that scalers and filters use
// most.
func runPlainTex(g *group, in *instr) {
	op := in.detail.(*textureOp)
	h, same := sameHandle(g, in.a)
	if !same {
		runTex(g, in)
		return
	}
	if selectTexture(g, in, g.act.lo, h) {
		if t := g.w.texture.t; t.together(op.shape.Dims) {
			sampleTogether(g, in, op, t)
		} else {
			runTex(g, in)
		}
	}
}

// sameHandle returns the handle of all active lanes, if they have the same one.
func sameHandle(g *group, p place) (handle uint64, same bool) {
	handles, step := g.row(p)
	handle = get64(handles, step, g.act.lo)
	if step != 0 {
		for _, l := range g.act.lanes() {
			if get64(handles, step, int(l)) != handle {
				return 0, false
			}
		}
	}
	return handle, true
}

// results returns the rows of the results of a tex instruction.
func (r *registerFile) results(op *textureOp) (out [4]unsafe.Pointer) {
	for i, p := range op.out {
		out[i], _ = r.row(p)
	}
	return out
}

// selectTexture selects the texture of a handle for reading. It returns false after a fault.
func selectTexture(g *group, in *instr, lane int, handle uint64) bool {
	if last := &g.w.texture; last.t != nil && handle == last.handle || g.w.bind(handle, false) {
		return true
	}
	g.fail(in.line, lane, ptx.ErrIllegalAddress, handle, "no texture of this handle")
	return false
}

func runTex(g *group, in *instr) {
	op := in.detail.(*textureOp)
	hp, hs := g.row(in.a)
	at := g.rows(&op.at, op.shape.Dims)
	layers, layerStep := g.row(op.layer)
	samplers, samplerStep := g.row(op.sampler)
	w := g.w
	var texel [4]uint32
	out := g.results(op)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		if !selectTexture(g, in, l, get64(hp, hs, l)) {
			return
		}
		t, c := w.texture.t, at.get(l)
		if !op.plain || !op.integer || !w.texture.words || !t.word(c, &texel) {
			s, layer := t.sampling(), uint32(0)
			if samplers != nil {
				h := get64(samplers, samplerStep, l)
				known := w.prog.samplers[h]
				if known == nil {
					g.fail(in.line, l, ptx.ErrIllegalAddress, h, "no sampler of this handle")
					return
				}
				s = samplingOf(known, t)
			}
			if layers != nil {
				layer = get32(layers, layerStep, l)
			}
			t.sample(s, c, layer, op, &texel)
		}
		for i, p := range out {
			if p != nil {
				put32(p, l, texel[i])
			}
		}
	}
}

// binding is a texture that a kernel has used.
type binding struct {
	t     *Texture
	words bool // may be read by Texture.word
}

// bind selects the texture or surface of a handle for the next reads.
func (w *worker) bind(handle uint64, surface bool) bool {
	b, known := w.bound[handle]
	if !known {
		l := w.run.launch
		if l.Texture == nil {
			return false
		}
		t := l.Texture(handle)
		if t == nil || !t.valid() {
			return false
		}
		b = binding{t: t, words: t.Format.bytes() == 4}
		if w.bound == nil {
			w.bound = map[uint64]binding{}
		}
		w.bound[handle] = b
	}
	if b.t.Surface != surface {
		return false
	}
	w.texture.handle, w.texture.binding = handle, b
	return true
}

// word reads an element of 32-bit channels by its indices, unless it lies beyond the edges.
func (t *Texture) word(at [3]uint32, out *[4]uint32) bool {
	i, j := int(at[0]), int(at[1])
	if i >= t.Width || j >= max(t.Height, 1) {
		return false
	}
	*out = [4]uint32{3: 1}
	if t.Format == F32 {
		out[3] = 0x3f800000
	}
	raw := t.Data[j*t.PitchBytes+i*4*t.Channels:]
	for k := range t.Channels {
		out[k&3] = binary.LittleEndian.Uint32(raw[4*k:])
	}
	return true
}

// lowerTexQuery lowers txq and suq.
func lowerTexQuery(l *lowerer, in *ptx.Inst) {
	what := in.Mods.First(ptx.QWidth, ptx.QHeight, ptx.QDepth, ptx.QDataType, ptx.QOrder, ptx.QNormalized, ptx.QArraySize, ptx.QLevels,
		ptx.QSamples, ptx.QLayout, ptx.QUnnormalized, ptx.QFilter, ptx.QAddress0, ptx.QAddress1, ptx.QAddress2)
	op := &queryOp{what: what, sampler: in.Mods.OfSampler(), surface: in.Op == opSuq}
	l.emit(irInstr{op: irQuery, a: l.handle(&in.Args[1]), d: l.dst(&in.Args[0], false), detail: op})
}

var opSuq = ptx.OpOf("suq")

func runQuery(g *group, in *instr) {
	op := in.detail.(*queryOp)
	hp, hs := g.row(in.a)
	dp, _ := g.row(in.d)
	for _, lane := range g.act.lanes() {
		h := get64(hp, hs, int(lane))
		if s := g.w.prog.samplers[h]; s != nil && op.sampler {
			put32(dp, int(lane), querySampler(s, op.what))
			continue
		}
		if !g.w.bind(h, op.surface) {
			g.fail(in.line, int(lane), ptx.ErrIllegalAddress, h, "no texture or surface of this handle")
			return
		}
		put32(dp, int(lane), g.w.texture.t.query(op.what))
	}
}

// runIsType executes istypep.
func runIsType(g *group, in *instr) {
	kind := in.detail.(*typeTest).kind
	hp, hs := g.row(in.a)
	dp, _ := g.row(in.d)
	for _, lane := range g.act.lanes() {
		h := get64(hp, hs, int(lane))
		is := g.w.prog.opaque[h]
		if is == ptx.Plain && g.w.bind(h, false) {
			is = ptx.TexRef
		} else if is == ptx.Plain && g.w.bind(h, true) {
			is = ptx.SurfRef
		}
		put32(dp, int(lane), pick(is == kind, uint32(0), 1))
	}
}
