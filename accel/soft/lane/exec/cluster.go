package exec

import "pegasus/accel/ptx"

// Each block is a cluster of its own. Its barrier has two parts: threads arrive, and
// later wait for those that have not arrived.

// clusterBarrier is the number of the cluster's barrier, beside those of bar.
const clusterBarrier = 16

// arriveCluster executes barrier.cluster. It reports whether the threads wait.
func (g *group) arriveCluster(f *fragment, b *block) (gone bool) {
	if f.pc = b.Next; b.Barrier.Arrive {
		g.came = g.came.or(&f.m)
		g.w.clustered = true
		g.w.meetCluster()
		return false
	}
	if m := g.came.and(&f.m); m.empty() { // the others have come, too
		return false
	}
	wait := *f
	wait.bar, wait.id = g.blockIndex(b), clusterBarrier
	g.frags = append(g.frags, wait)
	return true
}

// meetCluster releases the waiting threads if all threads that haven't ended have arrived.
func (w *worker) meetCluster() {
	for _, g := range w.groups {
		if late := g.live.without(&g.came); !late.empty() {
			return
		}
	}
	for _, g := range w.groups {
		g.came = mask{}
		g.leave(clusterBarrier, &barrier{})
	}
}

// runOnlyBlock fails if a thread names a block that its cluster doesn't have.
func runOnlyBlock(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		if g.scalar(in.A, int(lane)) != 0 {
			failRank(g, in.Line, int(lane))
			return
		}
	}
}

func failRank(g *group, line int32, lane int) {
	g.fail(line, lane, ptx.ErrIllegalAddress, 0, "there is no such block in the cluster, which is of one block")
}
