package exec

import (
	"encoding/binary"
	"math"
	"unsafe"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// eachElement calls do with the bytes of each active lane's place on its surface: nil if it lies beyond the edges.
func eachElement(g *group, in *instr, do func(op *ir.Surface, t *Texture, lane int, raw []byte)) {
	op := in.Detail.(*ir.Surface)
	hp, hs := g.row(in.A)
	at := g.rows(&op.At, op.Shape.Dims)
	layers, layerStep := g.row(op.Layer)
	w := g.w
	for _, lane := range g.act.lanes() {
		l := int(lane)
		h := arith.Get64(hp, hs, l)
		if !g.w.bind(h, true) {
			g.fail(in.Line, l, ptx.ErrIllegalAddress, h, "no surface of this handle")
			return
		}
		layer := int32(0)
		if layers != nil {
			layer = int32(arith.Get32(layers, layerStep, l))
		}
		t, c := w.texture.t, at.get(l)
		raw, result := surfaceElement(op, t, [3]int32{int32(c[0]), int32(c[1]), int32(c[2])}, layer)
		switch result {
		case ptx.ErrMisalignedAddress:
			g.fail(in.Line, l, result, uint64(c[0]), "misaligned place on a surface")
			return
		case ptx.ErrIllegalAddress:
			g.fail(in.Line, l, result, uint64(c[0]), "place beyond the edges of a surface")
			return
		}
		do(op, t, l, raw)
		if g.fault != nil {
			return
		}
	}
}

// surfaceElement returns the bytes that an access touches: none if it is to be dropped, or a fault.
func surfaceElement(op *ir.Surface, t *Texture, at [3]int32, layer int32) (raw []byte, fault int32) {
	size, n := t.ElementBytes(), op.Size*len(op.Values)
	x := int(at[0])
	if op.Elements {
		x, n = x*size, size
	}
	edge := t.Extent()
	place := [4]int{x, int(at[1]), int(at[2]), int(layer)}
	last := [4]int{t.Width*size - n, edge[1] - 1, edge[2] - 1, 0}
	if op.Shape.Layered {
		last[3] = max(t.Depth, 1) - 1
	}
	for d := range place {
		if place[d] >= 0 && place[d] <= last[d] {
			continue
		}
		if op.Outside == ptx.Trap {
			return nil, ptx.ErrIllegalAddress
		}
		if op.Outside == ptx.Zeros || last[d] < 0 {
			return nil, 0
		}
		if d == 0 && x%n != 0 {
			return nil, ptx.ErrMisalignedAddress // clamped or not, as an H200 reports it
		}
		if place[d] = max(min(place[d], last[d]), 0); d == 0 {
			place[d] -= place[d] % n
		}
	}
	if place[0]%n != 0 {
		return nil, ptx.ErrMisalignedAddress
	}
	from := place[0] + place[1]*t.PitchBytes + (place[2]+place[3])*t.SliceBytes
	return t.Data[from : from+n], 0
}

func runLoadSurface(g *group, in *instr) {
	eachElement(g, in, func(op *ir.Surface, t *Texture, lane int, raw []byte) {
		for i, p := range op.Values {
			v := uint64(0)
			switch {
			case raw == nil:
			case op.Elements:
				v = uint64(t.component(raw, i))
			default:
				v = loadElement(raw[i*op.Size:], op.Size)
			}
			if to, _ := g.row(p); p.Kind == ir.Row64 {
				arith.Put64(to, lane, v)
			} else {
				arith.Put32(to, lane, uint32(v))
			}
		}
	})
}

func runStoreSurface(g *group, in *instr) {
	eachElement(g, in, func(op *ir.Surface, t *Texture, lane int, raw []byte) {
		if raw == nil {
			return
		}
		for i, p := range op.Values {
			from, step := g.row(p)
			switch {
			case op.Elements:
				if i < t.Channels {
					t.setComponent(raw, i, arith.Get32(from, step, lane))
				}
			case op.Size == 8:
				binary.LittleEndian.PutUint64(raw[8*i:], arith.Get64(from, step, lane))
			default:
				storeElement(raw[i*op.Size:], op.Size, arith.Get32(from, step, lane))
			}
		}
	})
}

func loadElement(raw []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(raw[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(raw))
	case 4:
		return uint64(binary.LittleEndian.Uint32(raw))
	}
	return binary.LittleEndian.Uint64(raw)
}

func storeElement(raw []byte, size int, v uint32) {
	switch size {
	case 1:
		raw[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(raw, uint16(v))
	default:
		binary.LittleEndian.PutUint32(raw, v)
	}
}

// component returns a channel as 32 bits: extended, or made f32.
func (t *Texture) component(raw []byte, k int) uint32 {
	switch {
	case k >= t.Channels:
		return 0
	case t.Format == F16:
		return math.Float32bits(arith.CanonF32(float32(t.number(raw, k))))
	}
	return uint32(t.channel(raw, k))
}

// setComponent stores 32 bits as a channel: the nearest value that it can have.
func (t *Texture) setComponent(raw []byte, k int, v uint32) {
	size := t.Format.Bytes()
	switch t.Format {
	case U8, U16:
		v = min(v, 1<<(8*size)-1)
	case S8, S16:
		most := int32(1)<<(8*size-1) - 1
		v = uint32(max(min(int32(v), most), -most-1))
	case F16:
		v = uint32(toHalf(math.Float32frombits(v)))
	}
	storeElement(raw[k*size:], size, v)
}

// toHalf rounds to the nearest f16, to the even one of two.
func toHalf(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	a := math.Abs(float64(f))
	switch {
	case a != a:
		return 0x7fff
	case a >= 65520:
		return sign | 0x7c00
	case a < 1.0/(1<<14):
		return sign | uint16(math.RoundToEven(a*(1<<24))) // of subnormal numbers; 1024 is the first normal one
	}
	exponent := int(b>>23&0xff) - 127
	mantissa := math.RoundToEven(math.Ldexp(a, 10-exponent)) // 1024…2048
	return sign | uint16((exponent+14)<<10+int(mantissa))
}

func runReduceSurface(g *group, in *instr) {
	eachElement(g, in, func(op *ir.Surface, t *Texture, lane int, raw []byte) {
		if raw == nil {
			return
		}
		a := op.Atomic[0]
		if op.Elements && t.Format == S32 {
			a = op.Atomic[1]
		}
		p := unsafe.Pointer(&raw[0])
		if len(raw) < a.Size || uintptr(p)&uintptr(a.Size-1) != 0 {
			g.fail(in.Line, lane, ptx.ErrMisalignedAddress, 0, "a surface's elements are too small for this reduction")
			return
		}
		from, step := g.row(op.Values[0])
		// Other workers may access the same element.
		if a.Size == 8 {
			update64(p, a, arith.Get64(from, step, lane), 0, true)
		} else {
			update32(p, a, uint64(arith.Get32(from, step, lane)), 0, true)
		}
	})
}
