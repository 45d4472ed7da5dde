package exec

import (
	"encoding/binary"
	"unsafe"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// rows are operands as they are read lane by lane.
type rows struct {
	p    [3]unsafe.Pointer
	step [3]int
	n    int
}

func (f *registerFile) rows(at *[3]ir.Place, n int) (r rows) {
	r.n = n
	for d := range n {
		r.p[d], r.step[d] = f.row(at[d])
	}
	return r
}

func (r *rows) get(lane int) (v [3]uint32) {
	for d := range r.n {
		v[d] = arith.Get32(r.p[d], r.step[d], lane)
	}
	return v
}

// runPlainTex is runTex for one or two f32 coordinates and no other operands, the form that scalers and filters use
// most.
func runPlainTex(g *group, in *instr) {
	op := in.Detail.(*ir.Texture)
	h, same := sameHandle(g, in.A)
	if !same {
		runTex(g, in)
		return
	}
	if selectTexture(g, in, g.act.lo, h) {
		if t := g.w.texture.t; t.together(op.Shape.Dims) {
			sampleTogether(g, in, op, t)
		} else {
			runTex(g, in)
		}
	}
}

// sameHandle returns the handle of all active lanes, if they have the same one.
func sameHandle(g *group, p ir.Place) (handle uint64, same bool) {
	handles, step := g.row(p)
	handle = arith.Get64(handles, step, g.act.lo)
	if step != 0 {
		for _, l := range g.act.lanes() {
			if arith.Get64(handles, step, int(l)) != handle {
				return 0, false
			}
		}
	}
	return handle, true
}

// results returns the rows of the results of a tex instruction.
func (r *registerFile) results(op *ir.Texture) (out [4]unsafe.Pointer) {
	for i, p := range op.Out {
		out[i], _ = r.row(p)
	}
	return out
}

// selectTexture selects the texture of a handle for reading. It returns false after a fault.
func selectTexture(g *group, in *instr, lane int, handle uint64) bool {
	if last := &g.w.texture; last.t != nil && handle == last.handle || g.w.bind(handle, false) {
		return true
	}
	g.fail(in.Line, lane, ptx.ErrIllegalAddress, handle, "no texture of this handle")
	return false
}

func runTex(g *group, in *instr) {
	op := in.Detail.(*ir.Texture)
	hp, hs := g.row(in.A)
	at := g.rows(&op.At, op.Shape.Dims)
	layers, layerStep := g.row(op.Layer)
	samplers, samplerStep := g.row(op.Sampler)
	w := g.w
	var texel [4]uint32
	out := g.results(op)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		if !selectTexture(g, in, l, arith.Get64(hp, hs, l)) {
			return
		}
		t, c := w.texture.t, at.get(l)
		if !op.Plain || !op.Integer || !w.texture.words || !t.word(c, &texel) {
			s, layer := t.sampling(), uint32(0)
			if samplers != nil {
				h := arith.Get64(samplers, samplerStep, l)
				known := w.prog.Samplers[h]
				if known == nil {
					g.fail(in.Line, l, ptx.ErrIllegalAddress, h, "no sampler of this handle")
					return
				}
				s = samplingOf(known, t)
			}
			if layers != nil {
				layer = arith.Get32(layers, layerStep, l)
			}
			t.sample(s, c, layer, op, &texel)
		}
		for i, p := range out {
			if p != nil {
				arith.Put32(p, l, texel[i])
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
		b = binding{t: t, words: t.Format.Bytes() == 4}
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

func runQuery(g *group, in *instr) {
	op := in.Detail.(*ir.Query)
	hp, hs := g.row(in.A)
	dp, _ := g.row(in.Dst)
	for _, lane := range g.act.lanes() {
		h := arith.Get64(hp, hs, int(lane))
		if s := g.w.prog.Samplers[h]; s != nil && op.Sampler {
			arith.Put32(dp, int(lane), querySampler(s, op.Property))
			continue
		}
		if !g.w.bind(h, op.Surface) {
			g.fail(in.Line, int(lane), ptx.ErrIllegalAddress, h, "no texture or surface of this handle")
			return
		}
		arith.Put32(dp, int(lane), g.w.texture.t.query(op.Property))
	}
}

// runIsType executes istypep.
func runIsType(g *group, in *instr) {
	kind := in.Detail.(*ir.TypeTest).Kind
	hp, hs := g.row(in.A)
	dp, _ := g.row(in.Dst)
	for _, lane := range g.act.lanes() {
		h := arith.Get64(hp, hs, int(lane))
		is := g.w.prog.Opaque[h]
		if is == ptx.Plain && g.w.bind(h, false) {
			is = ptx.TexRef
		} else if is == ptx.Plain && g.w.bind(h, true) {
			is = ptx.SurfRef
		}
		arith.Put32(dp, int(lane), arith.Pick(is == kind, uint32(0), 1))
	}
}
