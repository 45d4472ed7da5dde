package exec

import (
	"unsafe"

	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
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

func runCopy(g *group, in *instr) {
	op := in.Detail.(*ir.AsyncCopy)
	var skip mask
	if op.Skip.Kind != ir.Nowhere {
		skip = g.predicateOf(op.Skip, op.SkipNot)
	}
	m := &in.Mem
	ap, astep := g.row(m.Address)
	bp, bstep := g.row(op.From.Address)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		n := op.Size
		if skip.has(l) {
			n = 0
		} else if op.Bytes.Kind != ir.Nowhere {
			n = int(min(g.scalar(op.Bytes, l), uint32(op.Size)))
		}
		to := g.pointer(m, arith.Get64(ap, astep, l)+m.Offset, l)
		if to == nil || !copyBytes(g, unsafe.Slice((*byte)(to), op.Size), op, arith.Get64(bp, bstep, l)+op.From.Offset, n, l) {
			return
		}
	}
}

// copyBytes copies n bytes from global memory and clears the rest. It returns false after a fault.
func copyBytes(g *group, to []byte, op *ir.AsyncCopy, addr uint64, n, lane int) bool {
	if n == op.Size {
		p := g.pointer(&op.From, addr, lane)
		if p == nil {
			return false
		}
		copy(to, unsafe.Slice((*byte)(p), n))
		return true
	}
	clear(to)
	for i := range n {
		p := g.pointer(&op.Byte, addr+uint64(i), lane)
		if p == nil {
			return false
		}
		to[i] = *(*byte)(p)
	}
	return true
}
