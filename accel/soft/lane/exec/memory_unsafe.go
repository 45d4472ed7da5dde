package exec

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// region is the memory that a memory instruction accessed last: bytes from base on. The instruction's next access
// usually lies in it, too.
type region struct {
	base  uint64
	size  uint64
	mem   unsafe.Pointer
	share bool // other workers may access it at the same time
}

// has reports whether the region contains an address that was checked for alignment.
func (r *region) has(addr uint64) bool { return addr-r.base < r.size }

// find returns the memory of an access that its cached region does not hold, or
// nil after a fault. Pointers are only made of bytes that were checked to be
// within a slice that is alive for the launch.
func (g *group) find(a *ir.Memory, addr uint64, lane int) unsafe.Pointer {
	w := g.w
	c := &w.cache[a.Cache]
	var base uint64
	var mem []byte
	share := false
	switch {
	case a.Space == ptx.Shared:
		mem = w.shared
	case a.Space == ptx.Local, a.Space == ptx.ParamSpace && addr&ir.WindowMask == 0: // a function's parameters are in its frame
		return g.findLocal(a, addr, lane, a.Size)
	case a.Space == ptx.Generic && addr&ir.WindowMask == ir.SharedWindow:
		base, mem = ir.SharedWindow, w.shared
	case a.Space == ptx.Generic && addr&ir.WindowMask == ir.LocalWindow && !a.Atomic:
		return g.findLocal(a, addr-ir.LocalWindow, lane, a.Size)
	case (a.Space == ptx.Generic || a.Space == ptx.ParamSpace) && addr&ir.WindowMask == ir.ParamWindow && !a.Write:
		base, mem = ir.ParamWindow, w.run.launch.Params[:w.prog.Func.ParamBytes]
	case (a.Space == ptx.Generic || a.Space == ptx.Global) && addr&ir.WindowMask == ir.GridWindow && w.run.launch.Cooperative:
		base, mem = ir.GridWindow, unsafe.Slice((*byte)(unsafe.Pointer(&w.run.meeting)), unsafe.Sizeof(w.run.meeting))
		share = true
	case addr&ir.WindowMask == 0:
		if base, mem = w.run.launch.Memory.Region(addr); mem == nil {
			return g.findBeside(a, addr, lane)
		}
		share = true
	case addr <= ir.ParamWindow|^uint64(ir.WindowMask):
		g.fail(a.Line, lane, ptx.ErrInvalidAddressSpace, addr, "address of the wrong space")
		return nil
	}
	if n := uint64(len(mem)); n < a.Size || addr < base || addr-base > n-a.Size {
		msg := "illegal address"
		if addr >= base && addr-base < n {
			msg = fmt.Sprintf("illegal address: an access of %d bytes, of which only the first %d are there", a.Size, n-(addr-base))
		}
		g.fail(a.Line, lane, ptx.ErrIllegalAddress, addr, msg)
		return nil
	}
	if addr&(a.Size-1) != 0 {
		g.fail(a.Line, lane, ptx.ErrMisalignedAddress, addr, "misaligned address")
		return nil
	}
	*c = region{base: base, size: uint64(len(mem)) - a.Size + 1, mem: unsafe.Pointer(&mem[0]), share: share}
	return unsafe.Add(c.mem, addr-base)
}

// findBeside is find for an address outside all allocations. The instruction's region does not include the result: an
// allocation may come to lie there.
func (g *group) findBeside(a *ir.Memory, addr uint64, lane int) unsafe.Pointer {
	n := a.Size
	mem := g.w.run.launch.Memory.Beside(addr, n)
	if mem == nil {
		g.fail(a.Line, lane, ptx.ErrIllegalAddress, addr, "illegal address")
		return nil
	}
	if addr&(n-1) != 0 {
		g.fail(a.Line, lane, ptx.ErrMisalignedAddress, addr, "misaligned address")
		return nil
	}
	g.w.cache[a.Cache] = region{share: true}
	return unsafe.Pointer(&mem[0])
}

// again reports whether the lane after this one stores to the same address. In local memory the same address is another
// place for each lane.
func (g *group) again(addresses unsafe.Pointer, step, lane int, imm uint64) bool {
	next := lane + 1
	if next >= g.act.hi || !g.act.m.has(next) {
		return false
	}
	addr := address(addresses, step, lane)
	return addr == address(addresses, step, next) && (addr+imm)&ir.WindowMask == 0
}

