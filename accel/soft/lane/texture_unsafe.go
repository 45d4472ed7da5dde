package lane

import (
	"encoding/binary"
	"math"
	"unsafe"

	"pegasus/accel/ptx"
)

// coordinates gives the operands that say which place is meant their places.
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

// handle is the place of a texture's or surface's handle.
func (l *lowerer) handle(o *ptx.Operand) place {
	if o.Var != nil {
		return l.constant(l.address(o.Var))
	}
	return l.reg(o.Reg)
}

// tex lowers tex and tld4. There are no mipmaps, so what says which level is meant says nothing.
func (l *lowerer) tex(in *ptx.Inst) {
	o := &in.Args[1]
	op := &texOp{shape: in.Mods.Geometry(), integer: in.Type2 == ptx.S32, gather: -1}
	if in.Op == opTld4 {
		op.gather = map[ptx.Mod]int{ptx.R: 0, ptx.Green: 1, ptx.MatrixB: 2, ptx.MatrixA: 3}[in.Mods.First(ptx.R, ptx.Green, ptx.MatrixB, ptx.MatrixA)]
	}
	for i := range op.out {
		if e := &in.Args[0].Elems[i]; e.Kind == ptx.Register {
			op.out[i] = l.reg(e.Reg)
		}
	}
	op.at, op.layer = l.coordinates(o, op.shape, in.Type2)
	if s := &o.Elems[len(o.Elems)-1]; s.Kind == ptx.Address {
		op.sampler = l.handle(s)
	}
	op.plain = op.shape.Dims <= 2 && !op.shape.Layered && op.gather < 0 && op.sampler.kind == nowhere
	c := instr{exec: runTex, a: l.handle(o), b: op.at[0], c: op.at[1], aux: op}
	if op.plain && !op.integer {
		c.exec = runPlainTex
	}
	l.emit(c)
}

var opTld4 = ptx.OpOf("tld4")

// rows are operands as they are read lane by lane.
type rows struct {
	p    [3]unsafe.Pointer
	step [3]int
	n    int
}

func (g *group) rows(at *[3]place, n int) (r rows) {
	r.n = n
	for d := range n {
		r.p[d], r.step[d] = g.row(at[d])
	}
	return r
}

func (r *rows) get(lane int) (v [3]uint32) {
	for d := range r.n {
		v[d] = get32(r.p[d], r.step[d], lane)
	}
	return v
}

// runPlainTex is runTex for one or two f32 coordinates and nothing else, which scalers and filters use most.
func runPlainTex(g *group, in *instr) {
	op := in.aux.(*texOp)
	hp, hs := g.row(in.a)
	xp, xs := g.row(in.b)
	yp, ys := g.row(in.c)
	w := g.w
	var texel [4]uint32
	out := g.results(op)
	for _, lane := range g.lanes() {
		l := int(lane)
		if h := get64(hp, hs, l); (w.texture.t == nil || h != w.texture.handle) && !g.bindTexture(in, l, h) {
			return
		}
		x, y := get32(xp, xs, l), uint32(0)
		if yp != nil {
			y = get32(yp, ys, l)
		}
		switch t := w.texture.t; {
		case w.texture.fast && t.Linear:
			t.between(x, y, yp != nil, &texel)
		case w.texture.fast:
			t.near(x, y, yp != nil, &texel)
		default:
			t.sample(t.sampling(), [3]uint32{x, y}, 0, op, &texel)
		}
		for i, p := range out {
			if p != nil {
				put32(p, l, texel[i])
			}
		}
	}
}

// results are the rows of what a tex instruction writes.
func (g *group) results(op *texOp) (out [4]unsafe.Pointer) {
	for i, p := range op.out {
		out[i], _ = g.row(p)
	}
	return out
}

// bindTexture is bind of a texture. It says false after a fault.
func (g *group) bindTexture(in *instr, lane int, handle uint64) bool {
	if g.bind(handle, false) {
		return true
	}
	g.fail(in, lane, ptx.ErrIllegalAddress, handle, "no texture of this handle")
	return false
}

