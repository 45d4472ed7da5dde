package exec

import (
	"encoding/binary"
	"math"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// Format is the type of a texture's channels, numbered as CUarray_format.
type Format uint32

// Channel formats.
const (
	U8  Format = 0x01
	U16 Format = 0x02
	U32 Format = 0x03
	S8  Format = 0x08
	S16 Format = 0x09
	S32 Format = 0x0a
	F16 Format = 0x10
	F32 Format = 0x20
)

// Bytes returns the size of a channel.
func (f Format) Bytes() int {
	switch f {
	case U8, S8:
		return 1
	case U16, S16, F16:
		return 2
	}
	return 4
}

// AddressMode selects the result of reads beyond the edges, numbered as CUaddress_mode.
type AddressMode uint32

// Address modes.
const (
	Wrap AddressMode = iota
	Clamp
	Mirror
	Border
)

// Texture is memory used as a texture, or as a surface: rows of elements, slices of rows. Without a Height it is 1D,
// without a Depth it is 2D; if it is layered or a cube, Depth counts layers or faces.
type Texture struct {
	Data                   []byte
	Width, Height, Depth   int // elements, rows, slices
	PitchBytes, SliceBytes int // from row to row, from slice to slice
	Layered, Cube          bool
	Surface                bool // for surface instructions; textures are for tex
	Format                 Format
	Channels               int
	Linear                 bool // filter, else the nearest element
	Normalized             bool // coordinates from 0 to 1
	ReadFloat              bool // integer elements read as 0…1 or -1…1
	Address                [3]AddressMode
	Border                 [4]float32
}

// sampling has the sampling parameters of a texture.
type sampling struct {
	linear, normalized bool
	address            [3]AddressMode
}

func (t *Texture) sampling() sampling { return sampling{t.Linear, t.Normalized, t.Address} }

// samplingOf returns the sampling that a .samplerref specifies. It can forbid normalised coordinates but not enable
// them.
func samplingOf(s *ptx.Sampler, t *Texture) sampling {
	return sampling{s.Linear, t.Normalized && !s.Unnormalized,
		[3]AddressMode{AddressMode(s.Address[0]), AddressMode(s.Address[1]), AddressMode(s.Address[2])}}
}

// ElementBytes returns the size of an element, in bytes.
func (t *Texture) ElementBytes() int { return t.Channels * t.Format.Bytes() }

// valid reports whether every element lies within Data.
func (t *Texture) valid() bool {
	const most = 1 << 20 // rows, slices
	rows, slices, n := max(t.Height, 1), max(t.Depth, 1), len(t.Data)
	if t.Channels < 1 || t.Channels > 4 || t.Width <= 0 || t.Width > 1<<27 || rows > most || slices > most {
		return false
	}
	if t.PitchBytes < 0 || t.SliceBytes < 0 || rows > 1 && t.PitchBytes > n || slices > 1 && t.SliceBytes > n {
		return false
	}
	return (slices-1)*t.SliceBytes+(rows-1)*t.PitchBytes+t.Width*t.ElementBytes() <= n
}

// Extent returns the number of elements along each dimension of a layer.
func (t *Texture) Extent() [3]int {
	if t.Layered || t.Cube {
		return [3]int{t.Width, max(t.Height, 1), 1}
	}
	return [3]int{t.Width, max(t.Height, 1), max(t.Depth, 1)}
}

// Float reports whether reads return f32.
func (t *Texture) Float() bool { return t.ReadFloat || t.Format == F32 || t.Format == F16 }

// view is a layer of a texture, with its sampling.
type view struct {
	*Texture
	sampling
	base int // bytes before the layer
	dims int
}

// Read returns the channels that tex gives for f32 coordinates in one to three dimensions, all as bits.
func (t *Texture) Read(dims int, at [3]uint32) (channels [4]uint32) {
	t.sample(t.sampling(), at, 0, &ir.Texture{Shape: ptx.Geometry{Dims: dims}, Gather: -1}, &channels)
	return channels
}

// sample reads the texture at a place given by the bits of its coordinates.
func (t *Texture) sample(s sampling, at [3]uint32, layer uint32, op *ir.Texture, out *[4]uint32) {
	v := view{Texture: t, sampling: s, dims: op.Shape.Dims}
	if op.Integer {
		v.enter(op.Shape, layer)
		v.element([3]int{int(int32(at[0])), int(int32(at[1])), int(int32(at[2]))}, out)
		return
	}
	var p [3]float64
	for d := range v.dims {
		p[d] = float64(math.Float32frombits(at[d]))
	}
	v.enter(op.Shape, layer)
	if op.Shape.Cube {
		p = v.turn(p)
	}
	if v.normalized {
		for d, n := range t.Extent() {
			p[d] *= float64(n)
		}
	}
	switch {
	case op.Gather >= 0:
		v.gather(p, op.Gather, out)
	case v.linear:
		v.blend(p, out)
	default:
		v.element([3]int{index(p[0]), index(p[1]), index(p[2])}, out)
	}
}

// enter selects a layer, clamped to the existing ones.
func (v *view) enter(shape ptx.Geometry, layer uint32) {
	if !shape.Layered {
		return
	}
	layers := max(v.Depth, 1)
	if shape.Cube {
		layers = max(v.Depth/6, 1)
	}
	n := int(min(layer, uint32(layers-1)))
	if shape.Cube {
		n *= 6
	}
	v.base = n * v.SliceBytes
}

// turn selects the face of a cube that a direction points to, and returns the position on it: see “Cubemap Textures” in
// the CUDA programming guide.
func (v *view) turn(p [3]float64) [3]float64 {
	x, y, z := p[0], p[1], p[2]
	ax, ay, az := math.Abs(x), math.Abs(y), math.Abs(z)
	face, m, s, t := 0, ax, -z, -y
	switch {
	case ax >= ay && ax >= az:
		if x < 0 {
			face, s = 1, z
		}
	case ay >= az:
		face, m, s, t = 2, ay, x, z
		if y < 0 {
			face, t = 3, -z
		}
	default:
		face, m, s, t = 4, az, x, -y
		if z < 0 {
			face, s = 5, -x
		}
	}
	if v.Depth >= 6 {
		v.base += face * v.SliceBytes
	}
	v.dims, v.normalized, v.address = 2, true, [3]AddressMode{Clamp, Clamp, Clamp}
	return [3]float64{(s/m + 1) / 2, (t/m + 1) / 2}
}

// index returns the floor of a coordinate, clamped to the range of an int; 0 for NaN.
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

// fetch returns the bytes of an element, or reports that it lies beyond the border.
func (v *view) fetch(i [3]int) (raw []byte, border bool) {
	at := v.base
	size := v.ElementBytes()
	step := [3]int{size, v.PitchBytes, v.SliceBytes}
	n := v.Extent()
	for d := range v.dims {
		k, in := wrap(i[d], n[d], v.address[d], v.normalized)
		if !in {
			return nil, true
		}
		at += k * step[d]
	}
	return v.Data[at : at+size], false
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

// element reads one element.
func (v *view) element(i [3]int, out *[4]uint32) {
	raw, border := v.fetch(i)
	for k := range out {
		switch {
		case k >= v.Channels:
			out[k] = uint32(v.missing(k))
		case border && v.Float():
			out[k] = math.Float32bits(v.Border[k])
		case border:
			out[k] = uint32(int64(v.Border[k]))
		case v.Format == F16 || v.ReadFloat && v.Format != F32:
			out[k] = math.Float32bits(arith.CanonF32(float32(v.number(raw, k) / v.unit())))
		default:
			out[k] = uint32(v.channel(raw, k))
		}
	}
}

// missing returns the value that channel k reads as if the texture has fewer channels.
func (t *Texture) missing(k int) int {
	switch {
	case k < 3:
		return 0
	case t.Float():
		return 0x3f800000
	}
	return 1
}

// channel returns one channel of an element, sign-extended, or float bits.
func (t *Texture) channel(raw []byte, k int) int64 {
	switch t.Format {
	case U8:
		return int64(raw[k])
	case S8:
		return int64(int8(raw[k]))
	case U16, F16:
		return int64(binary.LittleEndian.Uint16(raw[2*k:]))
	case S16:
		return int64(int16(binary.LittleEndian.Uint16(raw[2*k:])))
	case S32:
		return int64(int32(binary.LittleEndian.Uint32(raw[4*k:])))
	}
	return int64(binary.LittleEndian.Uint32(raw[4*k:]))
}

// number returns a channel's value for filtering, where 1 is the value that reads as 1.
func (t *Texture) number(raw []byte, k int) float64 {
	c := t.channel(raw, k)
	switch t.Format {
	case F32:
		return float64(math.Float32frombits(uint32(c)))
	case F16:
		return half(uint16(c))
	case S8, S16:
		if t.ReadFloat {
			return max(float64(c), -t.unit())
		}
	}
	return float64(c)
}

// unit returns the number that reads as 1.
func (t *Texture) unit() float64 {
	if t.ReadFloat {
		switch t.Format {
		case U8:
			return math.MaxUint8
		case U16:
			return math.MaxUint16
		case S8:
			return math.MaxInt8
		case S16:
			return math.MaxInt16
		}
	}
	return 1
}

// half returns the value of an f16.
func half(b uint16) float64 {
	exponent, mantissa := int(b>>10&31), float64(b&1023)
	var v float64
	switch exponent {
	case 0:
		v = math.Ldexp(mantissa, -24)
	case 31:
		if v = math.Inf(1); mantissa != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(1024+mantissa, exponent-25)
	}
	if b>>15 != 0 {
		return -v
	}
	return v
}

// blend filters linearly. Weights have 8 bits of fraction, as on devices. Values that are read as integers are filtered
// too, and rounded: the manual leaves that open, and ffmpeg's bilinear scaler relies on it.
func (v *view) blend(p [3]float64, out *[4]uint32) {
	var i [3]int
	var w [3]float64
	for d := range v.dims {
		i[d], w[d] = weight(p[d])
	}
	var sum [4]float64
	for corner := range 1 << v.dims {
		share, at := 1.0, i
		for d := range v.dims {
			if corner>>d&1 == 0 {
				share *= 1 - w[d]
			} else {
				share *= w[d]
				at[d]++
			}
		}
		if share != 0 {
			v.add(&sum, at, share)
		}
	}
	if v.Channels < 4 {
		sum[3] = v.unit()
	}
	for k := range out {
		if v.Float() {
			out[k] = math.Float32bits(arith.CanonF32(float32(sum[k] / v.unit())))
		} else {
			out[k] = uint32(int64(math.Floor(sum[k] + 0.5)))
		}
	}
}

// add adds a share of an element.
func (v *view) add(sum *[4]float64, i [3]int, share float64) {
	raw, border := v.fetch(i)
	for k := range v.Channels {
		if border {
			sum[k] += share * float64(v.Border[k]) * v.unit()
		} else {
			sum[k] += share * v.number(raw, k)
		}
	}
}

// weight splits a coordinate into the index of the element before it and the weight of the next one.
func weight(v float64) (int, float64) {
	v -= 0.5
	if !(math.Abs(v) < 1<<30) {
		return index(v), 0
	}
	f := math.Floor(v)
	w := math.Floor((v-f)*256+0.5) / 256
	return int(f), w
}

// gather reads one channel of the four elements that blend would filter, against the clock from the lower left.
func (v *view) gather(p [3]float64, channel int, out *[4]uint32) {
	i, j := index(p[0]-0.5), index(p[1]-0.5)
	for k, at := range [4][3]int{{i, j + 1}, {i + 1, j + 1}, {i + 1, j}, {i, j}} {
		var texel [4]uint32
		v.element(at, &texel)
		out[k] = texel[channel]
	}
}

// query returns the result of txq and suq. Properties for which the manual has OpenCL's numbers are returned as these.
func (t *Texture) query(what ptx.Mod) uint32 {
	switch what {
	case ptx.QWidth:
		return uint32(t.Width)
	case ptx.QHeight:
		return uint32(t.Height)
	case ptx.QDepth:
		if !t.Layered && !t.Cube {
			return uint32(t.Depth)
		}
	case ptx.QArraySize:
		if t.Layered {
			return uint32(t.Depth)
		}
	case ptx.QLevels, ptx.QSamples:
		return 1
	case ptx.QDataType:
		return t.dataType()
	case ptx.QOrder:
		return [5]uint32{1: 0x10b0, 2: 0x10b2, 3: 0x10b4, 4: 0x10b5}[t.Channels]
	case ptx.QNormalized:
		if t.Normalized {
			return 1
		}
	case ptx.QFilter:
		if t.Linear {
			return 1
		}
	case ptx.QAddress0, ptx.QAddress1, ptx.QAddress2:
		return addressNumbers[t.Address[what-ptx.QAddress0]&3]
	}
	return 0
}

// addressNumbers are txq's: wrap, mirror, clamp_ogl, clamp_to_edge, clamp_to_border.
var addressNumbers = [4]uint32{Wrap: 0, Clamp: 3, Mirror: 1, Border: 4}

// querySampler returns the result of txq of a .samplerref.
func querySampler(s *ptx.Sampler, what ptx.Mod) uint32 {
	switch {
	case what >= ptx.QAddress0:
		return addressNumbers[s.Address[what-ptx.QAddress0]&3]
	case what == ptx.QFilter && s.Linear, what == ptx.QUnnormalized && s.Unnormalized:
		return 1
	}
	return 0
}

// dataType returns the OpenCL number of the channels' type.
func (t *Texture) dataType() uint32 {
	if t.ReadFloat {
		if n, ok := map[Format]uint32{S8: 0x10d0, S16: 0x10d1, U8: 0x10d2, U16: 0x10d3}[t.Format]; ok {
			return n
		}
	}
	return map[Format]uint32{S8: 0x10d7, S16: 0x10d8, S32: 0x10d9, U8: 0x10da, U16: 0x10db, U32: 0x10dc, F16: 0x10dd, F32: 0x10de}[t.Format]
}
