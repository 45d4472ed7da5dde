package lane

import (
	"unsafe"

	"pegasus/accel/ptx"
)

// group is up to 256 threads of a block that run in lockstep.
type group struct {
	w       *worker
	first   int // number in the block of lane 0
	threads int
	dims    [3]uint32 // block size that tid was computed for

	files    [placeKinds]rowFile // they point into memory
	memory   []uint64
	uniform  []uint64
	preds    []mask
	result   unsafe.Pointer // a row for results of which not all count
	scratch  unsafe.Pointer // a row for addresses
	common   commonRows
	value    uint64    // to spread over a row
	outcome  mask      // of a comparison
	sampler  *sampler  // made when it is first needed
	matrices *matrices // made when it is first needed
	tid      [3][maxLanes]uint32

	affine    []affine  // of affine registers, by number
	tidAffine [3]affine // of tid
	full      bool      // all living threads execute now
	here      mask      // threads of the running fragment, or about so
	parked    int       // fragments that are
	forced    bool      // warp instructions do not wait for absent threads
	values    [4]uint64 // of a single operation

	sp    int // start of the running fragment's frame in the local memory of its threads
	act   active
	live  mask // threads that have not ended
	came  mask // and have arrived at the cluster's barrier, which hasn't opened since
	frags []fragment
	joins []join
	spare []int32 // joins to use again
	fault *Fault
	fuel  int
	// watched is the cost of the instructions executed since the last check whether the launch is cancelled.
	watched int
	// patience is the number of back edges and turns that fragments may still take before the next check for threads
	// that have waited at a join since the last check, which releases them. Each such release lowers limit, as spinning
	// tends to recur.
	patience, limit int
	spun            bool // a lock or a flag was polled
	fresh           int  // number of further stores before which threads let others continue; see runHold
	held            int  // fragments that have, in this step
}

// fragment is a set of threads at the same instruction.
type fragment struct {
	m    mask
	pc   int32 // block
	join int32 // where it is awaited, or -1
	at   int32 // how many instructions of the block it has executed
	bar  int32 // block of the barrier that it waits at, or runnable, or parked
	id   int32 // of that barrier
	sp   int   // start of the frame of its threads
}

// join is a place where parted threads meet again.
type join struct {
	pc                int32
	outer             int32
	arrived, expected mask
	overdue           bool // the arrived have waited for all that patience allows
	call              bool // threads arrive by returning from a function
	sp                int  // of the fragment that continues
}

const (
	fuelPerTurn     = 1 << 10 // back edges before another fragment gets a turn
	turnsPerStep    = 64
	roundsPerTurn   = 1 << 10 // steps of each group before another block gets a turn
	spinWeight      = 128     // weight of a turn that looks like waiting
	initialPatience = 1 << 17
	leastPatience   = 1 << 10
	watchEvery      = 1 << 11 // cost of blocks
)

