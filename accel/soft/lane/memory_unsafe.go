package lane

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"pegasus/accel/ptx"
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
func (g *group) find(a *memOperand, addr uint64, lane int) unsafe.Pointer {
	w := g.w
	c := &w.cache[a.cache]
	var base uint64
	var mem []byte
	share := false
	switch {
	case a.space == ptx.Shared:
		mem = w.shared
	case a.space == ptx.Local, a.space == ptx.ParamSpace && addr&windowMask == 0: // a function's parameters are in its frame
		return g.findLocal(a, addr, lane, a.size)
	case a.space == ptx.Generic && addr&windowMask == sharedWindow:
		base, mem = sharedWindow, w.shared
	case a.space == ptx.Generic && addr&windowMask == localWindow && !a.atomic:
		return g.findLocal(a, addr-localWindow, lane, a.size)
	case (a.space == ptx.Generic || a.space == ptx.ParamSpace) && addr&windowMask == paramWindow && !a.write:
		base, mem = paramWindow, w.run.launch.Params[:w.prog.fn.ParamBytes]
	case (a.space == ptx.Generic || a.space == ptx.Global) && addr&windowMask == gridWindow && w.run.launch.Cooperative:
		base, mem = gridWindow, unsafe.Slice((*byte)(unsafe.Pointer(&w.run.meeting)), unsafe.Sizeof(w.run.meeting))
		share = true
	case addr&windowMask == 0:
		if base, mem = w.run.launch.Memory.Region(addr); mem == nil {
			return g.findBeside(a, addr, lane)
		}
		share = true
	case addr <= paramWindow|^uint64(windowMask):
		g.fail(a.line, lane, ptx.ErrInvalidAddressSpace, addr, "address of the wrong space")
		return nil
	}
	if n := uint64(len(mem)); n < a.size || addr < base || addr-base > n-a.size {
		msg := "illegal address"
		if addr >= base && addr-base < n {
			msg = fmt.Sprintf("illegal address: an access of %d bytes, of which only the first %d are there", a.size, n-(addr-base))
		}
		g.fail(a.line, lane, ptx.ErrIllegalAddress, addr, msg)
		return nil
	}
	if addr&(a.size-1) != 0 {
		g.fail(a.line, lane, ptx.ErrMisalignedAddress, addr, "misaligned address")
		return nil
	}
	*c = region{base: base, size: uint64(len(mem)) - a.size + 1, mem: unsafe.Pointer(&mem[0]), share: share}
	return unsafe.Add(c.mem, addr-base)
}

// findBeside is find for an address outside all allocations. The instruction's region does not include the result: an
// allocation may come to lie there.
func (g *group) findBeside(a *memOperand, addr uint64, lane int) unsafe.Pointer {
	n := a.size
	mem := g.w.run.launch.Memory.Beside(addr, n)
	if mem == nil {
		g.fail(a.line, lane, ptx.ErrIllegalAddress, addr, "illegal address")
		return nil
	}
	if addr&(n-1) != 0 {
		g.fail(a.line, lane, ptx.ErrMisalignedAddress, addr, "misaligned address")
		return nil
	}
	g.w.cache[a.cache] = region{share: true}
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
	return addr == address(addresses, step, next) && (addr+imm)&windowMask == 0
}

func (g *group) findLocal(a *memOperand, off uint64, lane int, size uint64) unsafe.Pointer {
	n := uint64(g.w.depth)
	if n < size || off > n-size {
		g.fail(a.line, lane, ptx.ErrIllegalAddress, off, "illegal address in local memory")
		return nil
	}
	if off&(size-1) != 0 {
		g.fail(a.line, lane, ptx.ErrMisalignedAddress, off, "misaligned address in local memory")
		return nil
	}
	return unsafe.Pointer(&g.w.local[uint64(g.first+lane)*n+off])
}

// pointer returns the memory of one lane's access, or nil after a fault.
func (g *group) pointer(a *memOperand, addr uint64, lane int) unsafe.Pointer {
	c := &g.w.cache[a.cache]
	if off := addr - c.base; off < c.size && addr&a.align == 0 {
		return unsafe.Add(c.mem, off)
	}
	return g.find(a, addr, lane)
}

type element interface {
	uint8 | uint16 | uint32 | uint64 | int8 | int16 | int32
}

// runLoad executes ld of elements T into rows of D.
func runLoad[T element, D uint32 | uint64](g *group, in *instr) {
	m := &in.mem
	ap, step := g.addresses(m)
	dp, _ := g.row(in.d)
	if m.spin {
		g.spun = true
		loadVolatile[T, D](g, in)
		return
	}
	if step == 0 && (!m.private || g.w.cache[m.cache].has(get64(ap, 0, 0)+m.offset)) {
		p := g.pointer(m, get64(ap, 0, 0)+m.offset, g.act.lo)
		if p == nil {
			return
		}
		v := D(*(*T)(unsafe.Add(p, m.shift)))
		fillActive(g, dp, v)
		return
	}
	if t, ok := g.reach(m, ap, step); ok {
		loadTogether[T, D](&t, in.move, g.at(in.d, g.act.lo))
		return
	}
	ap, step = g.everyAddress(m)
	size := unsafe.Sizeof(D(0))
	if g.act.dense {
		c := &g.w.cache[m.cache]
		for l := g.act.lo; l < g.act.hi; l++ {
			addr := address(ap, step, l) + m.offset
			var p unsafe.Pointer
			if off := addr - c.base; off < c.size && addr&m.align == 0 {
				p = unsafe.Add(c.mem, off)
			} else if p = g.find(m, addr, l); p == nil {
				return
			}
			*(*D)(unsafe.Add(dp, uintptr(l)*size)) = D(*(*T)(unsafe.Add(p, m.shift)))
		}
		return
	}
	for _, l := range g.act.lanes() {
		p := g.pointer(m, address(ap, step, int(l))+m.offset, int(l))
		if p == nil {
			return
		}
		*(*D)(unsafe.Add(dp, uintptr(l)*size)) = D(*(*T)(unsafe.Add(p, m.shift)))
	}
}

