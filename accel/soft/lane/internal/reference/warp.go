package reference

import (
	"iter"
	"math/big"
)

const warpSize = 32

// thread is the state of one thread.
type thread struct {
	number int // in the block
	tid    [3]int
	regs   []uint64
	local  []byte
	carry  bool
	ended  bool
}

// block is a running block.
type block struct {
	*Kernel
	launch *Launch
	ctaid  [3]int
	shared []byte
	warps  []*warp
}

// warp is up to 32 threads; a mask has a bit for each.
type warp struct {
	*block
	threads []*thread
	wait    func(arrival)
}

// arrival is a warp's arrival at a barrier. The warp waits there until release.
type arrival struct {
	id, count int
	threads   []*thread
	arrive    bool // does not wait
	popc      int
	ands, ors bool
	release   func(popc int, ands, ors bool)
}

func runBlock(k *Kernel, l *Launch, ctaid [3]int) {
	b := &block{Kernel: k, launch: l, ctaid: ctaid, shared: make([]byte, k.shared)}
	n := l.Block[0] * l.Block[1] * l.Block[2]
	for i := range n {
		t := &thread{number: i, regs: make([]uint64, len(k.widths)), local: make([]byte, k.local)}
		t.tid = [3]int{i % l.Block[0], i / l.Block[0] % l.Block[1], i / l.Block[0] / l.Block[1]}
		if i%warpSize == 0 {
			b.warps = append(b.warps, &warp{block: b})
		}
		w := b.warps[i/warpSize]
		w.threads = append(w.threads, t)
	}
	b.schedule()
}

// schedule runs each warp up to its next barrier, repeatedly.
func (b *block) schedule() {
	type coroutine struct {
		next func() (arrival, bool)
		at   *arrival
		done bool
	}
	list := make([]coroutine, len(b.warps))
	for i, w := range b.warps {
		next, stop := iter.Pull(w.arrivals())
		defer stop()
		list[i].next = next
	}
	var arrived [16][]*arrival
	for {
		ran := false
		for i := range list {
			c := &list[i]
			if c.done || c.at != nil {
				continue
			}
			ran = true
			a, ok := c.next()
			if !ok {
				c.done = true
				continue
			}
			arrived[a.id] = append(arrived[a.id], &a)
			if !a.arrive {
				c.at = &a
			}
		}
		for id := range arrived {
			if !b.full(arrived[id]) {
				continue
			}
			open(arrived[id])
			for i := range list {
				if a := list[i].at; a != nil && a.id == id {
					list[i].at = nil
				}
			}
			arrived[id], ran = nil, true
		}
		if !ran {
			break
		}
	}
	for i := range list {
		if !list[i].done {
			fail("deadlock at a barrier")
		}
	}
}

// full reports whether all have arrived that a barrier awaits: a number of
// threads, in whole warps, or all that live.
func (b *block) full(list []*arrival) bool {
	if len(list) == 0 {
		return false
	}
	n, count := 0, list[0].count
	for _, a := range list {
		if count > 0 {
			n += warpSize
		} else {
			n += len(a.threads)
		}
	}
	if count > 0 {
		return n >= count
	}
	for _, w := range b.warps {
		for _, t := range w.threads {
			if !t.ended {
				n--
			}
		}
	}
	return n == 0
}

func open(list []*arrival) {
	popc, ands, ors := 0, true, false
	for _, a := range list {
		popc, ands, ors = popc+a.popc, ands && a.ands, ors || a.ors
	}
	for _, a := range list {
		a.release(popc, ands, ors)
	}
}

func (w *warp) arrivals() iter.Seq[arrival] {
	return func(yield func(arrival) bool) {
		w.wait = func(a arrival) {
			if !yield(a) {
				fail("stopped")
			}
		}
		defer func() {
			// The consumer stops early only after another failure.
			if p := recover(); p != nil {
				if q, ok := p.(problem); ok && q.err.Error() == "stopped" {
					return
				}
				panic(p)
			}
		}()
		w.run(0, len(w.code), ^uint32(0)>>(warpSize-len(w.threads)))
	}
}

// maxSteps bounds the instructions of a warp between two joins: random
// programs end by then.
const maxSteps = 1 << 16

