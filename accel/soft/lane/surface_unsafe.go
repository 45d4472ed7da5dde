package lane

import (
	"encoding/binary"
	"math"
	"unsafe"

	"pegasus/accel/ptx"
)

// lowerSurface lowers suld, sust and sured.
func lowerSurface(l *lowerer, in *ptx.Inst) {
	o, value := &in.Args[0], &in.Args[1]
	if in.Op == opSuld {
		o, value = value, o
	}
	op := &surfaceOp{shape: in.Mods.Geometry(), elements: in.Mods.Has(ptx.Samples), size: in.Type.Size(),
		beyond: in.Mods.First(ptx.Trap, ptx.Clamp, ptx.Zeros)}
	op.at, op.layer = l.coordinates(o, op.shape, ptx.S32)
	c := irInstr{a: l.handle(o), detail: op}
	for _, e := range elements(value) {
		if in.Op == opSuld {
			op.values = append(op.values, l.dst(e, op.size == 8))
		} else {
			op.values = append(op.values, l.src(e, in.Type))
		}
	}
	switch in.Op {
	case opSuld:
		c.op = irLoadSurface
	case opSust:
		c.op = irStoreSurface
	default:
		c.op = irReduceSurface
		op.atomic = surfaceReduction(in)
		l.prog.awaits = true
	}
	l.emit(c)
}

var opSuld, opSust, opSured = ptx.OpOf("suld"), ptx.OpOf("sust"), ptx.OpOf("sured")

// surfaceReduction returns the operation of sured on unsigned and on signed numbers.
func surfaceReduction(in *ptx.Inst) [2]*atomicOp {
	how := in.Mods.First(ptx.Add, ptx.Min, ptx.Max, ptx.And, ptx.Or)
	signed := ptx.S32
	if in.Type.Size() == 8 {
		signed = ptx.S64
	}
	return [2]*atomicOp{atomicOf(how, in.Type, false), atomicOf(how, signed, false)}
}

// eachElement calls do with the bytes of each active lane's place on its surface: nil if it lies beyond the edges.
func eachElement(g *group, in *instr, do func(op *surfaceOp, t *Texture, lane int, raw []byte)) {
	op := in.detail.(*surfaceOp)
	hp, hs := g.row(in.a)
	at := g.rows(&op.at, op.shape.Dims)
	layers, layerStep := g.row(op.layer)
	w := g.w
	for _, lane := range g.act.lanes() {
		l := int(lane)
		h := get64(hp, hs, l)
		if !g.w.bind(h, true) {
			g.fail(in.line, l, ptx.ErrIllegalAddress, h, "no surface of this handle")
			return
		}
		layer := int32(0)
		if layers != nil {
			layer = int32(get32(layers, layerStep, l))
		}
		t, c := w.texture.t, at.get(l)
		raw, result := surfaceElement(op, t, [3]int32{int32(c[0]), int32(c[1]), int32(c[2])}, layer)
		switch result {
		case ptx.ErrMisalignedAddress:
			g.fail(in.line, l, result, uint64(c[0]), "misaligned place on a surface")
			return
		case ptx.ErrIllegalAddress:
			g.fail(in.line, l, result, uint64(c[0]), "place beyond the edges of a surface")
			return
		}
		do(op, t, l, raw)
		if g.fault != nil {
			return
		}
	}
}

// surfaceElement returns the bytes that an access touches: none if it is to be dropped, or a fault.
func surfaceElement(op *surfaceOp, t *Texture, at [3]int32, layer int32) (raw []byte, fault int32) {
	size, n := t.elementBytes(), op.size*len(op.values)
	x := int(at[0])
	if op.elements {
		x, n = x*size, size
	}
	edge := t.extent()
	place := [4]int{x, int(at[1]), int(at[2]), int(layer)}
	last := [4]int{t.Width*size - n, edge[1] - 1, edge[2] - 1, 0}
	if op.shape.Layered {
		last[3] = max(t.Depth, 1) - 1
	}
	for d := range place {
		if place[d] >= 0 && place[d] <= last[d] {
			continue
		}
		if op.beyond == ptx.Trap {
			return nil, ptx.ErrIllegalAddress
		}
		if op.beyond == ptx.Zeros || last[d] < 0 {
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
	eachElement(g, in, func(op *surfaceOp, t *Texture, lane int, raw []byte) {
		for i, p := range op.values {
			v := uint64(0)
			switch {
			case raw == nil:
			case op.elements:
				v = uint64(t.component(raw, i))
			default:
				v = loadElement(raw[i*op.size:], op.size)
			}
			if to, _ := g.row(p); p.kind == row64 {
				put64(to, lane, v)
			} else {
				put32(to, lane, uint32(v))
			}
		}
	})
}

func runStoreSurface(g *group, in *instr) {
	eachElement(g, in, func(op *surfaceOp, t *Texture, lane int, raw []byte) {
		if raw == nil {
			return
		}
		for i, p := range op.values {
			from, step := g.row(p)
			switch {
			case op.elements:
				if i < t.Channels {
					t.setComponent(raw, i, get32(from, step, lane))
				}
			case op.size == 8:
				binary.LittleEndian.PutUint64(raw[8*i:], get64(from, step, lane))
			default:
				storeElement(raw[i*op.size:], op.size, get32(from, step, lane))
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
		return math.Float32bits(canonF32(float32(t.number(raw, k))))
	}
	return uint32(t.channel(raw, k))
}

// setComponent stores 32 bits as a channel: the nearest value that it can have.
func (t *Texture) setComponent(raw []byte, k int, v uint32) {
	size := t.Format.bytes()
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
	eachElement(g, in, func(op *surfaceOp, t *Texture, lane int, raw []byte) {
		if raw == nil {
			return
		}
		a := op.atomic[0]
		if op.elements && t.Format == S32 {
			a = op.atomic[1]
		}
		p := unsafe.Pointer(&raw[0])
		if len(raw) < a.size || uintptr(p)&uintptr(a.size-1) != 0 {
			g.fail(in.line, lane, ptx.ErrMisalignedAddress, 0, "a surface's elements are too small for this reduction")
			return
		}
		from, step := g.row(op.values[0])
		// Other workers may access the same element.
		if a.size == 8 {
			update64(p, a, get64(from, step, lane), 0, true)
		} else {
			update32(p, a, uint64(get32(from, step, lane)), 0, true)
		}
	})
}
