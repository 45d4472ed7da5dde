package exec

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// group is up to 256 threads of a block that run in lockstep. A worker owns it.
type group struct {
	w       *worker
	first   int // number in the block of lane 0
	threads int
	threadIDs
	registerFile
	divergence
	pace

	act   active // the threads that execute now
	full  bool   // all living threads execute now
	here  mask   // threads of the running fragment, or about so
	live  mask   // threads that have not ended
	came  mask   // and have arrived at the cluster's barrier, which hasn't opened since
	sp    int    // start of the running fragment's frame in the local memory of its threads
	fault *Fault

	// shapes are the shapes of addresses, by their numbers within the block; turn counts executions of blocks, of which
	// the last one was of block shaped, by the threads shapedFor.
	shapes    []*shape
	kept      []keptShape // by Memory.Stable
	attempts  []attempts  // by the numbers of runs
	asRows    []uint8     // how often runs that compute affine registers are to compute them as rows, by their numbers
	turn      uint64
	shaped    int32
	shapedFor mask

	sampler  *sampler  // made when it is first needed
	matrices *matrices // made when it is first needed
}

// threadIDs has the indices of the threads in their block.
type threadIDs struct {
	dims      [3]uint32 // block size that tid was computed for
	tid       [3][ir.MaxLanes]uint32
	tidAffine [3]affine // of tid
}

// pace limits how long the running fragment goes on.
type pace struct {
	fuel int // back edges until another fragment gets a turn
	// watched is the cost of the instructions executed since the last check whether the launch is cancelled.
	watched int
	spun    bool // a lock or a flag was polled
	fresh   int  // number of further stores before which threads let others continue; see runHold
	held    int  // fragments that have, in this step
	forced  bool // warp instructions do not wait for absent threads
}

const (
	fuelPerTurn     = 1 << 10 // back edges before another fragment gets a turn
	turnsPerStep    = 64
	roundsPerTurn   = 1 << 10 // steps of each group before another block gets a turn
	spinWeight      = 128     // weight of a turn that looks like waiting
	initialPatience = 1 << 17
	leastPatience   = 1 << 10
)

func newGroup(w *worker, first, threads int) *group {
	g := &group{w: w, first: first, threads: threads, kept: make([]keptShape, w.prog.Stables)}
	g.registerFile.init(w.prog, threads)
	g.act.threads = threads
	return g
}

// begin readies the group for a block.
func (g *group) begin(dims [3]uint32) {
	if g.dims != dims {
		g.dims = dims
		for l := range g.threads {
			t := uint32(g.first + l)
			g.tid[0][l], g.tid[1][l], g.tid[2][l] = t%dims[0], t/dims[0]%dims[1], t/dims[0]/dims[1]
		}
		g.affineThreads(g.threads)
	}
	clear(g.affine)
	for i := range g.kept {
		g.kept[i].valid = false
	}
	g.live, g.came = firstLanes(g.threads), mask{}
	g.frags = append(g.frags[:0], fragment{m: g.live, join: -1, bar: runnable})
	g.joins, g.spare = g.joins[:0], g.spare[:0]
	if used := g.w.prog.AllocaRow; used.Kind != ir.Nowhere {
		for l := range g.threads {
			g.setValue(used, l, 0)
		}
	}
	g.fault, g.patience, g.limit = nil, initialPatience, initialPatience
	g.parked = 0
	g.begun()
}

// fail records a fault of a lane; the first one counts.
func (g *group) fail(line int32, lane int, result int32, addr uint64, msg string) {
	if g.fault == nil {
		g.fault = g.w.newFault(result, addr, int(line), msg)
		if lane < g.threads {
			g.fault.Thread = [3]uint32{g.tid[0][lane], g.tid[1][lane], g.tid[2][lane]}
		}
	}
}

// step runs fragments until none can run, or a turn is over. It reports whether anything ran.
func (g *group) step() (ran bool) {
	g.held = 0
	for range turnsPerStep {
		if g.settle(); g.fault != nil {
			return true
		}
		i := g.pick()
		if i < 0 && !g.atBarrier() && g.unpark() {
			if ran = true; g.fault != nil {
				return true
			}
			continue
		}
		if i < 0 {
			return ran
		}
		f := g.frags[i]
		g.frags = append(g.frags[:i], g.frags[i+1:]...)
		ran = true
		if g.run(f); g.fault != nil {
			return true
		}
		if g.fuel < 0 || g.held > 0 && g.held >= g.runnables() {
			return true
		}
	}
	g.impatient(turnsPerStep)
	return ran
}

// pick returns the latest runnable fragment, or -1; any of them if the order is random.
func (g *group) pick() int {
	if g.w.order.random {
		return g.pickAny(&g.w.order.chance)
	}
	for i := len(g.frags) - 1; i >= 0; i-- {
		if g.frags[i].bar == runnable {
			return i
		}
	}
	return -1
}

