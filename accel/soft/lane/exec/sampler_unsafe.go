package exec

import (
	"math"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// sampler reads textures for all lanes of a group together, in steps of a row each: the elements of the coordinates,
// their values, and the filtered results.
type sampler struct {
	between, nearest, firstOfTwo, towards, field, blend, round, ratio, scale, add arith.RowFunc

	x, y    [ir.MaxLanes]uint32    // coordinates in elements, or in 256ths between centres of elements
	i, j    [ir.MaxLanes]uint32    // the element, or the first of two, in each dimension
	at      [ir.MaxLanes]uint32    // bytes before it
	corners [4][ir.MaxLanes]uint32 // elements: two of a row, and those below
	values  [4][ir.MaxLanes]uint32 // a channel of each; blended, with bits beyond the point
	number  [2]uint32              // single operands
	unit    float64
}

func newSampler() *sampler {
	return &sampler{between: arith.FastRow("texelBetween"), nearest: arith.FastRow("texelNearest"), firstOfTwo: arith.FastRow("texelFirst"), towards: arith.FastRow("texelTowards"),
		field: arith.FastRow("texelField"), blend: arith.FastRow("texelBlend"), round: arith.FastRow("texelRound"), ratio: arith.FastRow("texelRatio"), scale: arith.FastRow("mulU32"), add: arith.FastRow("madU32")}
}

// together reports whether a sampler may read the texture, in as many dimensions.
func (t *Texture) together(dims int) bool {
	if t.Normalized || t.Address[0] == Border || t.Address[1] == Border || len(t.Data) > math.MaxInt32 {
		return false
	}
	if t.Format != U8 && t.Format != U16 && t.Format != F32 || t.Channels == 3 {
		return false
	}
	return !t.Linear || t.ElementBytes() <= 4 && t.Format != F32 && dims == 2 && t.Width > 1 && t.Height > 1 && t.Width <= 1<<20
}

// sampleTogether reads the texture for all lanes from the first block of active ones on.
func sampleTogether(g *group, in *instr, op *ir.Texture, t *Texture) {
	if g.sampler == nil {
		g.sampler = newSampler()
	}
	s, n := g.sampler, g.act.to-g.act.from
	read := s.element
	if t.Linear {
		read = s.filtered
		s.around(g, in, t, n)
	} else {
		s.find(g, in, t, n)
	}
	for k, p := range op.Out {
		if p.Kind == ir.Nowhere {
			continue
		}
		to := g.result
		if g.act.whole {
			to = g.at(p, g.act.from)
		}
		if k < t.Channels {
			read(to, t, k, n)
		} else {
			g.common.move32(to, s.single(0, t.missing(k)), nil, nil, n, 1)
		}
		if !g.act.whole {
			g.merge(p)
		}
	}
}

// single returns a place of a single operand.
func (s *sampler) single(k int, v int) unsafe.Pointer {
	s.number[k] = uint32(v)
	return unsafe.Pointer(&s.number[k])
}

// coordinateRow returns the row of a coordinate, or its single value; scalars marks the latter.
func coordinateRow(g *group, p ir.Place) (from unsafe.Pointer, scalars int) {
	if p.Kind == ir.Single {
		scalars = 1
	}
	return g.at(p, g.act.from), scalars | 2
}

// find finds the nearest elements.
func (s *sampler) find(g *group, in *instr, t *Texture, n int) {
	x, scalars := coordinateRow(g, in.B)
	s.nearest(unsafe.Pointer(&s.i), x, s.single(0, t.Width-1), nil, n, scalars)
	s.scale(unsafe.Pointer(&s.at), unsafe.Pointer(&s.i), s.single(0, t.ElementBytes()), nil, n, 2)
	if in.C.Kind == ir.Nowhere {
		return
	}
	y, scalars := coordinateRow(g, in.C)
	s.nearest(unsafe.Pointer(&s.j), y, s.single(0, max(t.Height, 1)-1), nil, n, scalars)
	s.add(unsafe.Pointer(&s.at), unsafe.Pointer(&s.j), s.single(0, t.PitchBytes), unsafe.Pointer(&s.at), n, 2)
}

// around finds the four elements around each place, and reads them.
func (s *sampler) around(g *group, in *instr, t *Texture, n int) {
	axis := func(from ir.Place, at, first *[ir.MaxLanes]uint32, size int) {
		v, scalars := coordinateRow(g, from)
		s.between(unsafe.Pointer(at), v, s.single(0, (size-1)<<8), nil, n, scalars)
		s.firstOfTwo(unsafe.Pointer(first), unsafe.Pointer(at), s.single(0, size-2), nil, n, 2)
		s.towards(unsafe.Pointer(at), unsafe.Pointer(at), unsafe.Pointer(first), nil, n, 0)
	}
	axis(in.B, &s.x, &s.i, t.Width)
	axis(in.C, &s.y, &s.j, t.Height)
	size := t.ElementBytes()
	s.scale(unsafe.Pointer(&s.at), unsafe.Pointer(&s.i), s.single(0, size), nil, n, 2)
	s.add(unsafe.Pointer(&s.at), unsafe.Pointer(&s.j), s.single(0, t.PitchBytes), unsafe.Pointer(&s.at), n, 2)
	for below := range 2 {
		left, right := s.corners[2*below][:n], s.corners[2*below+1][:n]
		switch row := unsafe.Pointer(&t.Data[below*t.PitchBytes]); size {
		case 1:
			pairs[uint16](left, right, s.at[:n], row, 8)
		case 2:
			pairs[uint32](left, right, s.at[:n], row, 16)
		case 4:
			pairs[uint64](left, right, s.at[:n], row, 32)
		}
	}
}

// element computes channel k of the nearest elements.
func (s *sampler) element(to unsafe.Pointer, t *Texture, k, n int) {
	got, at := unsafe.Slice((*uint32)(to), n), s.at[:n]
	switch bytes := t.Format.Bytes(); bytes {
	case 1:
		singles[uint8](got, at, unsafe.Pointer(&t.Data[k]))
	case 2:
		singles[uint16](got, at, unsafe.Pointer(&t.Data[2*k]))
	default:
		singles[uint32](got, at, unsafe.Pointer(&t.Data[4*k]))
	}
	if t.ReadFloat && t.Format != F32 {
		s.unit = t.unit()
		s.ratio(to, to, unsafe.Pointer(&s.unit), nil, n, 2)
	}
}

// singles reads single numbers.
func singles[T uint8 | uint16 | uint32](got, at []uint32, data unsafe.Pointer) {
	for l, off := range at {
		got[l] = uint32(*(*T)(unsafe.Add(data, off)))
	}
}

// filtered computes channel k of the elements around each place, blended.
func (s *sampler) filtered(to unsafe.Pointer, t *Texture, k, n int) {
	c := &s.corners
	if t.Channels > 1 {
		bits := 8 * t.Format.Bytes()
		for m := range c {
			s.field(unsafe.Pointer(&s.values[m]), unsafe.Pointer(&c[m]), s.single(0, k*bits), s.single(1, 1<<bits-1), n, 6)
		}
		c = &s.values
	}
	above, below := unsafe.Pointer(&s.values[0]), unsafe.Pointer(&s.values[1])
	s.blend(above, unsafe.Pointer(&c[0]), unsafe.Pointer(&c[1]), unsafe.Pointer(&s.x), n, 0)
	s.blend(below, unsafe.Pointer(&c[2]), unsafe.Pointer(&c[3]), unsafe.Pointer(&s.x), n, 0)
	s.blend(above, above, below, unsafe.Pointer(&s.y), n, 0)
	if t.ReadFloat {
		s.unit = t.unit() * (1 << 16)
		s.ratio(to, above, unsafe.Pointer(&s.unit), nil, n, 2)
	} else {
		s.round(to, above, nil, nil, n, 0)
	}
}

// pairs reads elements of so many bits, and those right of them.
func pairs[T uint16 | uint32 | uint64](left, right, at []uint32, row unsafe.Pointer, bits int) {
	left, right = left[:len(at)], right[:len(at)]
	for l, off := range at {
		v := *(*T)(unsafe.Add(row, off))
		left[l], right[l] = uint32(v&(1<<bits-1)), uint32(v>>bits)
	}
}
