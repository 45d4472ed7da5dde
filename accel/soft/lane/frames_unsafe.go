package lane

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"pegasus/accel/ptx"
)

// A function that isn't inlined is compiled once in a program. Its caller saves values that are alive across the call
// in the frame of its threads, as all functions share the slots. The threads of a fragment call together, each function
// that they call as a fragment of its own; a join at the call awaits their return. Joins are the call stack, so that no
// write of a kernel to its memory changes the address that it returns to.

// Addresses of functions: each image has a span of the window.
const (
	codeSpan  = 1 << 20
	maxImages = 1<<28 - 1
)

// Stacks. Frames are a multiple of frameUnit, more than a join takes in memory
// or nearly so.
const (
	leastStack = 64 << 10
	frameUnit  = 64
	maxFrame   = 1 << 20
)

var images atomic.Uint64 // that were loaded

// functionAddress returns the address of a function.
func (im *Image) functionAddress(f *ptx.Func) uint64 {
	i, _ := slices.BinarySearchFunc(im.module.Pointed, f.Name, func(g *ptx.Func, name string) int {
		switch {
		case g.Name < name:
			return -1
		case g.Name > name:
			return 1
		}
		return 0
	})
	return im.code + codeStep*uint64(i)
}

// valueOf returns the address that an initialiser refers to.
func (im *Image) valueOf(r *ptx.Ref) uint64 {
	if r.Func != nil {
		return im.functionAddress(r.Func)
	}
	return im.address[r.Var] + uint64(r.Add)
}

// frames is the layout of the frames of a body's units, for the lowering.
type frames struct {
	units  []ptx.Unit
	index  map[*ptx.Func]int
	unit   int   // being lowered
	size   []int // by unit, with the saved values
	calls  []*callOp
	allocs []*allocaOp
}

func newFrames(b *ptx.Body) frames {
	f := frames{units: b.Units, index: map[*ptx.Func]int{}, size: make([]int, len(b.Units))}
	for i, u := range b.Units {
		f.index[u.Func] = i
		f.size[i] = int(u.Frame)
	}
	return f
}

// enter records the unit of the block that is lowered now.
func (f *frames) enter(b *ptx.Block) {
	for f.unit+1 < len(f.units) && f.units[f.unit+1].First <= b.First {
		f.unit++
	}
}

// transfer lowers a call of a function that isn't inlined.
func (l *lowerer) transfer(in *ptx.Inst) *callOp {
	c := &in.Args[0]
	op := &callOp{unit: l.frames.unit, callee: -1, base: l.image.code}
	if c.Reg != ptx.None {
		op.target = l.reg(c.Reg)
	} else {
		op.callee = l.frames.index[c.Func]
	}
	for i := range c.Elems {
		o := &c.Elems[i]
		if o.Kind == ptx.Sink {
			continue
		}
		list, param := &op.returned, &c.Func.Returns
		k := i
		if i >= c.Returns {
			list, param, k = &op.passed, &c.Func.Params, i-c.Returns
		}
		m := move{int(o.Var.Offset), int(o.Imm), min(int(o.Var.Size), (*param)[k].Size)}
		op.passing = max(op.passing, m.callee+m.size)
		*list = append(*list, m)
	}
	l.frames.calls = append(l.frames.calls, op)
	return op
}

// resume begins the block that a call returns to; the block before ends with the call.
func (l *lowerer) resume(index int) {
	if index == 0 || l.prog.blocks[index-1].ending != calls {
		return
	}
	op := l.prog.blocks[index-1].call
	live, ok := l.slots.Across[index-1]
	if !ok {
		l.fail("too many registers are alive across calls")
		return
	}
	at := int(l.frames.units[op.unit].Frame)
	for _, kind := range []placeKind{row64, row32, predicate} {
		for _, r := range live {
			if p := l.reg(r); p.kind == kind {
				op.saved = append(op.saved, saved{p, at})
				at += [...]int{row32: 4, row64: 8, predicate: 1}[kind]
			}
		}
	}
	if l.prog.taken.kind != nowhere { // the callee frees its own
		op.saved = append(op.saved, saved{l.prog.taken, at})
		at += 4
	}
	l.frames.size[op.unit] = max(l.frames.size[op.unit], at)
	l.emit(irInstr{op: irResume, detail: op})
}

