package lane

import (
	"math"
	"sync/atomic"
	"unsafe"

	"pegasus/accel/ptx"
)

// runAtomic executes atom and red, lane by lane.
func runAtomic(g *group, in *instr) {
	a, m := in.detail.(*atomicOp), &in.mem
	ap, step := g.everyAddress(m)
	bp, bs := g.row(in.b)
	cp, cs := g.row(in.c)
	dp, _ := g.row(in.d)
	wide := a.size == 8
	g.spun = g.spun || m.spin
	for _, lane := range g.act.lanes() {
		l := int(lane)
		p := g.pointer(m, address(ap, step, l)+m.offset, l)
		if p == nil {
			return
		}
		var b, c, old uint64
		p = unsafe.Add(p, m.shift)
		if wide {
			b = get64(bp, bs, l)
			if cp != nil {
				c = get64(cp, cs, l)
			}
		} else {
			b = uint64(get32(bp, bs, l))
			if cp != nil {
				c = uint64(get32(cp, cs, l))
			}
		}
		old = update(p, a, b, c, g.w.cache[m.cache].share)
		switch in.d.kind {
		case row32:
			put32(dp, l, uint32(old))
		case row64:
			put64(dp, l, old)
		}
	}
}

// update changes memory that was checked and returns the previous value; share means that other blocks may access it at
// the same time.
func update(p unsafe.Pointer, a *atomicOp, b, c uint64, share bool) uint64 {
	switch a.size {
	case 2:
		return update16(p, a, b, c, share)
	case 4:
		return update32(p, a, b, c, share)
	}
	return update64(p, a, b, c, share)
}

func update32(p unsafe.Pointer, a *atomicOp, b, c uint64, share bool) uint64 {
	q := (*uint32)(p)
	if !share {
		f := a.f
		if a.own != nil {
			f = a.own
		}
		old := uint64(*q)
		*q = uint32(f(old, b, c))
		return old
	}
	if a.add {
		return uint64(atomic.AddUint32(q, uint32(b)) - uint32(b))
	}
	for {
		old := atomic.LoadUint32(q)
		if atomic.CompareAndSwapUint32(q, old, uint32(a.f(uint64(old), b, c))) {
			return uint64(old)
		}
	}
}

func update64(p unsafe.Pointer, a *atomicOp, b, c uint64, share bool) uint64 {
	q := (*uint64)(p)
	if !share {
		old := *q
		*q = a.f(old, b, c)
		return old
	}
	if a.add {
		return atomic.AddUint64(q, b) - b
	}
	for {
		old := atomic.LoadUint64(q)
		if atomic.CompareAndSwapUint64(q, old, a.f(old, b, c)) {
			return old
		}
	}
}

// update16 changes half of a word. Allocations are multiples of words and begin
// with one, so the other half is there.
func update16(p unsafe.Pointer, a *atomicOp, b, c uint64, share bool) uint64 {
	if !share {
		q := (*uint16)(p)
		old := uint64(*q)
		*q = uint16(a.f(old, b, c))
		return old
	}
	low := uintptr(p) & 3
	shift := 8 * low
	q := (*uint32)(unsafe.Add(p, -int(low)))
	for {
		word := atomic.LoadUint32(q)
		old := uint64(word >> shift & 0xffff)
		if atomic.CompareAndSwapUint32(q, word, word&^(0xffff<<shift)|uint32(uint16(a.f(old, b, c)))<<shift) {
			return old
		}
	}
}

// atomicOf returns the operation of an atom or red instruction, or nil.
func atomicOf(op ptx.Mod, t ptx.Type, shared bool) *atomicOp {
	a := &atomicOp{size: t.Size()}
	wide := a.size == 8
	switch op {
	case ptx.Add:
		switch {
		case t.Half():
			f := smallFloats[t]
			add := func(o, b, _ uint64) uint64 { return f.bits(smallSum(f.value(o), f.value(b)), ptx.RN) }
			if a.f = add; t.Paired() {
				a.f = atomicFunc(pairwise(add, 16))
			}
		case t == ptx.F32 && shared:
			a.f = func(o, b, _ uint64) uint64 { return bits32(canonF32(float(o) + float(b))) }
		case t == ptx.F32:
			a.f = func(o, b, _ uint64) uint64 { return bits32(canonF32(flush(flush(float(o)) + flush(float(b))))) }
			a.own = func(o, b, _ uint64) uint64 { return bits32(canonF32(float(o) + float(b))) }
		case t == ptx.F64:
			a.f = func(o, b, _ uint64) uint64 {
				return math.Float64bits(math.Float64frombits(o) + math.Float64frombits(b))
			}
		default:
			a.f, a.add = func(o, b, _ uint64) uint64 { return o + b }, true
		}
	case ptx.Min, ptx.Max:
		max := op == ptx.Max
		if t.Half() {
			f := smallChoice(smallFloats[t], max, false)
			if a.f = func(o, b, _ uint64) uint64 { return f(o, b) }; t.Paired() {
				a.f = atomicFunc(pairwise(laneFunc(a.f), 16))
			}
			return a
		}
		if t.Float() {
			return nil
		}
		a.f = func(o, b, _ uint64) uint64 {
			if less(o, b, t.Signed(), wide) != max {
				return o
			}
			return b
		}
	case ptx.Inc:
		a.f = func(o, b, _ uint64) uint64 {
			if o >= b {
				return 0
			}
			return o + 1
		}
	case ptx.Dec:
		a.f = func(o, b, _ uint64) uint64 {
			if o == 0 || o > b {
				return b
			}
			return o - 1
		}
	case ptx.And:
		a.f = func(o, b, _ uint64) uint64 { return o & b }
	case ptx.Or:
		a.f = func(o, b, _ uint64) uint64 { return o | b }
	case ptx.Xor:
		a.f = func(o, b, _ uint64) uint64 { return o ^ b }
	case ptx.Exch:
		a.f = func(_, b, _ uint64) uint64 { return b }
	case ptx.CAS:
		a.f = func(o, b, c uint64) uint64 {
			if o == b {
				return c
			}
			return o
		}
	}
	return a
}

func float(x uint64) float32  { return math.Float32frombits(uint32(x)) }
func bits32(x float32) uint64 { return uint64(math.Float32bits(x)) }

func less(a, b uint64, signed, wide bool) bool {
	switch {
	case signed && wide:
		return int64(a) < int64(b)
	case signed:
		return int32(a) < int32(b)
	}
	return a < b
}
