package gen

import (
	"math"
	"reflect"

	"pegasus/accel/soft/lane/ir"
)

// constants has the values of the single values that nothing writes.
type constants map[int32]uint64

func constantsOf(p *ir.Program) constants {
	c := constants{}
	for i, v := range p.Uniforms {
		c[int32(i)] = v
	}
	drop := func(p ir.Place) {
		if p.Kind == ir.Single {
			delete(c, p.Slot)
		}
	}
	for i := range p.Blocks {
		b := &p.Blocks[i]
		for k := range b.Code {
			drop(b.Code[k].Dst)
			drop(b.Code[k].Dst2)
			if b.Code[k].Op == ir.OpResume {
				ir.Places(reflect.ValueOf(b.Code[k].Detail), drop)
			}
		}
		if b.Barrier != nil {
			drop(b.Barrier.Dst)
		}
		if b.Call != nil {
			ir.Places(reflect.ValueOf(b.Call), drop)
		}
	}
	return c
}

// of returns the value of a place that is a constant.
func (c constants) of(p ir.Place) (v uint32, ok bool) {
	if p.Kind != ir.Single {
		return 0, false
	}
	w, ok := c[p.Slot]
	return uint32(w), ok
}

// bound returns an upper bound of the unsigned number that a register has at instruction n of a run, if an instruction
// of the run makes it at most 2^31-1, or -1.
func (c *collection) bound(n int, p ir.Place) int64 {
	for i := n - 1; i >= 0; i-- {
		in := &c.run[i]
		if !same(in.Dst, p) && !same(in.Dst2, p) {
			continue
		}
		if b := c.boundOf(in, i); p.Kind == ir.Row32 && b <= math.MaxInt32 {
			return b
		}
		return -1
	}
	return -1
}

// boundOf returns an upper bound of the result of instruction number i, or 2^32-1.
func (c *collection) boundOf(in *ir.Instr, i int) int64 {
	const unknown = math.MaxUint32
	if in.Op == ir.OpLoad {
		if t := in.Mem.Type; !t.Signed() && t.Size() < 4 {
			return 1<<(8*t.Size()) - 1
		}
		return unknown
	}
	if in.Op != ir.OpRow {
		return unknown
	}
	a, constA := c.known.of(in.A)
	b, constB := c.known.of(in.B)
	switch in.Row {
	case "cvtU8":
		return math.MaxUint8
	case "cvtU16":
		return math.MaxUint16
	case "movU32":
		if b := c.bound(i, in.A); b >= 0 {
			return b
		}
	case "andU32", "minU32":
		switch {
		case constB:
			return int64(b)
		case constA:
			return int64(a)
		}
	case "shrU32":
		if constB {
			return int64(uint32(math.MaxUint32) >> b)
		}
	case "bfeU32":
		if n, ok := c.known.of(in.C); ok && n&0xff < 32 {
			return 1<<(n&0xff) - 1
		}
	}
	return unknown
}