// run executes a fragment until it parts, meets, waits, ends, or has had its turn.
func (g *group) run(f fragment) {
	p := g.w.prog
	if g.act.m != f.m {
		g.act.set(&f.m)
	}
	g.full, g.here = f.m == g.live, f.m
	g.fuel, g.spun, g.sp = fuelPerTurn, false, f.sp
	at := int(f.at)
	f.at = 0
	for {
		if f.join >= 0 && g.joins[f.join].at(f.pc) {
			g.meet(&f)
			return
		}
		b := &p.blocks[f.pc]
		if g.worked(b.Cost) {
			g.stoppedAt(&f, b, at)
			return
		}
		if at == 0 || f.pc != g.shaped || f.m != g.shapedFor { // else the group has only let others continue
			g.turn++
			g.shaped, g.shapedFor = f.pc, f.m
		}
		g.renew(b)
		if s := g.w.profiler; s != nil {
			if i := s.execute(g, f.pc, at); g.fault != nil {
				g.stop(&f, i)
				return
			}
		} else if b.compiled {
			if i := (runner{g}).mixed(b, at); g.fault != nil {
				g.stop(&f, i)
				return
			}
		} else {
			code := b.code[at:]
			for i := range code {
				in := &code[i]
				in.exec(g, in)
				if g.fault != nil {
					g.stop(&f, at+i)
					return
				}
			}
		}
		at = 0
		pc := f.pc
		switch b.Ending {
		case ir.Falls:
			f.pc = b.Next
		case ir.Jumps:
			if g.branch(&f, b) {
				return
			}
		case ir.Exits:
			if g.exit(&f, b) {
				return
			}
		case ir.Calls:
			if g.call(&f, b) {
				return
			}
		case ir.Returns:
			if g.back(&f, b) {
				return
			}
		case ir.Traps:
			if m := g.taken(&f, b); !m.empty() {
				g.fail(b.Line, first(&m), ptx.ErrLaunchFailed, 0, "trap")
				return
			}
			f.pc = b.Next
		case ir.Arrives:
			if g.arrive(&f, b) {
				return
			}
		}
		if f.pc <= pc {
			if g.fuel--; g.spun {
				g.fuel -= spinWeight
			}
			if g.fuel < 0 {
				g.rest(f)
				return
			}
		}
	}
}

// worked adds the cost of executed instructions, and calls watch at intervals of WatchEvery. It reports whether the
// launch is cancelled; then g.fault is set.
func (g *group) worked(cost int) bool {
	g.watched += cost
	return g.watched > ir.WatchEvery && g.watch()
}

// watch ends the launch if it is cancelled, and pauses it if it is to yield.
func (g *group) watch() bool {
	g.watched = 0
	if g.w.run.look(g.w.watch) {
		g.fault = g.w.newFault(ptx.ErrLaunchTimeout, 0, 0, "cancelled")
		return true
	}
	return false
}

// stoppedAt adds the position to the fault of a launch that was cancelled before the instruction at, of a block.
func (g *group) stoppedAt(f *fragment, b *block, at int) {
	g.fault.Line = b.lineAt(at)
	if l := first(&f.m); l < g.threads {
		g.fault.Thread = [3]uint32{g.tid[0][l], g.tid[1][l], g.tid[2][l]}
	}
}

func first(m *mask) int {
	var a active
	a.set(m)
	return a.lo
}

// taken returns the threads of the fragment for which the guard holds.
func (g *group) taken(f *fragment, b *block) mask {
	if b.Guard < 0 {
		return f.m
	}
	p := &g.preds[b.Guard]
	if b.GuardNot {
		return f.m.without(p)
	}
	return f.m.and(p)
}

// branch moves the fragment to the target, or splits it; parted reports which.
func (g *group) branch(f *fragment, b *block) (parted bool) {
	if b.Guard < 0 {
		f.pc = b.Target
		return false
	}
	var yes, no uint64 // have bits of the threads for which the predicate holds, and of the others
	for i, p := range &g.preds[b.Guard] {
		yes, no = yes|f.m[i]&p, no|f.m[i]&^p
	}
	if b.GuardNot {
		yes, no = no, yes
	}
	switch {
	case no == 0:
		f.pc = b.Target
		return false
	case yes == 0:
		f.pc = b.Next
		return false
	}
	t := g.taken(f, b)
	if b.body >= 0 {
		into := t
		if !b.taken {
			into = f.m.without(&t)
		}
		if g.detour(f, b, &into) {
			return g.fault != nil
		}
		if g.fault != nil {
			g.stoppedAt(f, b, len(b.code))
			return true
		}
	}
	j := f.join
	if b.Join >= 0 && (j < 0 || !g.joins[j].at(b.Join)) {
		j = g.newJoin(join{pc: b.Join, outer: f.join, expected: f.m, sp: f.sp})
	}
	n := f.m.without(&t)
	g.frags = append(g.frags, fragment{m: n, pc: b.Next, join: j, bar: runnable, sp: f.sp}, fragment{m: t, pc: b.Target, join: j, bar: runnable, sp: f.sp})
	return true
}

// exit ends threads. It reports whether the fragment has none left.
func (g *group) exit(f *fragment, b *block) bool {
	t := g.taken(f, b)
	if !t.empty() {
		g.live = g.live.without(&t)
		g.w.ended(t.count())
		for i := f.join; i >= 0; {
			j := &g.joins[i]
			j.expected = j.expected.without(&t)
			outer := j.outer
			g.complete(i)
			i = outer
		}
		f.m = f.m.without(&t)
		if f.m.empty() {
			return true
		}
		g.act.set(&f.m)
		g.full = f.m == g.live
	}
	f.pc = b.Next
	return false
}

// rest puts the fragment behind all other runnable ones. Its turn counts for
// a part of a round of them.
func (g *group) rest(f fragment) {
	turns := 1 + g.runnables()
	g.postpone(f)
	g.impatient(fuelPerTurn / turns)
}

// impatient counts turns. The running threads may be waiting for others that wait for them at a join: after a while it
// releases those.
func (g *group) impatient(n int) {
	if g.spun {
		n *= spinWeight
		g.spun = false
		g.w.spun = true
	}
	if g.patience -= n; g.patience > 0 {
		return
	}
	if g.release() {
		g.limit = max(g.limit/2, leastPatience)
	} else {
		g.remind()
	}
	g.patience = g.limit
}

// runWatch checks for cancellation in the middle of a long block.
func runWatch(g *group, _ *instr) { g.watch() }