func (g *group) findLocal(a *ir.Memory, off uint64, lane int, size uint64) unsafe.Pointer {
	n := uint64(g.w.depth)
	if n < size || off > n-size {
		g.fail(a.Line, lane, ptx.ErrIllegalAddress, off, "illegal address in local memory")
		return nil
	}
	if off&(size-1) != 0 {
		g.fail(a.Line, lane, ptx.ErrMisalignedAddress, off, "misaligned address in local memory")
		return nil
	}
	return unsafe.Pointer(&g.w.local[uint64(g.first+lane)*n+off])
}

// pointer returns the memory of one lane's access, or nil after a fault.
func (g *group) pointer(a *ir.Memory, addr uint64, lane int) unsafe.Pointer {
	c := &g.w.cache[a.Cache]
	if off := addr - c.base; off < c.size && addr&a.Align == 0 {
		return unsafe.Add(c.mem, off)
	}
	return g.find(a, addr, lane)
}

type element interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32
}

// runLoad executes ld of elements T into rows of D.
func runLoad[T element, D uint32 | uint64](g *group, in *instr) {
	m := &in.Mem
	ap, step := g.addresses(m)
	dp, _ := g.row(in.Dst)
	if m.Spin {
		g.spun = true
		loadVolatile[T, D](g, in)
		return
	}
	if step == 0 && (!m.Private || g.w.cache[m.Cache].has(arith.Get64(ap, 0, 0)+m.Offset)) {
		p := g.pointer(m, arith.Get64(ap, 0, 0)+m.Offset, g.act.lo)
		if p == nil {
			return
		}
		v := D(*(*T)(unsafe.Add(p, m.Shift)))
		fillActive(g, dp, v)
		return
	}
	if t, ok := g.reach(m, ap, step); ok {
		loadTogether[T, D](&t, in.move, g.at(in.Dst, g.act.lo))
		return
	}
	ap, step = g.everyAddress(m)
	size := unsafe.Sizeof(D(0))
	if g.act.dense {
		c := &g.w.cache[m.Cache]
		for l := g.act.lo; l < g.act.hi; l++ {
			addr := address(ap, step, l) + m.Offset
			var p unsafe.Pointer
			if off := addr - c.base; off < c.size && addr&m.Align == 0 {
				p = unsafe.Add(c.mem, off)
			} else if p = g.find(m, addr, l); p == nil {
				return
			}
			*(*D)(unsafe.Add(dp, uintptr(l)*size)) = D(*(*T)(unsafe.Add(p, m.Shift)))
		}
		return
	}
	for _, l := range g.act.lanes() {
		p := g.pointer(m, address(ap, step, int(l))+m.Offset, int(l))
		if p == nil {
			return
		}
		*(*D)(unsafe.Add(dp, uintptr(l)*size)) = D(*(*T)(unsafe.Add(p, m.Shift)))
	}
}

// loadVolatile is runLoad for memory that other blocks may store to, or perform atomics on, at the same time: each word
// is read by one atomic operation.
func loadVolatile[T element, D uint32 | uint64](g *group, in *instr) {
	m := &in.Mem
	ap, step := g.addresses(m)
	dp, _ := g.row(in.Dst)
	if step == 0 && !m.Private {
		if p := g.pointer(m, arith.Get64(ap, 0, 0)+m.Offset, g.act.lo); p != nil {
			fillActive(g, dp, D(atomicLoad[T](unsafe.Add(p, m.Shift))))
		}
		return
	}
	ap, step = g.everyAddress(m)
	size := unsafe.Sizeof(D(0))
	for l := g.act.lo; l < g.act.hi; l++ {
		if !g.act.m.has(l) {
			continue
		}
		p := g.pointer(m, address(ap, step, l)+m.Offset, l)
		if p == nil {
			return
		}
		*(*D)(unsafe.Add(dp, uintptr(l)*size)) = D(atomicLoad[T](unsafe.Add(p, m.Shift)))
	}
}

// storeVolatile is runStore for memory that other blocks may read at the same time.
func storeVolatile[T uint8 | uint16 | uint32 | uint64, S uint32 | uint64](g *group, in *instr) {
	m := &in.Mem
	ap, step := g.everyAddress(m)
	bp, bstep := g.row(in.B)
	once := m.StoresOnce()
	for l := g.act.lo; l < g.act.hi; l++ {
		if !g.act.m.has(l) {
			continue
		}
		p := g.pointer(m, address(ap, step, l)+m.Offset, l)
		if p == nil {
			return
		}
		if once && g.again(ap, step, l, m.Offset) {
			continue
		}
		atomicStore(unsafe.Add(p, m.Shift), T(*(*S)(unsafe.Add(bp, l*bstep))))
	}
}