// run executes the threads of the mask from pc until they come to stop, and returns those that came. Threads that part
// meet where they must.
func (w *warp) run(pc, stop int, mask uint32) uint32 {
	for steps := 0; pc != stop && mask != 0; steps++ {
		if steps > maxSteps {
			fail("endless loop")
		}
		in := &w.code[pc]
		holds := w.guarded(in, mask)
		switch in.op {
		case "bra":
			switch holds {
			case mask:
				pc = in.target
			case 0:
				pc++
			default:
				join := w.joins[pc]
				a := w.run(in.target, join, holds)
				b := w.run(pc+1, join, mask&^holds)
				mask, pc = a|b, join
			}
			continue
		case "exit", "ret":
			for _, t := range w.lanes(holds) {
				t.ended = true
			}
			mask &^= holds
		default:
			if holds != 0 {
				w.execute(in, holds)
			}
		}
		pc++
	}
	return mask
}

// guarded returns the threads of the mask that execute the instruction.
func (w *warp) guarded(in *inst, mask uint32) uint32 {
	if in.guard < 0 {
		return mask
	}
	var m uint32
	for i, t := range w.threads {
		if mask>>i&1 != 0 && (t.regs[in.guard] != 0) != in.not {
			m |= 1 << i
		}
	}
	return m
}

func (w *warp) lanes(mask uint32) (list []*thread) {
	for i, t := range w.threads {
		if mask>>i&1 != 0 {
			list = append(list, t)
		}
	}
	return list
}

func (t *thread) lane() int { return t.number % warpSize }

// execute runs an instruction for the threads of mask. An instruction that reads other threads' registers runs for all
// of them at once; every other instruction runs for one thread after the other.
func (w *warp) execute(in *inst, mask uint32) {
	lanes := w.lanes(mask)
	switch in.op {
	case "bar", "barrier":
		if !in.mods["warp"] {
			w.barrier(in, lanes)
		}
	case "shfl":
		w.shuffle(in, lanes, mask)
	case "vote", "activemask":
		w.eachSet(in, lanes, func(lanes []*thread, mask uint32) { w.vote(in, lanes, mask) })
	case "match":
		w.eachSet(in, lanes, func(lanes []*thread, mask uint32) { w.match(in, lanes, mask) })
	case "redux":
		w.eachSet(in, lanes, func(lanes []*thread, mask uint32) { w.redux(in, lanes, mask) })
	case "mma", "ldmatrix", "movmatrix":
		w.matrices(in, lanes)
	default:
		for _, t := range lanes {
			w.one(in, t)
		}
	}
}

func (w *warp) barrier(in *inst, lanes []*thread) {
	args := in.args
	a := arrival{threads: lanes, arrive: in.mods["arrive"], ands: true, release: func(int, bool, bool) {}}
	if in.mods["red"] {
		d, p := &args[0], &args[len(args)-1]
		args = args[1 : len(args)-1]
		for _, t := range lanes {
			if yes := w.holds(t, p); yes {
				a.popc++
				a.ors = true
			} else {
				a.ands = false
			}
		}
		a.release = func(popc int, ands, ors bool) {
			for _, t := range lanes {
				switch {
				case in.mods["popc"]:
					w.write(t, d, uint64(popc))
				case in.mods["and"]:
					w.write(t, d, bit(ands))
				default:
					w.write(t, d, bit(ors))
				}
			}
		}
	}
	u32 := typ{'u', 32}
	if len(args) > 0 {
		a.id = int(w.read(lanes[0], &args[0], u32))
	}
	if len(args) > 1 {
		a.count = int(w.read(lanes[0], &args[1], u32))
	}
	w.wait(a)
}

// shuffle follows the manual's text for shfl: bval is the lane or the difference, cval the last lane, segmask the bits
// of the lane that stay.
func (w *warp) shuffle(in *inst, lanes []*thread, mask uint32) {
	u32 := typ{'u', 32}
	old := map[int]uint64{}
	for _, t := range lanes {
		old[t.lane()] = w.read(t, &in.args[1], u32)
	}
	for _, t := range lanes {
		bval, c := int(w.read(t, &in.args[2], u32)&31), int(w.read(t, &in.args[3], u32))
		cval, segmask := c&31, c>>8&31
		lane := t.lane()
		maxLane := lane&segmask | cval&^segmask
		minLane := lane & segmask
		var j int
		var p bool
		switch {
		case in.mods["up"]:
			j = lane - bval
			p = j >= maxLane
		case in.mods["down"]:
			j = lane + bval
			p = j <= maxLane
		case in.mods["bfly"]:
			j = lane ^ bval
			p = j <= maxLane
		default:
			j = minLane | bval&^segmask
			p = j <= maxLane
		}
		if !p {
			j = lane
		}
		if mask>>j&1 == 0 {
			undefined("shfl from a lane that does not take part")
		}
		w.write(t, &in.args[0], old[j])
		if in.args[0].pair >= 0 {
			t.regs[in.args[0].pair] = bit(p)
		}
	}
}

