package exec

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// A function that isn't inlined is compiled once in a program. Its caller saves values that are alive across the call
// in the frame of its threads, as all functions share the slots. The threads of a fragment call together, each function
// that they call as a fragment of its own; a join at the call awaits their return. Joins are the call stack, so that no
// write of a kernel to its memory changes the address that it returns to.

// leastStack is the least stack of a thread, in bytes.
const leastStack = 64 << 10

// runFrame computes an address within the frame.
func runFrame(g *group, in *instr) { g.uniform[in.Dst.Slot] = uint64(g.sp) + in.Imm }

// depth returns the bytes of local memory of a thread of a launch.
func (p *Program) depth(l *Launch) int {
	if !p.NeedsStack {
		return p.LocalBytes
	}
	room := MaxLocalBytes / int(l.Block[0]*l.Block[1]*l.Block[2])
	n := min(p.LocalBytes+int(min(max(l.Stack, leastStack), MaxLocalBytes)), room)
	// An odd multiple, so that the stacks do not fall into the same cache sets.
	return max(((n/ir.FrameUnit-1)|1)*ir.FrameUnit, p.LocalBytes)
}

// function returns the function at an offset from the first one's address.
func (p *Program) function(off uint64) (ir.FunctionStart, bool) {
	i := off / ir.CodeStep
	if off%ir.CodeStep != 0 || i >= uint64(len(p.Starts)) {
		return ir.FunctionStart{}, false
	}
	return p.Starts[i], p.Starts[i].Block >= 0
}

// call moves a fragment into a function, or splits it by the functions that its threads call, or fails.
func (g *group) call(f *fragment, b *block) (gone bool) {
	op := b.Call
	in := fragment{m: f.m, bar: runnable, sp: f.sp + op.Frame}
	if !g.fits(in.sp+op.PassedBytes, b) {
		return true
	}
	g.save(op)
	in.join = g.newJoin(join{pc: b.Next, outer: f.join, expected: f.m, call: true, sp: f.sp})
	if op.Target.Kind == ir.Nowhere {
		in.pc = int32(op.Start.Block)
		*f, g.sp = in, in.sp
		return !g.fits(in.sp+op.Start.Frame, b)
	}
	row, step := g.row(op.Target)
	for rest := in.m; !rest.empty(); rest = rest.without(&in.m) {
		lane := first(&rest)
		addr := arith.Get64(row, step, lane)
		to, ok := g.w.prog.function(addr - op.Base)
		if !ok {
			g.fail(b.Line, lane, ptx.ErrInvalidPC, addr, "call of an address where no function of the module begins")
			return true
		}
		if !g.fits(in.sp+to.Frame, b) {
			return true
		}
		in.pc, in.m = int32(to.Block), holding(&rest, row, step, addr)
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
	for l := range ir.MaxLanes {
		if m.has(l) && arith.Get64(row, step, l) == value {
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
	g.fail(b.Line, g.act.lo, ptx.ErrHardwareStack, 0, fmt.Sprintf("stack overflow: calls need more than the %d bytes that a thread has", g.w.depth))
	return false
}

// back lets threads return to the call of their function. It reports whether the fragment has none left.
func (g *group) back(f *fragment, b *block) (gone bool) {
	t := g.taken(f, b)
	if t.empty() {
		f.pc = b.Next
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
	f.pc = b.Next
	return false
}

// save stores values that are alive across a call in the frame, and passes arguments.
func (g *group) save(op *ir.Call) {
	lanes := g.act.lanes()
	for _, s := range op.Saved {
		if s.Place.Kind == ir.Predicate {
			m := &g.preds[s.Place.Slot]
			for _, l := range lanes {
				g.frame(l)[s.At] = byte(arith.Pick(m.has(int(l)), 0, 1))
			}
			continue
		}
		row, step := g.row(s.Place)
		for _, l := range lanes {
			if to := g.frame(l)[s.At:]; step == 8 {
				binary.LittleEndian.PutUint64(to, arith.Get64(row, step, int(l)))
			} else {
				binary.LittleEndian.PutUint32(to, arith.Get32(row, step, int(l)))
			}
		}
	}
	for _, m := range op.Passed {
		for _, l := range lanes {
			own := g.frame(l)
			copy(own[op.Frame+m.Callee:], own[m.Caller:m.Caller+m.Size])
		}
	}
}

// runResume restores the saved values after a call.
func runResume(g *group, in *instr) {
	op := in.Detail.(*ir.Call)
	lanes := g.act.lanes()
	for _, s := range op.Saved {
		if s.Place.Kind == ir.Predicate {
			var m mask
			for _, l := range lanes {
				m[l>>6] |= uint64(g.frame(l)[s.At]&1) << (l & 63)
			}
			g.preds[s.Place.Slot].blend(&m, &g.act.m)
			continue
		}
		row, step := g.row(s.Place)
		for _, l := range lanes {
			if from := g.frame(l)[s.At:]; step == 8 {
				arith.Put64(row, int(l), binary.LittleEndian.Uint64(from))
			} else {
				arith.Put32(row, int(l), binary.LittleEndian.Uint32(from))
			}
		}
	}
	for _, m := range op.Returned {
		for _, l := range lanes {
			own := g.frame(l)
			copy(own[m.Caller:], own[op.Frame+m.Callee:op.Frame+m.Callee+m.Size])
		}
	}
}

// frame returns the local memory of a lane from its frame on.
func (g *group) frame(lane uint8) []byte {
	from := (g.first + int(lane)) * g.w.depth
	return g.w.local[from+g.sp : from+g.w.depth]
}
