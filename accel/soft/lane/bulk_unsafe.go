package lane

import (
	"strings"
	"unsafe"

	"pegasus/accel/ptx"
)

// bulkUnit is the granularity of sizes and addresses of bulk copies, in bytes.
const bulkUnit = 16

// bytesAsOne is the number of bytes that are copied or cleared in the time of a common instruction.
const bytesAsOne = 512

func lowerBulk(l *lowerer, in *ptx.Inst) {
	args := in.Args
	if len(args) < 2 || in.Mods.Has(ptx.PrefetchMod) {
		return // about groups of copies, or caches
	}
	to, from := ptx.ModShared, ptx.ModShared
	switch {
	case in.Mods.Has(ptx.BulkGroup):
		to = ptx.ModGlobal
	case in.Mods.Has(ptx.ModGlobal):
		from = ptx.ModGlobal
	}
	view := l.accessTo(&args[1], from, bulkUnit, false)
	op := &bulkCopy{from: &view.mem, size: l.src(&args[2], ptx.U32)}
	if in.Mods.Has(ptx.CompleteBytes) {
		bar := l.accessTo(&args[3], ptx.ModShared, 8, true)
		op.bar = &bar.mem
	}
	if i := strings.IndexByte(in.Form, 'k'); i >= 0 {
		*pick(in.Mods.Has(ptx.Multicast), &op.bytes, &op.blocks) = l.src(&args[i], ptx.U16)
	}
	if in.Mods.Has(ptx.Reduce) {
		if op.op = l.reduction(in, to == ptx.ModShared); op.op == nil {
			return
		}
	}
	c := l.accessTo(&args[0], to, bulkUnit, true)
	c.op, c.detail = irBulkCopy, op
	l.emit(c)
}

// reduction returns the operation of red and its like on an element.
func (l *lowerer) reduction(in *ptx.Inst, shared bool) *atomicOp {
	a := atomicOf(in.Mods.First(ptx.RN, ptx.Min, ptx.Max, ptx.Inc, ptx.Dec, ptx.And, ptx.Or, ptx.Xor, ptx.Add), in.Type, shared)
	if a == nil {
		l.fail("%s is not implemented for %s", in.Op, in.Type)
	}
	return a
}

func runBulk(g *group, in *instr) {
	op := in.detail.(*bulkCopy)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		n := uint64(g.scalar(op.size, l))
		if op.blocks.kind != nowhere {
			if m := g.scalar(op.blocks, l); m > 1 {
				failRank(g, in.line, l)
				return
			} else if m == 0 {
				continue
			}
		}
		if n%bulkUnit != 0 {
			g.fail(in.line, l, ptx.ErrMisalignedAddress, n, "size of a bulk copy is not a multiple of 16 bytes")
			return
		}
		from, to := memoryRange(g, op.from, n, l), memoryRange(g, &in.mem, n, l)
		if g.fault != nil {
			return
		}
		cost := n / bytesAsOne
		switch {
		case op.op != nil:
			cost = n / bulkUnit
			combineBytes(op.op, to, from, g.w.cache[in.mem.cache].share)
		case op.bytes.kind != nowhere:
			cost = n / bulkUnit
			copyMasked(to, from, g.scalar(op.bytes, l))
		default:
			copy(to, from)
		}
		if op.bar != nil && !completeBytes(g, op.bar, l, int64(n)) || g.worked(int(cost)) {
			return
		}
	}
}

// copyMasked copies, of each 16 bytes, those with a set bit in the mask.
func copyMasked(to, from []byte, m uint32) {
	for i := range to {
		if m>>(i%bulkUnit)&1 != 0 {
			to[i] = from[i]
		}
	}
}

// completeBytes records at an mbarrier that bytes have come. It returns false after a fault.
func completeBytes(g *group, bar *memOperand, lane int, bytes int64) bool {
	m := findMbarrier(g, bar, lane)
	return m != nil && arriveAtMbarrier(g, bar, m, lane, 0, -bytes, false)
}