// place determines the sizes of frames and the first blocks of functions.
func (l *lowerer) place(blocks []ptx.Block) {
	f := &l.frames
	if len(f.calls) == 0 {
		l.prog.local = f.size[0]
		for _, op := range f.allocs {
			op.frame = f.size[0]
		}
		return
	}
	starts := make([]start, len(f.units))
	unit := 0
	for k := range blocks {
		if unit < len(f.units) && blocks[k].First == f.units[unit].First {
			starts[unit].block = k
			unit++
		}
	}
	for i := range starts {
		starts[i].frame = max((f.size[i]+frameUnit-1)&^(frameUnit-1), frameUnit)
		if starts[i].frame > maxFrame {
			l.fail("function %s needs too large a frame", f.units[i].Func.Name)
		}
	}
	for _, op := range f.allocs {
		op.frame = starts[op.unit].frame
	}
	callees := make([][]int, len(f.units))
	for _, op := range f.calls {
		op.frame = starts[op.unit].frame
		if op.callee >= 0 {
			op.to = starts[op.callee]
			callees[op.unit] = append(callees[op.unit], op.callee)
		}
		l.prog.stacked = l.prog.stacked || op.callee < 0
	}
	for _, g := range l.image.module.Pointed {
		e := start{block: -1}
		if i, ok := f.index[g]; ok {
			e = starts[i]
		}
		l.prog.starts = append(l.prog.starts, e)
	}
	d := depths{callees: callees, starts: starts, known: make([]int, len(f.units))}
	l.prog.local = d.of(0)
	l.prog.stacked = l.prog.stacked || d.loops
}

// depths computes the local memory that calls need, recursion apart.
type depths struct {
	callees [][]int
	starts  []start
	known   []int // 0: not yet, -1: being found
	loops   bool  // a function calls itself
}

func (d *depths) of(unit int) int {
	switch d.known[unit] {
	case -1:
		d.loops = true
		return 0
	case 0:
		d.known[unit] = -1
		below := 0
		for _, c := range d.callees[unit] {
			below = max(below, d.of(c))
		}
		d.known[unit] = d.starts[unit].frame + below
	}
	return d.known[unit]
}

// variableAddress returns the place of the address of a variable.
func (l *lowerer) variableAddress(o *ptx.Operand) place {
	at := l.address(o.Var) + o.Imm
	if !o.Var.Framed {
		return l.constant(at)
	}
	d := l.temp(place{kind: single}, true)
	l.emit(irInstr{op: irFrame, d: d, imm: at})
	return d
}

// runFrame computes an address within the frame.
func runFrame(g *group, in *instr) { g.uniform[in.d.slot] = uint64(g.sp) + in.imm }

// depth returns the bytes of local memory of a thread of a launch.
func (p *program) depth(l *Launch) int {
	if !p.stacked {
		return p.local
	}
	room := MaxLocalBytes / int(l.Block[0]*l.Block[1]*l.Block[2])
	n := min(p.local+int(min(max(l.Stack, leastStack), MaxLocalBytes)), room)
	// An odd multiple, so that the stacks do not fall into the same cache sets.
	return max(((n/frameUnit-1)|1)*frameUnit, p.local)
}

// function returns the function at an offset from the first one's address.
func (p *program) function(off uint64) (start, bool) {
	i := off / codeStep
	if off%codeStep != 0 || i >= uint64(len(p.starts)) {
		return start{}, false
	}
	return p.starts[i], p.starts[i].block >= 0
}

// call moves a fragment into a function, or splits it by the functions that its threads call, or fails.
func (g *group) call(f *fragment, b *block) (gone bool) {
	op := b.call
	in := fragment{m: f.m, bar: runnable, sp: f.sp + op.frame}
	if !g.fits(in.sp+op.passing, b) {
		return true
	}
	g.save(op)
	in.join = g.newJoin(join{pc: b.next, outer: f.join, expected: f.m, call: true, sp: f.sp})
	if op.target.kind == nowhere {
		in.pc = int32(op.to.block)
		*f, g.sp = in, in.sp
		return !g.fits(in.sp+op.to.frame, b)
	}
	row, step := g.row(op.target)
	for rest := in.m; !rest.empty(); rest = rest.without(&in.m) {
		lane := first(&rest)
		addr := get64(row, step, lane)
		to, ok := g.w.prog.function(addr - op.base)
		if !ok {
			g.fail(b.line, lane, ptx.ErrInvalidPC, addr, "call of an address where no function of the module begins")
			return true
		}
		if !g.fits(in.sp+to.frame, b) {
			return true
		}
		in.pc, in.m = int32(to.block), holding(&rest, row, step, addr)
		if in.m == f.m {
			*f, g.sp = in, in.sp
			return false
		}
		g.frags = append(g.frags, in)
	}
	return true
}

