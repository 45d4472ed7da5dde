package lane

import (
	"encoding/binary"
	"math"
	"unsafe"

	"pegasus/accel/ptx"
)

// Format is the type of a texture's channels, as CUarray_format has it.
type Format uint32

// Channel formats.
const (
	U8  Format = 0x01
	U16 Format = 0x02
	U32 Format = 0x03
	S8  Format = 0x08
	S16 Format = 0x09
	S32 Format = 0x0a
	F32 Format = 0x20
)

func (f Format) bytes() int {
	switch f {
	case U8, S8:
		return 1
	case U16, S16:
		return 2
	}
	return 4
}

// AddressMode says what lies beyond the edges, as CUaddress_mode has it.
type AddressMode uint32

// Address modes.
const (
	Wrap AddressMode = iota
	Clamp
	Mirror
	Border
)

// Texture is pitch-linear memory seen as a 1D (Height 0 or 1) or 2D texture.
type Texture struct {
	Data          []byte
	Width, Height int // elements, rows
	PitchBytes    int
	Format        Format
	Channels      int
	Linear        bool // filter, else the nearest element
	Normalized    bool // coordinates from 0 to 1
	ReadFloat     bool // integer elements read as 0…1 or -1…1
	Address       [3]AddressMode
	Border        [4]float32
}

// valid says whether every element lies within Data.
func (t *Texture) valid() bool {
	size := t.Channels * t.Format.bytes()
	rows := max(t.Height, 1)
	return t.Channels >= 1 && t.Channels <= 4 && t.Width > 0 && t.Width <= 1<<27 && rows <= 1<<20 && t.PitchBytes >= 0 && t.PitchBytes <= 1<<32 &&
		(rows-1)*t.PitchBytes+t.Width*size <= len(t.Data)
}

// texOp is what a tex instruction needs to know.
type texOp struct {
	out     [4]place
	float   bool // results are f32
	integer bool // coordinates are s32
}

func (l *lowerer) tex(in *ptx.Inst) {
	o := &in.Args[1]
	op := &texOp{float: in.Type == ptx.F32, integer: in.Type2 == ptx.S32}
	for i := range op.out {
		if e := &in.Args[0].Elems[i]; e.Kind == ptx.Register {
			op.out[i] = l.reg(e.Reg)
		}
	}
	c := instr{exec: runTex, a: l.reg(o.Reg), b: l.src(&o.Elems[0], in.Type2), aux: op}
	if in.Mods.Has(ptx.D2) {
		c.c = l.src(&o.Elems[1], in.Type2)
	}
	l.emit(c)
}

func runTex(g *group, in *instr) {
	op := in.aux.(*texOp)
	hp, hs := g.row(in.a)
	xp, xs := g.row(in.b)
	yp, ys := g.row(in.c)
	w := g.w
	var texel [4]uint32
	var out [4]unsafe.Pointer
	for i, p := range op.out {
		out[i], _ = g.row(p)
	}
	for _, lane := range g.lanes() {
		l := int(lane)
		if h := get64(hp, hs, l); w.texture.t == nil || h != w.texture.handle {
			if !g.bind(h) {
				g.fail(in, l, ptx.ErrIllegalAddress, h, "no texture of this handle")
				return
			}
		}
		x, y := get32(xp, xs, l), uint32(0)
		if yp != nil {
			y = get32(yp, ys, l)
		}
		if t := w.texture.t; w.texture.near && !op.integer {
			t.near(x, y, yp != nil, &texel)
		} else {
			t.sample(x, y, yp != nil, op, &texel)
		}
		for i, p := range out {
			if p != nil {
				put32(p, l, texel[i])
			}
		}
	}
}

// bind makes a texture the one that is cached.
func (g *group) bind(handle uint64) bool {
	l := g.w.run.launch
	if l.Texture == nil {
		return false
	}
	t := l.Texture(handle)
	if t == nil || !t.valid() {
		return false
	}
	g.w.texture.t, g.w.texture.handle = t, handle
	g.w.texture.near = !t.Linear && !t.Normalized && t.Address[0] != Border && t.Address[1] != Border && (t.Format == U8 || t.Format == U16)
	return true
}

