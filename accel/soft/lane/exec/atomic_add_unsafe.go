package exec

import (
	"sync/atomic"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// runAdd is runAtomic for the addition of integers, the usual way to count.
func runAdd[T uint32 | uint64](g *group, in *instr) {
	m := &in.Mem
	g.spun = g.spun || m.Spin
	ap, step := g.addresses(m)
	if step == 0 && (!m.Private || g.w.cache[m.Cache].has(arith.Get64(ap, 0, 0)+m.Offset)) {
		if p := g.pointer(m, arith.Get64(ap, 0, 0)+m.Offset, g.act.lo); p != nil {
			addOne(g, in, (*T)(unsafe.Add(p, m.Shift)))
		}
		return
	}
	t, ok := g.reach(m, ap, step)
	switch {
	case !ok:
		runAtomic(g, in)
	case t.low == t.high:
		addOne(g, in, (*T)(unsafe.Add(t.mem, t.low+t.off)))
	default:
		addEach[T](g, in, &t)
	}
}

// addOne adds the operands of all active lanes to one word. Each lane gets the word's value after the lanes before it.
func addOne[T uint32 | uint64](g *group, in *instr, p *T) {
	bp, bs := g.row(in.B)
	d, _ := g.row(in.Dst)
	size := int(unsafe.Sizeof(*p))
	var sum T
	for _, l := range g.act.lanes() {
		sum += *(*T)(unsafe.Add(bp, bs*int(l)))
	}
	v := plus(p, sum, g.w.cache[in.Mem.Cache].share)
	if d == nil {
		return
	}
	for _, l := range g.act.lanes() {
		b := *(*T)(unsafe.Add(bp, bs*int(l)))
		*(*T)(unsafe.Add(d, size*int(l))) = v
		v += b
	}
}

// addEach adds lane by lane.
func addEach[T uint32 | uint64](g *group, in *instr, t *together) {
	lo, size := g.act.lo, int(unsafe.Sizeof(T(0)))
	b, share := g.at(in.B, lo), g.w.cache[in.Mem.Cache].share
	mem, off, scale := t.mem, t.off, t.scale
	if in.B.Kind == ir.Single {
		if in.Dst.Kind == ir.Nowhere && !share && t.step == 4 && !t.line {
			v := *(*T)(b)
			for _, a := range unsafe.Slice((*uint32)(t.addresses), t.n) {
				*(*T)(unsafe.Add(mem, uint64(a)*scale+off)) += v
			}
			return
		}
		b = g.spread(b, size == 8, t.n)
	}
	bs := unsafe.Slice((*T)(b), t.n)
	switch {
	case t.line:
		p, apart, d := t.at(0), int(t.runs[0].step), g.at(in.Dst, lo)
		for i, v := range bs {
			old := plus((*T)(unsafe.Add(p, i*apart)), v, share)
			if d != nil {
				*(*T)(unsafe.Add(d, i*size)) = old
			}
		}
	case in.Dst.Kind != ir.Nowhere:
		ds := unsafe.Slice((*T)(g.at(in.Dst, lo)), t.n)
		for i, v := range bs {
			ds[i] = plus((*T)(t.at(i)), v, share)
		}
	case share:
		for i, v := range bs {
			plus((*T)(t.at(i)), v, true)
		}
	case t.step == 4:
		addresses := unsafe.Slice((*uint32)(t.addresses), t.n)[:len(bs)]
		for i, v := range bs {
			*(*T)(unsafe.Add(mem, uint64(addresses[i])*scale+off)) += v
		}
	default:
		addresses := unsafe.Slice((*uint64)(t.addresses), t.n)[:len(bs)]
		for i, v := range bs {
			*(*T)(unsafe.Add(mem, addresses[i]+off)) += v
		}
	}
}

// plus adds to a word, atomically if share is set, and returns the previous value.
func plus[T uint32 | uint64](p *T, v T, share bool) T {
	if !share {
		old := *p
		*p = old + v
		return old
	}
	switch p := any(p).(type) {
	case *uint32:
		return T(atomic.AddUint32(p, uint32(v))) - v
	case *uint64:
		return T(atomic.AddUint64(p, uint64(v))) - v
	}
	panic("unreachable")
}