// holding returns the part of a set of lanes that have a value.
func holding(m *mask, row unsafe.Pointer, step int, value uint64) (part mask) {
	for l := range maxLanes {
		if m.has(l) && get64(row, step, l) == value {
			part[l>>6] |= 1 << (l & 63)
		}
	}
	return part
}

// fits fails if the stack has less than n bytes.
func (g *group) fits(n int, b *block) bool {
	if n <= g.w.depth && g.room(n) {
		return true
	}
	g.fail(b.line, g.act.lo, ptx.ErrHardwareStack, 0, fmt.Sprintf("stack overflow: calls need more than the %d bytes that a thread has", g.w.depth))
	return false
}

// back lets threads return to the call of their function. It reports whether the fragment has none left.
func (g *group) back(f *fragment, b *block) (gone bool) {
	t := g.taken(f, b)
	if t.empty() {
		f.pc = b.next
		return false
	}
	i := f.join
	for !g.joins[i].call { // joins within the function await them no more
		j := &g.joins[i]
		j.expected = j.expected.without(&t)
		outer := j.outer
		g.complete(i)
		i = outer
	}
	j := &g.joins[i]
	if t == f.m && t == j.expected {
		*f = fragment{m: t, pc: j.pc, join: j.outer, bar: runnable, sp: j.sp}
		g.sp = j.sp
		g.drop(i)
		return false
	}
	j.arrived = j.arrived.or(&t)
	g.complete(i)
	f.m = f.m.without(&t)
	if f.m.empty() {
		return true
	}
	g.act.set(&f.m)
	f.pc = b.next
	return false
}

// save stores values that are alive across a call in the frame, and passes arguments.
func (g *group) save(op *callOp) {
	lanes := g.act.lanes()
	for _, s := range op.saved {
		if s.place.kind == predicate {
			m := &g.preds[s.place.slot]
			for _, l := range lanes {
				g.frame(l)[s.at] = byte(pick(m.has(int(l)), 0, 1))
			}
			continue
		}
		row, step := g.row(s.place)
		for _, l := range lanes {
			if to := g.frame(l)[s.at:]; step == 8 {
				binary.LittleEndian.PutUint64(to, get64(row, step, int(l)))
			} else {
				binary.LittleEndian.PutUint32(to, get32(row, step, int(l)))
			}
		}
	}
	for _, m := range op.passed {
		for _, l := range lanes {
			own := g.frame(l)
			copy(own[op.frame+m.callee:], own[m.caller:m.caller+m.size])
		}
	}
}

// runResume restores the saved values after a call.
func runResume(g *group, in *instr) {
	op := in.detail.(*callOp)
	lanes := g.act.lanes()
	for _, s := range op.saved {
		if s.place.kind == predicate {
			var m mask
			for _, l := range lanes {
				m[l>>6] |= uint64(g.frame(l)[s.at]&1) << (l & 63)
			}
			g.preds[s.place.slot].blend(&m, &g.act.m)
			continue
		}
		row, step := g.row(s.place)
		for _, l := range lanes {
			if from := g.frame(l)[s.at:]; step == 8 {
				put64(row, int(l), binary.LittleEndian.Uint64(from))
			} else {
				put32(row, int(l), binary.LittleEndian.Uint32(from))
			}
		}
	}
	for _, m := range op.returned {
		for _, l := range lanes {
			own := g.frame(l)
			copy(own[m.caller:], own[op.frame+m.callee:op.frame+m.callee+m.size])
		}
	}
}

// frame returns the local memory of a lane from its frame on.
func (g *group) frame(lane uint8) []byte {
	from := (g.first + int(lane)) * g.w.depth
	return g.w.local[from+g.sp : from+g.w.depth]
}
