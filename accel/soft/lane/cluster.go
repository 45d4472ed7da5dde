package lane

import "pegasus/accel/ptx"

// Each block is a cluster of its own. Its barrier has two parts: threads arrive, and
// later wait for those that have not arrived.

// clusterBarrier is the number of the cluster's barrier, beside those of bar.
const clusterBarrier = 16

// arriveCluster executes barrier.cluster. It reports whether the threads wait.
func (g *group) arriveCluster(f *fragment, b *block) (gone bool) {
	if f.pc = b.next; b.bar.arrive {
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

// lowerMapa lowers mapa: the address in a block of the cluster that corresponds to an address of this one.
func lowerMapa(l *lowerer, in *ptx.Inst) {
	wide := in.Type.Size() == 8
	d := l.dst(&in.Args[0], wide)
	l.op(pick(wide, "movU32", "movU64"), d, l.src(&in.Args[1], in.Type))
	l.emit(irInstr{op: irOnlyBlock, a: l.src(&in.Args[2], ptx.U32)})
}

// runOnlyBlock fails if a thread names a block that its cluster doesn't have.
func runOnlyBlock(g *group, in *instr) {
	for _, lane := range g.act.lanes() {
		if g.scalar(in.a, int(lane)) != 0 {
			failRank(g, in.line, int(lane))
			return
		}
	}
}

func failRank(g *group, line int32, lane int) {
	g.fail(line, lane, ptx.ErrIllegalAddress, 0, "there is no such block in the cluster, which is of one block")
}

// lowerGetctarank lowers getctarank: all addresses are of block 0.
func lowerGetctarank(l *lowerer, in *ptx.Inst) {
	l.op("movU32", l.dst(&in.Args[0], false), l.constant(0))
}