func newGroup(w *worker, first, threads int) *group {
	p := w.prog
	g := &group{w: w, first: first, threads: threads}
	lanes := (threads + 63) &^ 63
	// A little more than a power of two, so that the same lane of many rows
	// does not fall into the same cache set. All rows begin with a cache line.
	stride, stride64 := lanes*4+64, lanes*8+64
	g.memory = make([]uint64, (p.rows32*stride+(p.rows64+2)*stride64)/8+8)
	file := unsafe.Pointer(&g.memory[0])
	file = unsafe.Add(file, -uintptr(file)&63)
	file64 := unsafe.Add(file, p.rows32*stride)
	g.result = unsafe.Add(file64, p.rows64*stride64)
	g.scratch = unsafe.Add(g.result, stride64)
	g.uniform = append(make([]uint64, 0, len(p.uniforms)+1), p.uniforms...)
	g.files = [placeKinds]rowFile{row32: {file, stride, 4}, row64: {file64, stride64, 8}, single: {unsafe.Pointer(unsafe.SliceData(g.uniform)), 8, 0}}
	g.common = newCommonRows()
	g.act.threads = threads
	g.preds = make([]mask, p.preds)
	g.affine = make([]affine, p.affine+1)
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
		g.affineThreads()
	}
	clear(g.affine)
	g.live, g.came = firstLanes(g.threads), mask{}
	g.frags = append(g.frags[:0], fragment{m: g.live, join: -1, bar: runnable})
	g.joins, g.spare = g.joins[:0], g.spare[:0]
	if used := g.w.prog.taken; used.kind != nowhere {
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

// runnables returns the number of runnable fragments.
func (g *group) runnables() (n int) {
	for i := range g.frags {
		if g.frags[i].bar == runnable {
			n++
		}
	}
	return n
}

// pick returns the latest runnable fragment, or -1; any of them if the order is random.
func (g *group) pick() int {
	if g.w.order.random {
		return g.pickAny()
	}
	for i := len(g.frags) - 1; i >= 0; i-- {
		if g.frags[i].bar == runnable {
			return i
		}
	}
	return -1
}

// atBarrier reports whether a fragment waits at a barrier of the block.
func (g *group) atBarrier() bool {
	for i := range g.frags {
		if g.frags[i].bar >= 0 {
			return true
		}
	}
	return false
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
		if g.worked(b.cost) {
			g.stoppedAt(&f, b, at)
			return
		}
		g.w.turn++
		if s := g.w.profiler; s != nil {
			if i := s.execute(g, f.pc, at); g.fault != nil {
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
		switch b.ending {
		case falls:
			f.pc = b.next
		case jumps:
			if g.branch(&f, b) {
				return
			}
		case exits:
			if g.exit(&f, b) {
				return
			}
		case calls:
			if g.call(&f, b) {
				return
			}
		case returns:
			if g.back(&f, b) {
				return
			}
		case traps:
			if m := g.taken(&f, b); !m.empty() {
				g.fail(b.line, first(&m), ptx.ErrLaunchFailed, 0, "trap")
				return
			}
			f.pc = b.next
		case arrives:
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

// worked adds the cost of executed instructions, and calls watch at intervals of watchEvery. It reports whether the
// launch is cancelled; then g.fault is set.
func (g *group) worked(cost int) bool {
	g.watched += cost
	return g.watched > watchEvery && g.watch()
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
	if b.guard < 0 {
		return f.m
	}
	p := &g.preds[b.guard]
	if b.not {
		return f.m.without(p)
	}
	return f.m.and(p)
}

// branch moves the fragment to the target, or splits it; parted reports which.
func (g *group) branch(f *fragment, b *block) (parted bool) {
	t := g.taken(f, b)
	if t == f.m {
		f.pc = b.target
		return false
	}
	if t.empty() {
		f.pc = b.next
		return false
	}
	j := f.join
	if b.join >= 0 && (j < 0 || !g.joins[j].at(b.join)) {
		j = g.newJoin(join{pc: b.join, outer: f.join, expected: f.m, sp: f.sp})
	}
	n := f.m.without(&t)
	g.frags = append(g.frags, fragment{m: n, pc: b.next, join: j, bar: runnable, sp: f.sp}, fragment{m: t, pc: b.target, join: j, bar: runnable, sp: f.sp})
	return true
}

func (g *group) newJoin(j join) int32 {
	if n := len(g.spare); n > 0 {
		i := g.spare[n-1]
		g.spare = g.spare[:n-1]
		g.joins[i] = j
		return i
	}
	g.joins = append(g.joins, j)
	return int32(len(g.joins) - 1)
}

// meet puts the fragment into the join it has come to.
func (g *group) meet(f *fragment) {
	j := &g.joins[f.join]
	j.arrived = j.arrived.or(&f.m)
	g.complete(f.join)
}

// complete releases the threads of a join at which all have arrived.
func (g *group) complete(i int32) {
	j := &g.joins[i]
	if j.arrived != j.expected {
		return
	}
	if !j.arrived.empty() {
		g.frags = append(g.frags, fragment{m: j.arrived, pc: j.pc, join: j.outer, bar: runnable, sp: j.sp})
	}
	g.drop(i)
}

// drop frees a join for another use.
func (g *group) drop(i int32) {
	g.joins[i] = join{pc: -1}
	g.spare = append(g.spare, i)
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
	f.pc = b.next
	return false
}

// rest puts the fragment behind all other runnable ones. Its turn counts for
// a part of a round of them.
func (g *group) rest(f fragment) {
	turns := 1 + g.runnables()
	g.postpone(f)
	g.impatient(fuelPerTurn / turns)
}

// postpone puts the fragment behind all other runnable ones.
func (g *group) postpone(f fragment) {
	g.frags = append(g.frags, fragment{})
	copy(g.frags[1:], g.frags)
	g.frags[0] = f
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

// remind marks the joins overdue at which threads wait. It reports whether there are any.
func (g *group) remind() (any bool) {
	for i := range g.joins {
		if j := &g.joins[i]; !j.arrived.empty() {
			j.overdue, any = true, true
		}
	}
	return any
}

// release lets the threads go that have arrived at an overdue join, without waiting for the others. It reports whether
// there was one. The innermost join is released first, since its threads often reach the outer ones; none is omitted,
// as joins are marked overdue again only when none is overdue.
func (g *group) release() bool {
	for i := len(g.joins) - 1; i >= 0; i-- {
		j := &g.joins[i]
		if !j.overdue {
			continue
		}
		f := fragment{m: j.arrived, pc: j.pc, join: j.outer, bar: runnable, sp: j.sp}
		j.expected = j.expected.without(&j.arrived)
		j.arrived, j.overdue = mask{}, false
		g.frags = append(g.frags, f)
		return true
	}
	return false
}