// sample reads the texture at a place given by the bits of its coordinates.
func (t *Texture) sample(x, y uint32, two bool, op *texOp, out *[4]uint32) {
	if op.integer {
		t.element(int(int32(x)), int(int32(y)), op, out)
		return
	}
	fx, fy := float64(math.Float32frombits(x)), 0.5
	if two {
		fy = float64(math.Float32frombits(y))
	}
	if t.Normalized {
		fx *= float64(t.Width)
		if two {
			fy *= float64(t.Height)
		}
	}
	if t.Linear {
		t.blend(fx, fy, two, out)
		return
	}
	t.element(index(fx), index(fy), op, out)
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

// index is the floor of a coordinate, kept within what an int can count; NaN is 0.
func index(v float64) int {
	switch {
	case v >= 1<<30:
		return 1 << 30
	case v <= -(1 << 30):
		return -(1 << 30)
	case v != v:
		return 0
	}
	return int(math.Floor(v))
}

// element reads one element.
func (t *Texture) element(i, j int, op *texOp, out *[4]uint32) {
	raw, border := t.fetch(i, j)
	for k := range out {
		switch {
		case k >= t.Channels:
			out[k] = 0
			if k == 3 && (t.ReadFloat || t.Format == F32) {
				out[k] = math.Float32bits(1)
			} else if k == 3 {
				out[k] = 1
			}
		case border && (t.ReadFloat || t.Format == F32):
			out[k] = math.Float32bits(t.Border[k])
		case border:
			out[k] = uint32(int64(t.Border[k]))
		case t.ReadFloat && t.Format != F32:
			out[k] = math.Float32bits(float32(t.normalise(t.channel(raw, k))))
		default:
			out[k] = uint32(t.channel(raw, k))
		}
	}
}

// fetch finds the bytes of an element, or says that it lies beyond the border.
func (t *Texture) fetch(i, j int) (raw []byte, border bool) {
	i, inX := wrap(i, t.Width, t.Address[0], t.Normalized)
	j, inY := wrap(j, max(t.Height, 1), t.Address[1], t.Normalized)
	if !inX || !inY {
		return nil, true
	}
	size := t.Channels * t.Format.bytes()
	at := j*t.PitchBytes + i*size
	return t.Data[at : at+size], false
}

// wrap brings an index into range. Wrap and mirror need normalised
// coordinates; without, they clamp.
func wrap(i, n int, mode AddressMode, normalized bool) (int, bool) {
	if i >= 0 && i < n {
		return i, true
	}
	switch {
	case mode == Border:
		return 0, false
	case mode == Wrap && normalized:
		return (i%n + n) % n, true
	case mode == Mirror && normalized:
		if i = (i%(2*n) + 2*n) % (2 * n); i >= n {
			i = 2*n - 1 - i
		}
		return i, true
	}
	return max(min(i, n-1), 0), true
}

// channel is one channel of an element, sign-extended, or float bits.
func (t *Texture) channel(raw []byte, k int) int64 {
	switch t.Format {
	case U8:
		return int64(raw[k])
	case S8:
		return int64(int8(raw[k]))
	case U16:
		return int64(binary.LittleEndian.Uint16(raw[2*k:]))
	case S16:
		return int64(int16(binary.LittleEndian.Uint16(raw[2*k:])))
	case S32:
		return int64(int32(binary.LittleEndian.Uint32(raw[4*k:])))
	}
	return int64(binary.LittleEndian.Uint32(raw[4*k:]))
}

// normalise maps integers to 0…1 or -1…1.
func (t *Texture) normalise(v int64) float64 {
	switch t.Format {
	case U8:
		return float64(v) / 255
	case U16:
		return float64(v) / 65535
	case S8:
		return max(float64(v)/127, -1)
	case S16:
		return max(float64(v)/32767, -1)
	case F32:
		return float64(math.Float32frombits(uint32(v)))
	}
	return float64(v)
}

// blend filters linearly. Weights have 8 bits of fraction, as on devices. What
// is read as integers is filtered too, and rounded: the manual leaves that
// open, and ffmpeg's bilinear scaler counts on it.
func (t *Texture) blend(x, y float64, two bool, out *[4]uint32) {
	i, wx := weight(x)
	j, wy := 0, 0.0
	if two {
		j, wy = weight(y)
	}
	var sum [4]float64
	add := func(i, j int, w float64) {
		if w == 0 {
			return
		}
		raw, border := t.fetch(i, j)
		for k := range t.Channels {
			if border {
				sum[k] += w * float64(t.Border[k])
			} else {
				sum[k] += w * t.value(raw, k)
			}
		}
	}
	add(i, j, (1-wx)*(1-wy))
	add(i+1, j, wx*(1-wy))
	add(i, j+1, (1-wx)*wy)
	add(i+1, j+1, wx*wy)
	if t.Channels < 4 {
		sum[3] = 1
	}
	for k := range out {
		if t.ReadFloat || t.Format == F32 {
			out[k] = math.Float32bits(canonF32(float32(sum[k])))
		} else {
			out[k] = uint32(int64(math.Floor(sum[k] + 0.5)))
		}
	}
}

// value is a channel as it is filtered.
func (t *Texture) value(raw []byte, k int) float64 {
	if t.ReadFloat || t.Format == F32 {
		return t.normalise(t.channel(raw, k))
	}
	return float64(t.channel(raw, k))
}

// weight splits a coordinate into the index of the element before it and how
// near the next one is.
func weight(v float64) (int, float64) {
	v -= 0.5
	if !(math.Abs(v) < 1<<30) {
		return index(v), 0
	}
	f := math.Floor(v)
	w := math.Floor((v-f)*256+0.5) / 256
	return int(f), w
}
