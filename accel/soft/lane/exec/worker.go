package exec

import (
	"math/bits"
	"slices"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/gen"
	"pegasus/accel/soft/lane/ir"
)

// worker runs blocks, one after the other. It is used by one goroutine at a time and kept for later launches.
type worker struct {
	prog   *Program
	run    *run
	watch  *stopwatch // of the core that runs it
	groups []*group
	dims   [3]uint32
	ctaid  [3]uint32
	live   int // threads of the block that have not ended

	shared    []byte
	local     []byte
	depth     int // bytes of local memory a thread, with its stack
	cache     []region
	patterns  patterns
	bars      [16]barrier
	waiting   bool // some barrier has been used
	clustered bool // the cluster's barrier has been used
	spun      bool // a group polled a lock or a flag for all its turn
	timed     bool // a group watched a clock
	held      bool // a group let others continue before it stores
	order     warpOrder
	bound     map[uint64]binding // textures and surfaces that the launch has used
	texture   struct {           // the last of them
		handle uint64
		binding
	}
	profiler *profiler // nil: no profile
	frame    gen.Frame // of machine code
	loop     loopState
	next     *worker // in a list of the launch's residents
}

// barrier is the state of one of a block's barriers.
type barrier struct {
	arrived int // threads
	count   int // threads awaited; 0: all that live
	used    bool
	popc    int
	ands    bool
	ors     bool
}

// begin readies the worker for a launch.
func (w *worker) begin(r *run, watch *stopwatch) {
	w.run, w.watch = r, watch
	l := r.launch
	if w.dims != l.Block {
		w.dims = l.Block
		w.groups = w.groups[:0]
		threads := int(l.Block[0] * l.Block[1] * l.Block[2])
		for first := 0; first < threads; first += ir.MaxLanes {
			w.groups = append(w.groups, newGroup(w, first, min(ir.MaxLanes, threads-first)))
		}
		w.order.turns = slices.Clone(w.groups)
		w.depth = -1
	}
	if depth := w.prog.depth(l); w.depth != depth {
		w.depth, w.local = depth, nil
		w.local = make([]byte, int(l.Block[0]*l.Block[1]*l.Block[2])*depth)
	}
	size := (w.prog.SharedBytes+15)&^15 + int(l.SharedBytes)
	if cap(w.shared) < size {
		w.shared = make([]byte, size)
	}
	w.shared = w.shared[:size]
	clear(w.cache)
	clear(w.bound)
	w.texture.t = nil
	if l.Profile == nil {
		w.profiler = nil
	} else if w.profiler == nil {
		w.profiler = newProfiler(w.prog)
	}
}

// groupBytes is about the memory of a group beside its registers.
const groupBytes = 16 << 10

// bytes returns roughly the memory that the worker holds.
func (w *worker) bytes() int {
	n := cap(w.shared) + len(w.local)
	for _, g := range w.groups {
		n += groupBytes + 8*len(g.memory)
	}
	return n
}

// pause informs the profiler that another worker has the core now.
func (w *worker) pause() {
	if w.profiler != nil {
		w.profiler.close()
	}
}

// end drops the launch's data.
func (w *worker) end() {
	if w.profiler != nil {
		w.profiler.flush(w.run.launch.Profile, w.prog)
	}
	w.run, w.watch = nil, nil
	clear(w.cache)
	clear(w.bound)
	w.texture.t = nil
}

// start readies the worker for a block.
func (w *worker) start(n uint64) {
	l := w.run.launch
	x, y := uint64(l.Grid[0]), uint64(l.Grid[1])
	w.ctaid = [3]uint32{uint32(n % x), uint32(n / x % y), uint32(n / x / y)}
	w.live = int(l.Block[0] * l.Block[1] * l.Block[2])
	if w.waiting {
		w.bars, w.waiting = [16]barrier{}, false
	}
	w.clustered = false
	clear(w.shared)
	w.order.begin(w.groups, l.Random, n)
	for _, g := range w.groups {
		g.begin(l.Block)
	}
}

