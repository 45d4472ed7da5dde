package exec

import "pegasus/accel/soft/lane/ir"

// A branch around a few instructions, which some threads take and others don't, needs no fragments: all wait where they
// meet again, and the instructions are executed for the threads that come to them.

// findBody finds the block that a branch leads around, if that is all it does: it ends where the branch's threads join.
func (p *Program) findBody(b *block) {
	b.body = -1
	if b.Ending != ir.Jumps || b.Guard < 0 || b.Join < 0 {
		return
	}
	for _, way := range [2][2]int32{{b.Target, b.Next}, {b.Next, b.Target}} {
		if p.past(way[1], b.Join) == b.Join && p.isBody(way[0], b.Join) {
			b.body, b.taken = way[0], way[0] == b.Target
			return
		}
	}
}

// past returns the block that a branch to a block leads to, past blocks that only jump, or join if it is on that way.
func (p *Program) past(n, join int32) int32 {
	for range 4 {
		if n == join || n < 0 || int(n) >= len(p.blocks) {
			break
		}
		b := &p.blocks[n]
		if len(b.code) > 0 || b.Ending != ir.Jumps || b.Guard >= 0 {
			break
		}
		n = b.Target
	}
	return n
}

// isBody reports whether all threads that enter a block come to join behind it, without waiting for others.
func (p *Program) isBody(n, join int32) bool {
	if n < 0 || int(n) >= len(p.blocks) || n == join {
		return false
	}
	b := &p.blocks[n]
	switch {
	case b.Ending == ir.Falls && p.past(b.Next, join) == join:
	case b.Ending == ir.Jumps && b.Guard < 0 && p.past(b.Target, join) == join:
	default:
		return false
	}
	b.holds = 0
	for i := range b.code {
		in := &b.code[i]
		switch in.Op {
		case ir.OpRow, ir.OpCompare, ir.OpCompareAffine, ir.OpSelect, ir.OpPredicates, ir.OpFill, ir.OpSpecial, ir.OpLoadParam, ir.OpFrame:
		case ir.OpLoad, ir.OpStore, ir.OpAtomic, ir.OpAdd:
			if in.Mem.Spin {
				return false
			}
		case ir.OpHold:
			b.holds++
		default:
			return false
		}
	}
	return true
}

// detour executes the body that a branch leads around for some threads of a fragment, which continues where they join
// the others. It returns false, without effect, if they have to be a fragment of their own.
func (g *group) detour(f *fragment, b *block, yes *mask) (done bool) {
	body := &g.w.prog.blocks[b.body]
	if g.w.order.random || g.w.profiler != nil || body.holds > 0 && g.holdsBack(body.holds) {
		return false
	}
	if g.worked(body.Cost) {
		return false // which stops where the fragment is
	}
	full, here := g.full, g.here
	g.act.set(yes)
	g.full, g.here = *yes == g.live, *yes
	part := fragment{m: *yes, pc: b.body, join: f.join, bar: runnable, sp: f.sp}
	g.turn++
	g.renew(body)
	g.shaped, g.shapedFor = part.pc, part.m
	i := len(body.code)
	if body.compiled {
		i = runner{g}.mixed(body, 0)
	} else {
		for k := range body.code {
			in := &body.code[k]
			if in.exec(g, in); g.fault != nil {
				i = k
				break
			}
		}
	}
	if g.fault != nil {
		g.stop(&part, i)
	}
	g.act.set(&f.m)
	g.full, g.here = full, here
	f.pc = b.Join
	return true
}