// members returns the participants: the threads that are here, and in the mask that all of the lanes have.
func (w *warp) members(o *operand, lanes []*thread, mask uint32) uint32 {
	return mask & uint32(w.read(lanes[0], o, typ{'u', 32}))
}

// eachSet calls f for threads that are here with the same mask.
func (w *warp) eachSet(in *inst, lanes []*thread, f func(lanes []*thread, mask uint32)) {
	sets := map[uint64][]*thread{}
	for _, t := range lanes {
		named := uint64(0)
		if in.mods["sync"] {
			named = w.read(t, &in.args[2], typ{'u', 32})
		}
		sets[named] = append(sets[named], t)
	}
	for _, set := range sets {
		var mask uint32
		for _, t := range set {
			mask |= 1 << t.lane()
		}
		f(set, mask)
	}
}

func (w *warp) vote(in *inst, lanes []*thread, mask uint32) {
	if in.op == "activemask" {
		for _, t := range lanes {
			w.write(t, &in.args[0], uint64(mask))
		}
		return
	}
	members := mask
	if in.mods["sync"] {
		members = w.members(&in.args[2], lanes, mask)
	}
	var yes uint32
	for _, t := range lanes {
		if members>>t.lane()&1 != 0 && w.holds(t, &in.args[1]) {
			yes |= 1 << t.lane()
		}
	}
	for _, t := range lanes {
		switch {
		case in.mods["all"]:
			w.write(t, &in.args[0], bit(yes == members))
		case in.mods["any"]:
			w.write(t, &in.args[0], bit(yes != 0))
		case in.mods["uni"]:
			w.write(t, &in.args[0], bit(yes == 0 || yes == members))
		default:
			w.write(t, &in.args[0], uint64(yes))
		}
	}
}

func (w *warp) match(in *inst, lanes []*thread, mask uint32) {
	members := w.members(&in.args[2], lanes, mask)
	values := map[uint64]uint32{}
	of := map[*thread]uint64{}
	for _, t := range lanes {
		of[t] = w.read(t, &in.args[1], in.types[0])
		if members>>t.lane()&1 != 0 {
			values[of[t]] |= 1 << t.lane()
		}
	}
	for _, t := range lanes {
		m := values[of[t]]
		if in.mods["all"] && m != members {
			m = 0
		}
		w.write(t, &in.args[0], uint64(m))
		if in.args[0].pair >= 0 {
			t.regs[in.args[0].pair] = bit(m != 0)
		}
	}
}

func (w *warp) redux(in *inst, lanes []*thread, mask uint32) {
	members := w.members(&in.args[2], lanes, mask)
	t := in.types[0]
	var all *big.Int
	for _, l := range lanes {
		if members>>l.lane()&1 == 0 {
			continue
		}
		v := whole(w.read(l, &in.args[1], t), t)
		if all == nil {
			all = v
			continue
		}
		all = reduce(in, all, v)
	}
	for _, l := range lanes {
		w.write(l, &in.args[0], wrap(all, 32))
	}
}

// reduce combines two values by the operation that an instruction names.
func reduce(in *inst, a, b *big.Int) *big.Int {
	z := new(big.Int)
	switch {
	case in.mods["add"]:
		return z.Add(a, b)
	case in.mods["and"]:
		return z.And(a, b)
	case in.mods["or"]:
		return z.Or(a, b)
	case in.mods["xor"]:
		return z.Xor(a, b)
	case in.mods["min"] == (a.Cmp(b) < 0):
		return a
	}
	return b
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// specialValue reads a special register.
func (w *warp) specialValue(t *thread, name string) uint64 {
	axis := int(name[len(name)-1] - 'x')
	lane := uint64(1) << t.lane()
	switch name {
	case "%tid.x", "%tid.y", "%tid.z":
		return uint64(t.tid[axis])
	case "%ntid.x", "%ntid.y", "%ntid.z":
		return uint64(w.launch.Block[axis])
	case "%ctaid.x", "%ctaid.y", "%ctaid.z":
		return uint64(w.ctaid[axis])
	case "%nctaid.x", "%nctaid.y", "%nctaid.z":
		return uint64(w.launch.Grid[axis])
	case "%laneid":
		return uint64(t.lane())
	case "%warpid":
		return uint64(t.number / warpSize)
	case "%lanemask_eq":
		return lane
	case "%lanemask_lt":
		return lane - 1
	case "%lanemask_le":
		return 2*lane - 1
	case "%lanemask_gt":
		return 1<<32 - 2*lane
	case "%lanemask_ge":
		return 1<<32 - lane
	}
	fail("special register %s", name)
	return 0
}