// proceed runs the block until it is over, or has had a long turn.
func (w *worker) proceed() (over bool, f *Fault) {
	for turn, held := 0, 0; w.live > 0; turn++ {
		if turn > roundsPerTurn {
			return false, nil
		}
		ran := false
		w.spun, w.held, w.timed = false, false, false
		for _, g := range w.order.next() {
			if g.step() {
				ran = true
			}
			if g.fault != nil {
				return true, g.fault
			}
		}
		if w.live > 0 && w.run.cancelled() {
			return true, w.timeout()
		}
		if !ran && w.live > 0 && !w.unstick() {
			return true, w.newFault(ptx.ErrLaunchFailed, 0, w.stuckLine(), "deadlock: every thread waits at a barrier that cannot complete")
		}
		if w.spun {
			turn += spinWeight
		}
		if w.timed {
			turn += roundsPerTurn
		}
		if w.held { // of such rounds, as many as there may be behind a barrier count as one
			if held++; held%heldStores != 0 {
				turn--
			}
		}
	}
	return true, nil
}

// unstick releases threads that wait for threads at barriers: in warp instructions, or else at joins.
func (w *worker) unstick() bool {
	for _, g := range w.groups {
		if g.unpark() {
			return true
		}
	}
	for _, g := range w.groups {
		if g.release() || g.remind() && g.release() {
			return true
		}
	}
	return false
}

func (w *worker) stuckLine() int {
	for _, g := range w.groups {
		for _, f := range g.frags {
			if f.bar >= 0 {
				return int(w.prog.blocks[f.bar].Line)
			}
		}
	}
	return 0
}

func (w *worker) newFault(result int32, addr uint64, line int, msg string) *Fault {
	return &Fault{Result: result, Kernel: w.prog.Func.Name, Block: w.ctaid, Addr: addr, Line: line, Msg: msg}
}

func (w *worker) timeout() *Fault {
	f := w.newFault(ptx.ErrLaunchTimeout, 0, 0, "cancelled")
	for _, g := range w.groups {
		if n := len(g.frags); n > 0 {
			last := &g.frags[n-1]
			g.fault = f
			g.stoppedAt(last, &w.prog.blocks[last.pc], int(last.at))
			break
		}
	}
	return f
}

// ended removes threads from those that barriers wait for.
func (w *worker) ended(n int) {
	w.live -= n
	if w.clustered {
		w.meetCluster()
	}
	if !w.waiting {
		return
	}
	for id := range w.bars {
		if b := &w.bars[id]; b.used && w.full(b) {
			w.open(int32(id))
		}
	}
}

func (w *worker) full(b *barrier) bool {
	if b.count == 0 {
		return b.arrived >= w.live && b.arrived > 0
	}
	return b.arrived >= b.count
}

// arrive brings a fragment to a barrier; it reports whether the fragment waits
// there or was merged with others.
func (g *group) arrive(f *fragment, b *block) (gone bool) {
	m := g.taken(f, b)
	if m != f.m {
		return g.arrivePart(f, b, m)
	}
	w, op := g.w, b.Barrier
	if op.Cluster {
		return g.arriveCluster(f, b)
	}
	lane := g.act.lo
	id := g.scalar(op.Id, lane)
	if id >= uint32(len(w.bars)) {
		g.fail(b.Line, lane, ptx.ErrLaunchFailed, 0, "barrier number is above 15")
		return true
	}
	if op.Count.Kind == ir.Nowhere && op.Reduction == ptx.RN && !op.Arrive && !w.bars[id].used && g.alone(f) {
		g.begun()
		f.pc = b.Next
		return false
	}
	count := 0
	if op.Count.Kind != ir.Nowhere {
		if count = int(g.scalar(op.Count, lane)); count == 0 || count%ir.WarpLanes != 0 {
			g.fail(b.Line, lane, ptx.ErrLaunchFailed, 0, "thread count of a barrier is not a multiple of 32")
			return true
		}
	}
	bar := &w.bars[id]
	w.waiting = true
	if !bar.used {
		*bar = barrier{used: true, count: count, ands: true}
	}
	bar.arrived += g.arriving(&m, count > 0)
	if op.Reduction != ptx.RN {
		p := g.predicateOf(op.Pred, op.PredNot)
		yes := m.and(&p)
		bar.popc += yes.count()
		bar.ands = bar.ands && yes == m
		bar.ors = bar.ors || !yes.empty()
	}
	full := w.full(bar)
	f.pc = b.Next
	if op.Arrive {
		if full {
			w.open(int32(id))
		}
		return false
	}
	wait := *f
	wait.bar, wait.id = g.blockIndex(b), int32(id)
	g.frags = append(g.frags, wait)
	if full {
		w.open(int32(id))
	}
	return true
}

