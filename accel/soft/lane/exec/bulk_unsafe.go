package exec

import (
	"unsafe"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// bytesAsOne is the number of bytes that are copied or cleared in the time of a common instruction.
const bytesAsOne = 512

func runBulk(g *group, in *instr) {
	op := in.Detail.(*ir.BulkCopy)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		n := uint64(g.scalar(op.Size, l))
		if op.Blocks.Kind != ir.Nowhere {
			if m := g.scalar(op.Blocks, l); m > 1 {
				failRank(g, in.Line, l)
				return
			} else if m == 0 {
				continue
			}
		}
		if n%ir.BulkUnit != 0 {
			g.fail(in.Line, l, ptx.ErrMisalignedAddress, n, "size of a bulk copy is not a multiple of 16 bytes")
			return
		}
		from, to := memoryRange(g, op.From, n, l), memoryRange(g, &in.Mem, n, l)
		if g.fault != nil {
			return
		}
		cost := n / bytesAsOne
		switch {
		case op.Atomic != nil:
			cost = n / ir.BulkUnit
			combineBytes(op.Atomic, to, from, g.w.cache[in.Mem.Cache].share)
		case op.Bytes.Kind != ir.Nowhere:
			cost = n / ir.BulkUnit
			copyMasked(to, from, g.scalar(op.Bytes, l))
		default:
			copy(to, from)
		}
		if op.Mbarrier != nil && !completeBytes(g, op.Mbarrier, l, int64(n)) || g.worked(int(cost)) {
			return
		}
	}
}

// copyMasked copies, of each 16 bytes, those with a set bit in the mask.
func copyMasked(to, from []byte, m uint32) {
	for i := range to {
		if m>>(i%ir.BulkUnit)&1 != 0 {
			to[i] = from[i]
		}
	}
}

// completeBytes records at an mbarrier that bytes have come. It returns false after a fault.
func completeBytes(g *group, bar *ir.Memory, lane int, bytes int64) bool {
	m := findMbarrier(g, bar, lane)
	return m != nil && arriveAtMbarrier(g, bar, m, lane, 0, -bytes, false)
}

// memoryRange returns n bytes of memory, all of one allocation, from a thread's address on; n is a multiple of the view's
// size. It is nil after a fault.
func memoryRange(g *group, view *ir.Memory, n uint64, lane int) []byte {
	if n == 0 {
		return nil
	}
	ap, step := g.row(view.Address)
	addr := arith.Get64(ap, step, lane) + view.Offset
	p := g.pointer(view, addr, lane)
	if p == nil {
		return nil
	}
	unit := view.Size
	c := &g.w.cache[view.Cache]
	if !c.has(addr) { // it is beside an allocation, where only one unit was found
		if n > unit {
			g.fail(view.Line, lane, ptx.ErrIllegalAddress, addr, "illegal address")
			return nil
		}
	} else if n-unit >= c.size-(addr-c.base) {
		g.fail(view.Line, lane, ptx.ErrIllegalAddress, c.base+c.size+unit-1, "illegal address")
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}

// combineBytes applies the operation to each element, one after the other. Both slices have the same length.
func combineBytes(a *ir.Atomic, to, from []byte, share bool) {
	for i := 0; i < len(to); i += a.Size {
		p, b := unsafe.Pointer(&to[i]), loadBytes(unsafe.Pointer(&from[i]), a.Size)
		update(p, a, b, 0, share)
	}
}

func runBulkStore(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		l := int(lane)
		n := g.valueOf(in.B, l)
		ap, step := g.row(in.Mem.Address)
		switch addr := arith.Get64(ap, step, l) + in.Mem.Offset; {
		case in.Mem.Space == ptx.Generic && addr&ir.WindowMask != ir.SharedWindow:
			g.fail(in.Line, l, ptx.ErrInvalidAddressSpace, addr, "st.bulk is of shared memory")
		case n%8 != 0:
			g.fail(in.Line, l, ptx.ErrMisalignedAddress, n, "size of st.bulk is not a multiple of 8 bytes")
		default:
			clear(memoryRange(g, &in.Mem, n, l))
		}
		if g.fault != nil || g.worked(int(n/bytesAsOne)) {
			return
		}
	}
}

func runAsyncStore(g *group, in *instr) {
	op, m := in.Detail.(*ir.AsyncStore), &in.Mem
	ap, step := g.row(m.Address)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		p := g.pointer(m, arith.Get64(ap, step, l)+m.Offset, l)
		if p == nil {
			return
		}
		for i, v := range op.Values {
			to, v := unsafe.Add(p, i*op.Size), g.valueOf(v, l)
			if op.Atomic == nil {
				storeBytes(to, v, op.Size)
			} else {
				update(to, op.Atomic, v, 0, g.w.cache[m.Cache].share)
			}
		}
		if !completeBytes(g, op.Mbarrier, l, int64(op.Size*len(op.Values))) {
			return
		}
	}
}