// atomicLoad reads a word whole. Alignment was checked; words of less than 32
// bits have no atomic operations, and need none to be whole.
func atomicLoad[T element](p unsafe.Pointer) T {
	switch unsafe.Sizeof(T(0)) {
	case 4:
		return T(atomic.LoadUint32((*uint32)(p)))
	case 8:
		return T(atomic.LoadUint64((*uint64)(p)))
	}
	return *(*T)(p)
}

// atomicStore writes a word whole; see atomicLoad.
func atomicStore[T uint8 | uint16 | uint32 | uint64](p unsafe.Pointer, v T) {
	switch unsafe.Sizeof(v) {
	case 4:
		atomic.StoreUint32((*uint32)(p), uint32(v))
	case 8:
		atomic.StoreUint64((*uint64)(p), uint64(v))
	default:
		*(*T)(p) = v
	}
}

// fillActive gives all active lanes the same value.
func fillActive[D uint32 | uint64](g *group, dp unsafe.Pointer, v D) {
	size := unsafe.Sizeof(v)
	if g.act.whole {
		g.value = uint64(v)
		move := arith.Pick(size == 8, g.common.move32, g.common.move64)
		move(unsafe.Add(dp, uintptr(g.act.from)*size), unsafe.Pointer(&g.value), nil, nil, g.act.to-g.act.from, 1)
		return
	}
	for _, l := range g.act.lanes() {
		*(*D)(unsafe.Add(dp, uintptr(l)*size)) = v
	}
}

// runStore executes st of elements T from rows of S.
func runStore[T uint8 | uint16 | uint32 | uint64, S uint32 | uint64](g *group, in *instr) {
	m := &in.Mem
	ap, step := g.addresses(m)
	bp, bstep := g.row(in.B)
	if m.Spin && m.Space != ptx.Shared {
		storeVolatile[T, S](g, in)
		return
	}
	once := m.StoresOnce()
	if t, ok := g.reach(m, ap, step); ok && !(once && t.mayRepeat(t.n)) {
		from := g.at(in.B, g.act.lo)
		if bstep == 0 {
			from = g.spread(from, unsafe.Sizeof(S(0)) == 8, t.n)
		}
		storeTogether[T, S](&t, in.move, from)
		return
	}
	ap, step = g.everyAddress(m)
	if g.act.dense {
		c := &g.w.cache[m.Cache]
		for l := g.act.lo; l < g.act.hi; l++ {
			addr := address(ap, step, l) + m.Offset
			var p unsafe.Pointer
			if off := addr - c.base; off < c.size && addr&m.Align == 0 {
				p = unsafe.Add(c.mem, off)
			} else if p = g.find(m, addr, l); p == nil {
				return
			}
			if once && g.again(ap, step, l, m.Offset) {
				continue
			}
			*(*T)(unsafe.Add(p, m.Shift)) = T(*(*S)(unsafe.Add(bp, l*bstep)))
		}
		return
	}
	for _, l := range g.act.lanes() {
		p := g.pointer(m, address(ap, step, int(l))+m.Offset, int(l))
		if p == nil {
			return
		}
		if once && g.again(ap, step, int(l), m.Offset) {
			continue
		}
		*(*T)(unsafe.Add(p, m.Shift)) = T(*(*S)(unsafe.Add(bp, int(l)*bstep)))
	}
}

// runLoadParam executes ld.param of a kernel's parameter: the same for all.
func runLoadParam(g *group, in *instr) {
	op := in.Detail.(*ir.ParamLoad)
	p := g.w.run.launch.Params[op.At:]
	var v uint64
	for i := op.Size - 1; i >= 0; i-- {
		v = v<<8 | uint64(p[i])
	}
	if s := op.Extend; s > 0 {
		v = uint64(int64(v<<s) >> s)
	}
	v &= op.Mask
	switch in.Dst.Kind {
	case ir.Single:
		g.uniform[in.Dst.Slot] = v
	case ir.Row32:
		dp, _ := g.row(in.Dst)
		fillActive(g, dp, uint32(v))
	case ir.Row64:
		dp, _ := g.row(in.Dst)
		fillActive(g, dp, v)
	}
}

// peek reads the view's number of bytes for one lane. It returns false after a fault.
func (g *group) peek(view *ir.Memory, addr uint64, lane int) (v uint64, ok bool) {
	if g.fault != nil {
		return 0, false
	}
	p := g.pointer(view, addr, lane)
	if p == nil {
		return 0, false
	}
	switch view.Align {
	case 7:
		return *(*uint64)(p), true
	case 3:
		return uint64(*(*uint32)(p)), true
	}
	return uint64(*(*uint8)(p)), true
}
