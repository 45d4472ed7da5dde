package lane

import (
	"unsafe"

	"pegasus/accel/ptx"
)

// loadBytes reads 1, 2, 4 or 8 bytes at a pointer that the caller has checked.
func loadBytes(p unsafe.Pointer, n int) uint64 {
	switch n {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	}
	return *(*uint64)(p)
}

// storeBytes is the inverse of loadBytes.
func storeBytes(p unsafe.Pointer, v uint64, n int) {
	switch n {
	case 1:
		*(*uint8)(p) = uint8(v)
	case 2:
		*(*uint16)(p) = uint16(v)
	case 4:
		*(*uint32)(p) = uint32(v)
	default:
		*(*uint64)(p) = v
	}
}

// moveRow copies the 16 bytes of a row from or to memory that was checked.
func moveRow(mem unsafe.Pointer, row *[8]uint16, write bool) {
	if write {
		*(*[8]uint16)(mem) = *row
	} else {
		*row = *(*[8]uint16)(mem)
	}
}

// accessTo returns an access to n bytes in a space, or with RN a generic one.
func (l *lowerer) accessTo(o *ptx.Operand, space ptx.Mod, n int, write bool) irInstr {
	as := ptx.Inst{Args: []ptx.Operand{*o}, Type: partType(min(n, 8))}
	if n == 16 {
		as.Mods.Add(ptx.V2)
	}
	if space != ptx.RN {
		as.Mods.Add(space)
	}
	c := l.access(&as, o, write)
	if c.mem.address.kind == row32 {
		c.mem.address = l.widened(c.mem.address)
	}
	return c
}

func lowerCp(l *lowerer, in *ptx.Inst) {
	switch {
	case in.Mods.Has(ptx.Mbarrier):
		lowerAsyncArrive(l, in)
		return
	case in.Mods.Has(ptx.Bulk):
		lowerBulk(l, in)
		return
	}
	if len(in.Args) < 3 {
		return // about groups of copies
	}
	op := &asyncCopy{size: int(in.Args[2].Imm)}
	op.from = l.accessTo(&in.Args[1], ptx.ModGlobal, op.size, false).mem
	op.byte = l.accessTo(&in.Args[1], ptx.ModGlobal, 1, false).mem
	if len(in.Args) > 3 && in.Form[3] == 'i' {
		switch o := &in.Args[3]; {
		case o.Kind == ptx.Register && l.body.Regs[o.Reg] == ptx.Pred:
			op.skip, op.not = l.pred(o)
		default:
			op.bytes = l.src(o, ptx.U32)
		}
	}
	c := l.accessTo(&in.Args[0], ptx.ModShared, op.size, true)
	c.op, c.detail = irAsyncCopy, op
	l.emit(c)
}

func runCopy(g *group, in *instr) {
	op := in.detail.(*asyncCopy)
	var skip mask
	if op.skip.kind != nowhere {
		skip = g.predicateOf(op.skip, op.not)
	}
	m := &in.mem
	ap, astep := g.row(m.address)
	bp, bstep := g.row(op.from.address)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		n := op.size
		if skip.has(l) {
			n = 0
		} else if op.bytes.kind != nowhere {
			n = int(min(g.scalar(op.bytes, l), uint32(op.size)))
		}
		to := g.pointer(m, get64(ap, astep, l)+m.offset, l)
		if to == nil || !copyBytes(g, unsafe.Slice((*byte)(to), op.size), op, get64(bp, bstep, l)+op.from.offset, n, l) {
			return
		}
	}
}

// copyBytes copies n bytes from global memory and clears the rest. It returns false after a fault.
func copyBytes(g *group, to []byte, op *asyncCopy, addr uint64, n, lane int) bool {
	if n == op.size {
		p := g.pointer(&op.from, addr, lane)
		if p == nil {
			return false
		}
		copy(to, unsafe.Slice((*byte)(p), n))
		return true
	}
	clear(to)
	for i := range n {
		p := g.pointer(&op.byte, addr+uint64(i), lane)
		if p == nil {
			return false
		}
		to[i] = *(*byte)(p)
	}
	return true
}
