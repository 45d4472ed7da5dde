package exec

import (
	"sync/atomic"
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// runAtomic executes atom and red, lane by lane.
func runAtomic(g *group, in *instr) {
	a, m := in.Detail.(*ir.Atomic), &in.Mem
	ap, step := g.everyAddress(m)
	bp, bs := g.row(in.B)
	cp, cs := g.row(in.C)
	dp, _ := g.row(in.Dst)
	wide := a.Size == 8
	g.spun = g.spun || m.Spin
	for _, lane := range g.act.lanes() {
		l := int(lane)
		p := g.pointer(m, address(ap, step, l)+m.Offset, l)
		if p == nil {
			return
		}
		var b, c, old uint64
		p = unsafe.Add(p, m.Shift)
		if wide {
			b = arith.Get64(bp, bs, l)
			if cp != nil {
				c = arith.Get64(cp, cs, l)
			}
		} else {
			b = uint64(arith.Get32(bp, bs, l))
			if cp != nil {
				c = uint64(arith.Get32(cp, cs, l))
			}
		}
		old = update(p, a, b, c, g.w.cache[m.Cache].share)
		switch in.Dst.Kind {
		case ir.Row32:
			arith.Put32(dp, l, uint32(old))
		case ir.Row64:
			arith.Put64(dp, l, old)
		}
	}
}

// update changes memory that was checked and returns the previous value; share means that other blocks may access it at
// the same time.
func update(p unsafe.Pointer, a *ir.Atomic, b, c uint64, share bool) uint64 {
	switch a.Size {
	case 2:
		return update16(p, a, b, c, share)
	case 4:
		return update32(p, a, b, c, share)
	}
	return update64(p, a, b, c, share)
}

func update32(p unsafe.Pointer, a *ir.Atomic, b, c uint64, share bool) uint64 {
	q := (*uint32)(p)
	if !share {
		f := a.Apply
		if a.ApplyPrivate != nil {
			f = a.ApplyPrivate
		}
		old := uint64(*q)
		*q = uint32(f(old, b, c))
		return old
	}
	if a.Adds {
		return uint64(atomic.AddUint32(q, uint32(b)) - uint32(b))
	}
	for {
		old := atomic.LoadUint32(q)
		if atomic.CompareAndSwapUint32(q, old, uint32(a.Apply(uint64(old), b, c))) {
			return uint64(old)
		}
	}
}

func update64(p unsafe.Pointer, a *ir.Atomic, b, c uint64, share bool) uint64 {
	q := (*uint64)(p)
	if !share {
		old := *q
		*q = a.Apply(old, b, c)
		return old
	}
	if a.Adds {
		return atomic.AddUint64(q, b) - b
	}
	for {
		old := atomic.LoadUint64(q)
		if atomic.CompareAndSwapUint64(q, old, a.Apply(old, b, c)) {
			return old
		}
	}
}

// update16 changes half of a word. Allocations are multiples of words and begin
// with one, so the other half is there.
func update16(p unsafe.Pointer, a *ir.Atomic, b, c uint64, share bool) uint64 {
	if !share {
		q := (*uint16)(p)
		old := uint64(*q)
		*q = uint16(a.Apply(old, b, c))
		return old
	}
	low := uintptr(p) & 3
	shift := 8 * low
	q := (*uint32)(unsafe.Add(p, -int(low)))
	for {
		word := atomic.LoadUint32(q)
		old := uint64(word >> shift & 0xffff)
		if atomic.CompareAndSwapUint32(q, word, word&^(0xffff<<shift)|uint32(uint16(a.Apply(old, b, c)))<<shift) {
			return old
		}
	}
}
