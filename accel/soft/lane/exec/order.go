package exec

import (
	"math/rand/v2"

	"pegasus/accel/soft/lane/ir"
)

// Warps that leave a barrier execute at about the same pace on a GPU: a load of one warp does not observe a store that
// another issues a few instructions later in program order. Compilers rely on that (GCC's broadcasts to the workers of
// a gang), though by PTX's rules it is a race. So threads that have left a barrier, or begun their block, let all other
// threads of their block continue before each of their first stores, up to the same number of stores.

// heldStores is the number of stores after a barrier that are held back.
const heldStores = 8

// yielding is returned instead of a fault where a fragment is to continue behind the others.
var yielding = new(Fault)

// begun records that threads of the group have left a barrier, or begin.
func (g *group) begun() {
	g.fresh = heldStores
	if g.w.order.random {
		g.partWarps()
	}
}

// runHold is executed before an instruction that changes memory that other warps may read.
func runHold(g *group, _ *instr) {
	back := g.holdsBack(1)
	g.pass(1)
	if !back || g.w.order.random && g.w.order.chance.Uint64()%4 != 0 {
		return
	}
	g.held++
	g.w.held = true
	g.fault = yielding
}

// holdsBack reports whether any of the next n stores before which threads let others continue may have to wait for
// some: for other threads of the group, or for groups that have not come to as many such stores.
func (g *group) holdsBack(n int) bool {
	if g.w.order.random {
		return g.accompanied()
	}
	if n = min(n, g.fresh); n == 0 {
		return false
	}
	if g.runnables() > 0 {
		return true
	}
	for _, o := range g.w.groups {
		if o != g && o.fresh > g.fresh-n && o.runnables() > 0 {
			return true
		}
	}
	return false
}

// pass counts n stores before which threads let others continue.
func (g *group) pass(n int) {
	if !g.w.order.random {
		g.fresh -= min(n, g.fresh)
	}
}

// accompanied reports whether there are threads of the block beside those of the running fragment that can run.
func (g *group) accompanied() bool { return len(g.w.groups) > 1 || g.runnables() > 0 }

// warpOrder is the order in which the groups of a block have their turns.
type warpOrder struct {
	turns  []*group
	random bool
	chance rand.PCG
}

// begin chooses the order for block n of a launch.
func (o *warpOrder) begin(groups []*group, random, n uint64) {
	if o.random {
		copy(o.turns, groups)
	}
	if o.random = random != 0; o.random {
		o.chance.Seed(random, n)
	}
}

// next returns the groups in the order of the next round.
func (o *warpOrder) next() []*group {
	if o.random {
		for i := len(o.turns) - 1; i > 0; i-- {
			k := int(o.chance.Uint64() % uint64(i+1))
			o.turns[i], o.turns[k] = o.turns[k], o.turns[i]
		}
	}
	return o.turns
}

// partWarps splits the runnable fragments into fragments of single warps.
func (g *group) partWarps() {
	for i := range g.frags {
		if g.frags[i].bar != runnable {
			continue
		}
		all := g.frags[i].m
		for w, first := 0, true; w < ir.MaxLanes/ir.WarpLanes; w++ {
			part := all.warp(w)
			if part == 0 {
				continue
			}
			f := g.frags[i]
			f.m = mask{}
			f.m.setWarp(w, part)
			if first {
				g.frags[i], first = f, false
			} else {
				g.frags = append(g.frags, f)
			}
		}
	}
}