func runTex(g *group, in *instr) {
	op := in.aux.(*texOp)
	hp, hs := g.row(in.a)
	at := g.rows(&op.at, op.shape.Dims)
	layers, layerStep := g.row(op.layer)
	samplers, samplerStep := g.row(op.sampler)
	w := g.w
	var texel [4]uint32
	out := g.results(op)
	for _, lane := range g.lanes() {
		l := int(lane)
		if h := get64(hp, hs, l); (w.texture.t == nil || h != w.texture.handle) && !g.bindTexture(in, l, h) {
			return
		}
		t, c := w.texture.t, at.get(l)
		if !op.plain || !w.texture.words || !t.word(c, &texel) {
			s, layer := t.sampling(), uint32(0)
			if samplers != nil {
				h := get64(samplers, samplerStep, l)
				known := w.prog.samplers[h]
				if known == nil {
					g.fail(in, l, ptx.ErrIllegalAddress, h, "no sampler of this handle")
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
	fast  bool // may be read by Texture.near or Texture.between
	words bool // may be read by Texture.word
}

// bind makes a texture or surface the one that is read next.
func (g *group) bind(handle uint64, surface bool) bool {
	w := g.w
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
		b = binding{t: t, words: t.Format.bytes() == 4, fast: !t.Normalized && t.Address[0] != Border && t.Address[1] != Border && (t.Format == U8 || t.Format == U16)}
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

// near reads the nearest element of unsigned bytes or words, clamped: the
// common case of sample.
func (t *Texture) near(x, y uint32, two bool, out *[4]uint32) {
	i, j := clampIndex(x, t.Width), 0
	if two {
		j = clampIndex(y, max(t.Height, 1))
	}
	one := uint32(1)
	if t.ReadFloat {
		one = 0x3f800000
	}
	*out = [4]uint32{3: one}
	if t.Format == U8 {
		at := j*t.PitchBytes + i*t.Channels
		for k, v := range t.Data[at : at+t.Channels] {
			if out[k&3] = uint32(v); t.ReadFloat {
				out[k&3] = unit8[v]
			}
		}
		return
	}
	at := j*t.PitchBytes + i*t.Channels*2
	raw := t.Data[at : at+2*t.Channels]
	for k := 0; k < t.Channels; k++ {
		v := uint32(binary.LittleEndian.Uint16(raw[2*k:]))
		if t.ReadFloat {
			v = math.Float32bits(float32(v) / 65535)
		}
		out[k&3] = v
	}
}

// clampIndex is the floor of a coordinate, within a dimension.
func clampIndex(x uint32, n int) int {
	v := math.Float32frombits(x)
	switch {
	case !(v > 0):
		return 0
	case v >= float32(n):
		return n - 1
	}
	return min(int(v), n-1)
}

// unit8 has the bits of v/255.
var unit8 = func() (t [256]uint32) {
	for v := range t {
		t[v] = math.Float32bits(float32(v) / 255)
	}
	return t
}()

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

// between filters unsigned bytes or words linearly, clamped: what blend does, in whole numbers.
func (t *Texture) between(x, y uint32, two bool, out *[4]uint32) {
	i, wx := weight(float64(math.Float32frombits(x)))
	j, wy := 0, 0.0
	if two {
		j, wy = weight(float64(math.Float32frombits(y)))
	}
	h := max(t.Height, 1)
	i0, i1 := max(min(i, t.Width-1), 0), max(min(i+1, t.Width-1), 0)
	j0, j1 := max(min(j, h-1), 0), max(min(j+1, h-1), 0)
	a, b := uint64(wx*256), uint64(wy*256)
	shares := [4]uint64{(256 - a) * (256 - b), a * (256 - b), (256 - a) * b, a * b}
	size := t.elementBytes()
	at := [4]int{j0*t.PitchBytes + i0*size, j0*t.PitchBytes + i1*size, j1*t.PitchBytes + i0*size, j1*t.PitchBytes + i1*size}
	*out = [4]uint32{3: 1}
	if t.ReadFloat {
		out[3] = 0x3f800000
	}
	for k := range t.Channels {
		var sum uint64 // of at most 16 + 16 bits
		for c, share := range shares {
			if t.Format == U8 {
				sum += share * uint64(t.Data[at[c]+k])
			} else {
				sum += share * uint64(binary.LittleEndian.Uint16(t.Data[at[c]+2*k:]))
			}
		}
		if t.ReadFloat {
			out[k&3] = math.Float32bits(float32(float64(sum) / (1 << 16) / t.unit()))
		} else {
			out[k&3] = uint32((sum + 1<<15) >> 16)
		}
	}
}

// texQuery lowers txq and suq.
func (l *lowerer) texQuery(in *ptx.Inst) {
	what := in.Mods.First(ptx.QWidth, ptx.QHeight, ptx.QDepth, ptx.QDataType, ptx.QOrder, ptx.QNormalized, ptx.QArraySize, ptx.QLevels,
		ptx.QSamples, ptx.QLayout, ptx.QUnnormalized, ptx.QFilter, ptx.QAddress0, ptx.QAddress1, ptx.QAddress2)
	exec := func(g *group, c *instr) {
		hp, hs := g.row(c.a)
		dp, _ := g.row(c.d)
		for _, lane := range g.lanes() {
			h := get64(hp, hs, int(lane))
			if !g.bind(h, in.Op == opSuq) {
				g.fail(c, int(lane), ptx.ErrIllegalAddress, h, "no texture or surface of this handle")
				return
			}
			put32(dp, int(lane), g.w.texture.t.query(what))
		}
	}
	l.emit(instr{exec: exec, a: l.handle(&in.Args[1]), d: l.dst(&in.Args[0], false)})
}

var opSuq = ptx.OpOf("suq")
