package compile

import (
	"strings"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

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
	view := l.accessTo(&args[1], from, ir.BulkUnit, false)
	op := &ir.BulkCopy{From: &view.Mem, Size: l.src(&args[2], ptx.U32)}
	if in.Mods.Has(ptx.CompleteBytes) {
		bar := l.accessTo(&args[3], ptx.ModShared, 8, true)
		op.Mbarrier = &bar.Mem
	}
	if i := strings.IndexByte(in.Form, 'k'); i >= 0 {
		*arith.Pick(in.Mods.Has(ptx.Multicast), &op.Bytes, &op.Blocks) = l.src(&args[i], ptx.U16)
	}
	if in.Mods.Has(ptx.Reduce) {
		if op.Atomic = l.reduction(in, to == ptx.ModShared); op.Atomic == nil {
			return
		}
	}
	c := l.accessTo(&args[0], to, ir.BulkUnit, true)
	c.Op, c.Detail = ir.OpBulkCopy, op
	l.emit(c)
}

// reduction returns the operation of red and its like on an element.
func (l *lowerer) reduction(in *ptx.Inst, shared bool) *ir.Atomic {
	a := atomicOf(in.Mods.First(ptx.RN, ptx.Min, ptx.Max, ptx.Inc, ptx.Dec, ptx.And, ptx.Or, ptx.Xor, ptx.Add), in.Type, shared)
	if a == nil {
		l.fail("%s is not implemented for %s", in.Op, in.Type)
	}
	return a
}

// lowerBulkStore lowers st.bulk, which clears memory.
func lowerBulkStore(l *lowerer, in *ptx.Inst) {
	c := l.accessTo(&in.Args[0], spaceMod(in), 8, true)
	c.Op, c.B = ir.OpBulkStore, l.src(&in.Args[1], ptx.U64)
	l.emit(c)
}

func lowerAsyncStore(l *lowerer, in *ptx.Inst) {
	op := &ir.AsyncStore{Size: in.Type.Size()}
	for _, e := range elements(&in.Args[1]) {
		op.Values = append(op.Values, l.src(e, in.Type))
	}
	if in.Op == opRed {
		if op.Atomic = l.reduction(in, true); op.Atomic == nil {
			return
		}
	}
	bar := l.accessTo(&in.Args[2], spaceMod(in), 8, true)
	op.Mbarrier = &bar.Mem
	c := l.accessTo(&in.Args[0], spaceMod(in), op.Size*len(op.Values), true)
	c.Op, c.Detail = ir.OpAsyncStore, op
	l.emit(c)
}

var opRed = ptx.OpOf("red")