// memoryRange returns n bytes of memory, all of one allocation, from a thread's address on; n is a multiple of the view's
// size. It is nil after a fault.
func memoryRange(g *group, view *memOperand, n uint64, lane int) []byte {
	if n == 0 {
		return nil
	}
	ap, step := g.row(view.address)
	addr := get64(ap, step, lane) + view.offset
	p := g.pointer(view, addr, lane)
	if p == nil {
		return nil
	}
	unit := view.size
	c := &g.w.cache[view.cache]
	if !c.has(addr) { // it is beside an allocation, where only one unit was found
		if n > unit {
			g.fail(view.line, lane, ptx.ErrIllegalAddress, addr, "illegal address")
			return nil
		}
	} else if n-unit >= c.size-(addr-c.base) {
		g.fail(view.line, lane, ptx.ErrIllegalAddress, c.base+c.size+unit-1, "illegal address")
		return nil
	}
	return unsafe.Slice((*byte)(p), n)
}

// combineBytes applies the operation to each element, one after the other. Both slices have the same length.
func combineBytes(a *atomicOp, to, from []byte, share bool) {
	for i := 0; i < len(to); i += a.size {
		p, b := unsafe.Pointer(&to[i]), loadBytes(unsafe.Pointer(&from[i]), a.size)
		update(p, a, b, 0, share)
	}
}

// lowerBulkStore lowers st.bulk, which clears memory.
func lowerBulkStore(l *lowerer, in *ptx.Inst) {
	c := l.accessTo(&in.Args[0], spaceMod(in), 8, true)
	c.op, c.b = irBulkStore, l.src(&in.Args[1], ptx.U64)
	l.emit(c)
}

func runBulkStore(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		l := int(lane)
		n := g.valueOf(in.b, l)
		ap, step := g.row(in.mem.address)
		switch addr := get64(ap, step, l) + in.mem.offset; {
		case in.mem.space == ptx.Generic && addr&windowMask != sharedWindow:
			g.fail(in.line, l, ptx.ErrInvalidAddressSpace, addr, "st.bulk is of shared memory")
		case n%8 != 0:
			g.fail(in.line, l, ptx.ErrMisalignedAddress, n, "size of st.bulk is not a multiple of 8 bytes")
		default:
			clear(memoryRange(g, &in.mem, n, l))
		}
		if g.fault != nil || g.worked(int(n/bytesAsOne)) {
			return
		}
	}
}

func lowerAsyncStore(l *lowerer, in *ptx.Inst) {
	op := &asyncStore{size: in.Type.Size()}
	for _, e := range elements(&in.Args[1]) {
		op.values = append(op.values, l.src(e, in.Type))
	}
	if in.Op == opRed {
		if op.op = l.reduction(in, true); op.op == nil {
			return
		}
	}
	bar := l.accessTo(&in.Args[2], spaceMod(in), 8, true)
	op.bar = &bar.mem
	c := l.accessTo(&in.Args[0], spaceMod(in), op.size*len(op.values), true)
	c.op, c.detail = irAsyncStore, op
	l.emit(c)
}

var opRed = ptx.OpOf("red")

func runAsyncStore(g *group, in *instr) {
	op, m := in.detail.(*asyncStore), &in.mem
	ap, step := g.row(m.address)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		p := g.pointer(m, get64(ap, step, l)+m.offset, l)
		if p == nil {
			return
		}
		for i, v := range op.values {
			to, v := unsafe.Add(p, i*op.size), g.valueOf(v, l)
			if op.op == nil {
				storeBytes(to, v, op.size)
			} else {
				update(to, op.op, v, 0, g.w.cache[m.cache].share)
			}
		}
		if !completeBytes(g, op.bar, l, int64(op.size*len(op.values))) {
			return
		}
	}
}
