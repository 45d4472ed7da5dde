package exec

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

func runInitMbarrier(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		l := int(lane)
		m, n := mbarrierMemory(g, &in.Mem, l), uint64(g.scalar(in.B, l))
		if m == nil {
			return
		}
		if n > ir.MaxMbarrierCount {
			g.fail(in.Line, l, ptx.ErrLaunchFailed, 0, "an mbarrier can't expect so many arrivals")
			return
		}
		*m = ir.MbarrierState(ir.MbarrierValid).With(n, n, 0)
	}
}

func runInvalMbarrier(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		m := findMbarrier(g, &in.Mem, int(lane))
		if m == nil {
			return
		}
		*m = 0
	}
}

// runArriveMbarrier performs the arrivals of the threads one after the other, and returns to each the previous state of
// the mbarrier.
func runArriveMbarrier(g *group, in *instr) {
	op := in.Detail.(*ir.Mbarrier)
	for _, lane := range g.act.lanes() {
		l := int(lane)
		m, n, bytes := findMbarrier(g, &in.Mem, l), uint64(1), int64(0)
		if m == nil {
			return
		}
		if op.Count.Kind != ir.Nowhere {
			n = uint64(g.scalar(op.Count, l))
		}
		if op.Bytes.Kind != ir.Nowhere {
			bytes = op.Sign * int64(g.scalar(op.Bytes, l))
		}
		before := *m
		if !arriveAtMbarrier(g, &in.Mem, m, l, n, bytes, op.Drop) {
			return
		}
		if in.Dst.Kind != ir.Nowhere {
			g.setValue(in.Dst, l, uint64(before))
		}
	}
}

// arriveAtMbarrier performs one arrival; it returns false after a fault.
func arriveAtMbarrier(g *group, at *ir.Memory, m *ir.MbarrierState, lane int, n uint64, bytes int64, drop bool) bool {
	after, ok := m.Arrive(n, bytes, drop)
	if !ok {
		g.fail(at.Line, lane, ptx.ErrLaunchFailed, 0, "more arrivals at an mbarrier than it expects, or more bytes than it counts")
		return false
	}
	*m = after
	return true
}

// runWaitMbarrier returns to each thread whether a phase is complete. It never blocks: a waiting thread repeats the
// instruction, as for a lock.
func runWaitMbarrier(g *group, in *instr) {
	op := in.Detail.(*ir.Mbarrier)
	var done mask
	all := true
	for _, lane := range g.act.lanes() {
		l := int(lane)
		m, parity := findMbarrier(g, &in.Mem, l), uint64(0)
		if m == nil {
			return
		}
		if op.Parity {
			parity = uint64(g.scalar(in.B, l) & 1)
		} else {
			parity = ir.MbarrierState(g.valueOf(in.B, l)).Parity()
		}
		if m.Parity() != parity {
			done[l>>6] |= 1 << (l & 63)
		} else {
			all = false
		}
	}
	g.spun = g.spun || !all
	if in.Dst.Kind != ir.Nowhere {
		g.preds[in.Dst.Slot].blend(&done, &g.act.m)
	}
}

// findMbarrier returns the mbarrier at a thread's address, or nil after a fault.
func findMbarrier(g *group, at *ir.Memory, lane int) *ir.MbarrierState {
	m := mbarrierMemory(g, at, lane)
	if m != nil && !m.Valid() {
		g.fail(at.Line, lane, ptx.ErrLaunchFailed, 0, "no mbarrier was initialised there")
		return nil
	}
	return m
}

// mbarrierMemory is shared memory for an mbarrier, or nil after a fault.
func mbarrierMemory(g *group, at *ir.Memory, lane int) *ir.MbarrierState {
	ap, step := g.row(at.Address)
	addr := arith.Get64(ap, step, lane) + at.Offset
	if at.Space != ptx.Shared && addr&ir.WindowMask != ir.SharedWindow {
		g.fail(at.Line, lane, ptx.ErrInvalidAddressSpace, addr, "an mbarrier is in shared memory")
		return nil
	}
	return (*ir.MbarrierState)(g.pointer(at, addr, lane))
}