// alone reports whether a fragment has all living threads of the block.
func (g *group) alone(f *fragment) bool {
	return len(g.w.groups) == 1 && len(g.frags) == 0 && !g.w.order.random && f.m == g.live
}

// arrivePart handles a guarded barrier that only some threads come to: the others continue.
func (g *group) arrivePart(f *fragment, b *block, m mask) bool {
	if m.empty() {
		f.pc = b.Next
		return false
	}
	rest := *f
	rest.m = f.m.without(&m)
	rest.pc = b.Next
	g.frags = append(g.frags, rest)
	part := *f
	part.m = m
	g.act.set(&m)
	if !g.arrive(&part, b) {
		g.frags = append(g.frags, part)
	}
	return true
}

func (g *group) blockIndex(b *block) int32 { return b.Next - 1 }

// arriving counts threads as a barrier does: with an explicit count, a warp counts fully if all its
// living threads are there.
func (g *group) arriving(m *mask, warps bool) int {
	if !warps {
		return m.count()
	}
	n := 0
	for i := range ir.MaxLanes / ir.WarpLanes {
		switch part := m.warp(i); {
		case part == 0:
		case part == g.live.warp(i):
			n += ir.WarpLanes
		default:
			n += bits.OnesCount32(part)
		}
	}
	return n
}

// open releases all fragments that wait at a barrier. Threads of a group that continue at the same instruction form one
// fragment.
func (w *worker) open(id int32) {
	bar := w.bars[id]
	w.bars[id] = barrier{}
	for _, g := range w.groups {
		g.leave(id, &bar)
	}
}

func (g *group) leave(id int32, bar *barrier) {
	defer g.begun()
	if len(g.frags) == 1 && g.frags[0].bar >= 0 && g.frags[0].id == id { // all of its threads
		f := &g.frags[0]
		g.reduce(f, bar)
		f.bar = runnable
		return
	}
	kept := g.frags[:0]
	var merged [4]fragment // almost always one
	n := 0
	for _, f := range g.frags {
		if f.bar < 0 || f.id != id {
			kept = append(kept, f)
			continue
		}
		g.reduce(&f, bar)
		f.bar = runnable
		k := 0
		for k < n && (merged[k].pc != f.pc || merged[k].join != f.join) {
			k++
		}
		switch {
		case k < n:
			merged[k].m = merged[k].m.or(&f.m)
		case n < len(merged):
			merged[n] = f
			n++
		default:
			kept = append(kept, f)
		}
	}
	g.frags = append(kept, merged[:n]...)
}

// reduce gives the threads of a fragment the result of bar.red.
func (g *group) reduce(f *fragment, bar *barrier) {
	op := g.w.prog.blocks[f.bar].Barrier
	var yes bool
	switch op.Reduction {
	case ptx.Popc:
		for l := range ir.MaxLanes {
			if f.m.has(l) {
				d, _ := g.row(op.Dst)
				arith.Put32(d, l, uint32(bar.popc))
			}
		}
		return
	case ptx.And:
		yes = bar.ands
	case ptx.Or:
		yes = bar.ors
	default:
		return
	}
	var r mask
	if yes {
		r = f.m
	}
	g.preds[op.Dst.Slot].blend(&r, &f.m)
}