// loadVolatile is runLoad for memory that other blocks may store to, or perform atomics on, at the same time: each word
// is read by one atomic operation.
func loadVolatile[T element, D uint32 | uint64](g *group, in *instr) {
	m := &in.mem
	ap, step := g.addresses(m)
	dp, _ := g.row(in.d)
	if step == 0 && !m.private {
		if p := g.pointer(m, get64(ap, 0, 0)+m.offset, g.act.lo); p != nil {
			fillActive(g, dp, D(atomicLoad[T](unsafe.Add(p, m.shift))))
		}
		return
	}
	ap, step = g.everyAddress(m)
	size := unsafe.Sizeof(D(0))
	for l := g.act.lo; l < g.act.hi; l++ {
		if !g.act.m.has(l) {
			continue
		}
		p := g.pointer(m, address(ap, step, l)+m.offset, l)
		if p == nil {
			return
		}
		*(*D)(unsafe.Add(dp, uintptr(l)*size)) = D(atomicLoad[T](unsafe.Add(p, m.shift)))
	}
}

// storeVolatile is runStore for memory that other blocks may read at the same time.
func storeVolatile[T uint8 | uint16 | uint32 | uint64, S uint32 | uint64](g *group, in *instr) {
	m := &in.mem
	ap, step := g.everyAddress(m)
	bp, bstep := g.row(in.b)
	once := m.once()
	for l := g.act.lo; l < g.act.hi; l++ {
		if !g.act.m.has(l) {
			continue
		}
		p := g.pointer(m, address(ap, step, l)+m.offset, l)
		if p == nil {
			return
		}
		if once && g.again(ap, step, l, m.offset) {
			continue
		}
		atomicStore(unsafe.Add(p, m.shift), T(*(*S)(unsafe.Add(bp, l*bstep))))
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
		move := pick(size == 8, g.common.move32, g.common.move64)
		move(unsafe.Add(dp, uintptr(g.act.from)*size), unsafe.Pointer(&g.value), nil, nil, g.act.to-g.act.from, 1)
		return
	}
	for _, l := range g.act.lanes() {
		*(*D)(unsafe.Add(dp, uintptr(l)*size)) = v
	}
}

// runStore executes st of elements T from rows of S.
func runStore[T uint8 | uint16 | uint32 | uint64, S uint32 | uint64](g *group, in *instr) {
	m := &in.mem
	ap, step := g.addresses(m)
	bp, bstep := g.row(in.b)
	if m.spin && m.space != ptx.Shared {
		storeVolatile[T, S](g, in)
		return
	}
	once := m.once()
	if t, ok := g.reach(m, ap, step); ok && !(once && t.mayRepeat(t.n)) {
		from := g.at(in.b, g.act.lo)
		if bstep == 0 {
			from = g.spread(from, unsafe.Sizeof(S(0)) == 8, t.n)
		}
		storeTogether[T, S](&t, in.move, from)
		return
	}
	ap, step = g.everyAddress(m)
	if g.act.dense {
		c := &g.w.cache[m.cache]
		for l := g.act.lo; l < g.act.hi; l++ {
			addr := address(ap, step, l) + m.offset
			var p unsafe.Pointer
			if off := addr - c.base; off < c.size && addr&m.align == 0 {
				p = unsafe.Add(c.mem, off)
			} else if p = g.find(m, addr, l); p == nil {
				return
			}
			if once && g.again(ap, step, l, m.offset) {
				continue
			}
			*(*T)(unsafe.Add(p, m.shift)) = T(*(*S)(unsafe.Add(bp, l*bstep)))
		}
		return
	}
	for _, l := range g.act.lanes() {
		p := g.pointer(m, address(ap, step, int(l))+m.offset, int(l))
		if p == nil {
			return
		}
		if once && g.again(ap, step, int(l), m.offset) {
			continue
		}
		*(*T)(unsafe.Add(p, m.shift)) = T(*(*S)(unsafe.Add(bp, int(l)*bstep)))
	}
}

// runLoadParam executes ld.param of a kernel's parameter: the same for all.
func runLoadParam(g *group, in *instr) {
	op := in.detail.(*paramLoad)
	p := g.w.run.launch.Params[op.at:]
	var v uint64
	for i := op.size - 1; i >= 0; i-- {
		v = v<<8 | uint64(p[i])
	}
	if s := op.extend; s > 0 {
		v = uint64(int64(v<<s) >> s)
	}
	v &= op.mask
	switch in.d.kind {
	case single:
		g.uniform[in.d.slot] = v
	case row32:
		dp, _ := g.row(in.d)
		fillActive(g, dp, uint32(v))
	case row64:
		dp, _ := g.row(in.d)
		fillActive(g, dp, v)
	}
}

// peek reads the view's number of bytes for one lane. It returns false after a fault.
func (g *group) peek(view *memOperand, addr uint64, lane int) (v uint64, ok bool) {
	if g.fault != nil {
		return 0, false
	}
	p := g.pointer(view, addr, lane)
	if p == nil {
		return 0, false
	}
	switch view.align {
	case 7:
		return *(*uint64)(p), true
	case 3:
		return uint64(*(*uint32)(p)), true
	}
	return uint64(*(*uint8)(p)), true
}
