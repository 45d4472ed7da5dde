package exec

import (
	"math/bits"

	"pegasus/accel/soft/lane/ir"
)

// A warp instruction with .sync waits until all threads that its mask names, and
// that have not ended, execute it: a fragment that lacks some of them is parked
// before it. Threads that have parted come to one instruction at different times,
// and to bar.warp.sync at different places.
//
// If some threads don't come, because the mask is wrong or because they wait for a parked thread, the parked ones
// continue with those that are there once nothing else can run.

// Values of a fragment's bar if it waits at no barrier.
const (
	runnable int32 = -1
	parked   int32 = -2
)

// parking is returned instead of a fault where an instruction is to be executed again, once more threads are there.
var parking = new(Fault)

// alike returns the threads of rest that have the same mask as the first of them, and that mask.
func (r *registerFile) alike(member ir.Place, warp int, rest uint32) (same, members uint32) {
	lane := func(rest uint32) int { return warp*ir.WarpLanes + bits.TrailingZeros32(rest) }
	members = r.scalar(member, lane(rest))
	if member.Kind == ir.Single {
		return rest, members
	}
	for ; rest != 0; rest &= rest - 1 {
		if r.scalar(member, lane(rest)) == members {
			same |= rest & -rest
		}
	}
	return same, members
}

// awaits reports whether a warp instruction has to wait for threads that are elsewhere, and parks its fragment if so.
// Without a mask the instruction is for whole warps.
func (g *group) awaits(member ir.Place) bool {
	if g.full || g.forced {
		return false
	}
	for w := range ir.MaxLanes / ir.WarpLanes {
		away := g.live.warp(w) &^ g.here.warp(w)
		if away == 0 {
			continue
		}
		for rest := g.act.m.warp(w); rest != 0; {
			same, members := rest, ^uint32(0)
			if member.Kind != ir.Nowhere {
				same, members = g.alike(member, w, rest)
			}
			if members&away != 0 {
				g.fault = parking
				return true
			}
			rest &^= same
		}
	}
	return false
}

// stop parks the fragment before instruction at of its block, unless there is a fault.
func (g *group) stop(f *fragment, at int) {
	if g.fault == yielding {
		g.fault = nil
		f.at = int32(at) + 1
		g.postpone(*f)
		return
	}
	if g.fault != parking {
		if g.fault.Line == 0 {
			g.stoppedAt(f, &g.w.prog.blocks[f.pc], at)
		}
		return
	}
	g.fault = nil
	f.at, f.bar = int32(at), parked
	g.frags = append(g.frags, *f)
	g.parked++
}

// settle resumes parked fragments of which all threads have come.
func (g *group) settle() {
	for i := 0; i < len(g.frags) && g.parked > 0; i++ {
		if g.frags[i].bar == parked && g.together(i) {
			i = -1 // others may have moved
		}
		if g.fault != nil {
			return
		}
	}
}

// unpark lets the latest of the parked fragments continue with the threads that are there. It reports whether there was
// one.
func (g *group) unpark() bool {
	for i := len(g.frags) - 1; i >= 0 && g.parked > 0; i-- {
		if g.frags[i].bar == parked {
			g.forced = true
			g.together(i)
			g.forced = false
			return true
		}
	}
	return false
}

// together has a parked fragment execute the instruction that it waits before, with those of its warps that wait there
// too. It reports whether they did.
func (g *group) together(i int) bool {
	in := g.waitsBefore(&g.frags[i])
	m, n := g.frags[i].m, 0
	for before := -1; n != before; {
		before, n = n, 0
		for k := range g.frags {
			if f := &g.frags[k]; f.bar == parked && g.meets(f, i, in) && f.m.sharesWarp(&m) {
				m = m.or(&f.m)
				n++
			}
		}
	}
	g.act.set(&m)
	g.here, g.full = m, m == g.live
	if in.exec(g, in); g.fault != nil {
		if g.fault == parking {
			g.fault = nil
		}
		return false
	}
	kept := g.frags[:0]
	var went []fragment
	for _, f := range g.frags {
		if rest := f.m.without(&m); f.bar != parked || !rest.empty() {
			kept = append(kept, f)
			continue
		}
		f.bar = runnable
		f.at++
		g.parked--
		went = append(went, f)
	}
	g.frags = kept
	for _, f := range went {
		g.rejoin(f)
	}
	return true
}

// waitsBefore returns the instruction that a parked fragment waits before.
func (g *group) waitsBefore(f *fragment) *instr { return &g.w.prog.blocks[f.pc].code[f.at] }

// meets reports whether a parked fragment waits for the same as number i, which waits before in.
func (g *group) meets(f *fragment, i int, in *instr) bool {
	if o := &g.frags[i]; f.pc == o.pc && f.at == o.at {
		return true
	}
	return isWarpBarrier(in) && isWarpBarrier(g.waitsBefore(f))
}

// isWarpBarrier reports whether the instruction is a bar.warp.sync without a guard.
func isWarpBarrier(in *instr) bool {
	return in.Op == ir.OpWarpBarrier && in.Guard < 0
}

func runWarpBarrier(g *group, in *instr) { g.awaits(in.Detail.(*ir.Warp).Member) }
