package exec

import (
	"time"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// runSpecial reads a special register.
func runSpecial(g *group, in *instr) {
	s := ptx.SpecialReg(in.Imm)
	if in.Dst.Kind == ir.Single {
		g.uniform[in.Dst.Slot] = blockSpecial(g, s)
		return
	}
	d, _ := g.row(in.Dst)
	switch {
	case s <= ptx.TidZ:
		g.take(in.Dst, &g.tid[s-ptx.TidX])
	case s >= ptx.LaneMaskEQ && s <= ptx.LaneMaskGT || s == ptx.LaneID || s == ptx.WarpID:
		for _, l := range g.act.lanes() {
			arith.Put32(d, int(l), threadSpecial(g, s, int(l)))
		}
	case in.Dst.Kind == ir.Row64:
		fillActive(g, d, blockSpecial(g, s))
	default:
		fillActive(g, d, uint32(blockSpecial(g, s)))
	}
}

// runPollClock records that a loop waits for the clock. It does not set g.spun, which would release threads that wait at a
// join for the end of the loop: the loop ends without them.
func runPollClock(g *group, _ *instr) { g.w.timed = true }

// threadSpecial returns a special register that differs between threads.
func threadSpecial(g *group, s ptx.SpecialReg, lane int) uint32 {
	bit := uint32(1) << (lane % ir.WarpLanes)
	switch s {
	case ptx.LaneID:
		return uint32(lane % ir.WarpLanes)
	case ptx.WarpID:
		return uint32((g.first + lane) / ir.WarpLanes)
	case ptx.LaneMaskEQ:
		return bit
	case ptx.LaneMaskLT:
		return bit - 1
	case ptx.LaneMaskLE:
		return bit | (bit - 1)
	case ptx.LaneMaskGT:
		return ^(bit | (bit - 1))
	}
	return ^(bit - 1)
}

// smemUnit is the allocation granularity of shared memory, in bytes.
const smemUnit = 256

var started = time.Now()

// blockSpecial returns a special register that all threads of a block read alike.
func blockSpecial(g *group, s ptx.SpecialReg) uint64 {
	l := g.w.run.launch
	switch {
	case s >= ptx.NTidX && s <= ptx.NTidZ:
		return uint64(l.Block[s-ptx.NTidX])
	case s >= ptx.CtaidX && s <= ptx.CtaidZ:
		return uint64(g.w.ctaid[s-ptx.CtaidX])
	case s >= ptx.NCtaidX && s <= ptx.NCtaidZ:
		return uint64(l.Grid[s-ptx.NCtaidX])
	}
	switch s {
	case ptx.One:
		return 1
	case ptx.GridBarrierHi, ptx.GridBarrierLo:
		if l.Cooperative {
			return ir.GridWindow >> (32 * (ptx.GridBarrierLo - s)) & (1<<32 - 1)
		}
	case ptx.NSMID:
		return uint64(max(l.Cores, 1))
	case ptx.NWarpID:
		return ir.MaxThreads / ir.WarpLanes
	case ptx.DynamicSmem:
		return uint64(l.SharedBytes)
	case ptx.TotalSmem:
		return uint64(len(g.w.shared)+smemUnit-1) &^ (smemUnit - 1)
	case ptx.Clock, ptx.Clock64, ptx.GlobalTimer, ptx.GlobalTimerLo:
		return uint64(time.Since(started))
	case ptx.ClockHi, ptx.GlobalTimerHi:
		return uint64(time.Since(started)) >> 32
	}
	return 0
}
