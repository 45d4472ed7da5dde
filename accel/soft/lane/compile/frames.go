package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/ir"
)

// maxFrame bounds a frame, in bytes.
const maxFrame = 1 << 20

// frames is the layout of the frames of a body's units, for the lowering.
type frames struct {
	units  []ptx.Unit
	index  map[*ptx.Func]int
	unit   int   // being lowered
	size   []int // by unit, with the saved values
	calls  []*ir.Call
	allocs []*ir.Alloca
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
func (l *lowerer) transfer(in *ptx.Inst) *ir.Call {
	c := &in.Args[0]
	op := &ir.Call{Unit: l.frames.unit, Callee: -1, Base: l.layout.code}
	if c.Reg != ptx.None {
		op.Target = l.reg(c.Reg)
	} else {
		op.Callee = l.frames.index[c.Func]
	}
	for i := range c.Elems {
		o := &c.Elems[i]
		if o.Kind == ptx.Sink {
			continue
		}
		list, param := &op.Returned, &c.Func.Returns
		k := i
		if i >= c.Returns {
			list, param, k = &op.Passed, &c.Func.Params, i-c.Returns
		}
		m := ir.FrameCopy{Caller: int(o.Var.Offset), Callee: int(o.Imm), Size: min(int(o.Var.Size), (*param)[k].Size)}
		op.PassedBytes = max(op.PassedBytes, m.Callee+m.Size)
		*list = append(*list, m)
	}
	l.frames.calls = append(l.frames.calls, op)
	return op
}

// resume begins the block that a call returns to; the block before ends with the call.
func (l *lowerer) resume(index int) {
	if index == 0 || l.prog.Blocks[index-1].Ending != ir.Calls {
		return
	}
	op := l.prog.Blocks[index-1].Call
	live, ok := l.slots.Across[index-1]
	if !ok {
		l.fail("too many registers are alive across calls")
		return
	}
	at := int(l.frames.units[op.Unit].Frame)
	for _, kind := range []ir.Kind{ir.Row64, ir.Row32, ir.Predicate} {
		for _, r := range live {
			if p := l.reg(r); p.Kind == kind {
				op.Saved = append(op.Saved, ir.SavedPlace{Place: p, At: at})
				at += [...]int{ir.Row32: 4, ir.Row64: 8, ir.Predicate: 1}[kind]
			}
		}
	}
	if l.prog.AllocaRow.Kind != ir.Nowhere { // the callee frees its own
		op.Saved = append(op.Saved, ir.SavedPlace{Place: l.prog.AllocaRow, At: at})
		at += 4
	}
	l.frames.size[op.Unit] = max(l.frames.size[op.Unit], at)
	l.emit(ir.Instr{Op: ir.OpResume, Detail: op})
}

// place determines the sizes of frames and the first blocks of functions.
func (l *lowerer) place(blocks []ptx.Block) {
	f := &l.frames
	if len(f.calls) == 0 {
		l.prog.LocalBytes = f.size[0]
		for _, op := range f.allocs {
			op.Frame = f.size[0]
		}
		return
	}
	starts := make([]ir.FunctionStart, len(f.units))
	unit := 0
	for k := range blocks {
		if unit < len(f.units) && blocks[k].First == f.units[unit].First {
			starts[unit].Block = k
			unit++
		}
	}
	for i := range starts {
		starts[i].Frame = max((f.size[i]+ir.FrameUnit-1)&^(ir.FrameUnit-1), ir.FrameUnit)
		if starts[i].Frame > maxFrame {
			l.fail("function %s needs too large a frame", f.units[i].Func.Name)
		}
	}
	for _, op := range f.allocs {
		op.Frame = starts[op.Unit].Frame
	}
	callees := make([][]int, len(f.units))
	for _, op := range f.calls {
		op.Frame = starts[op.Unit].Frame
		if op.Callee >= 0 {
			op.Start = starts[op.Callee]
			callees[op.Unit] = append(callees[op.Unit], op.Callee)
		}
		l.prog.NeedsStack = l.prog.NeedsStack || op.Callee < 0
	}
	for _, g := range l.layout.Module.Pointed {
		e := ir.FunctionStart{Block: -1}
		if i, ok := f.index[g]; ok {
			e = starts[i]
		}
		l.prog.Starts = append(l.prog.Starts, e)
	}
	d := depths{callees: callees, starts: starts, known: make([]int, len(f.units))}
	l.prog.LocalBytes = d.of(0)
	l.prog.NeedsStack = l.prog.NeedsStack || d.loops
}

// depths computes the local memory that calls need, recursion apart.
type depths struct {
	callees [][]int
	starts  []ir.FunctionStart
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
		d.known[unit] = d.starts[unit].Frame + below
	}
	return d.known[unit]
}

// variableAddress returns the place of the address of a variable.
func (l *lowerer) variableAddress(o *ptx.Operand) ir.Place {
	at := l.address(o.Var) + o.Imm
	if !o.Var.Framed {
		return l.constant(at)
	}
	d := l.temp(ir.Place{Kind: ir.Single}, true)
	l.emit(ir.Instr{Op: ir.OpFrame, Dst: d, Imm: at})
	return d
}
