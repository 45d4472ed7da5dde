package ptx

import (
	"fmt"
	"slices"
)

// Body is a kernel with all functions that it calls: the input of an engine's compiler.
type Body struct {
	Func   *Func
	Regs   []Type
	Insts  []Inst
	Units  []Unit // in the order of Insts, the kernel first
	Shared int64  // bytes of static shared memory
}

// Unit is a range of instructions that is executed with a frame of its own: the kernel, or a called function, into
// which others may be inlined.
type Unit struct {
	Func  *Func
	First int   // instruction
	Frame int64 // bytes of its local variables
}

// Body inlines the calls of a kernel, appends the functions that can't be inlined, and places shared and local
// variables; operands refer to copies of the variables with Offset set.
func (f *Func) Body() (*Body, error) {
	if f.Refusal != nil {
		return nil, f.Refusal
	}
	in := &inliner{mod: f.Module, body: &Body{Func: f}, links: newLinker(f.Module), module: map[*Var]*Var{}, listed: map[*Func]bool{}}
	r, err := in.links.kernel(f)
	if err != nil {
		return nil, err
	}
	in.body.Shared = sharedLayout(r.shared, func(v *Var, at int64) {
		c := *v
		c.Offset = at
		in.module[v] = &c
	})
	for in.list(f); in.unit < len(in.units); in.unit++ {
		u := in.units[in.unit]
		in.body.Units = append(in.body.Units, Unit{Func: u, First: len(in.body.Insts)})
		frame := int64(0)
		if u == f {
			frame = f.Module.placeLocals(func(v *Var, at int64) { in.module[v] = in.local(v, at) })
			in.reserve(frame)
		}
		if err := in.expand(u, map[*Var]*Var{}, frame, false); err != nil {
			return nil, clip(err)
		}
	}
	return in.body, nil
}

// list makes a function a unit.
func (x *inliner) list(f *Func) {
	if !x.listed[f] {
		x.listed[f] = true
		x.units = append(x.units, f)
	}
}

type inliner struct {
	mod    *Module
	body   *Body
	links  *linker
	module map[*Var]*Var // shared and local variables, with their places
	units  []*Func       // all units so far
	listed map[*Func]bool
	// indirect is set if a function was called by its address, so that all functions of which the address is taken are
	// listed.
	indirect bool
	unit     int // being expanded
	work     int // variables of the calls
}

// instance is one copy of a function within the body.
type instance struct {
	regs int32         // added to register numbers
	vars map[*Var]*Var // local variables and parameters, with their places
	at   []int         // index in the body of each instruction
}

// expand appends the instructions of f. vars maps parameters to the caller's variables; frame is the local memory in
// use. In an inlined function a return branches to the end of the inlined code.
func (x *inliner) expand(f *Func, vars map[*Var]*Var, frame int64, inner bool) error {
	b := x.body
	inst := instance{regs: int32(len(b.Regs)), vars: vars, at: make([]int, f.code.count+1)}
	if len(b.Regs)+len(f.Regs) > maxRegisters {
		return &Error{f.Line, "too many registers after inlining", ErrInvalidPTX}
	}
	b.Regs = append(b.Regs, f.Regs...)
	b.Insts = slices.Grow(b.Insts, f.code.count)
	size := f.frame(func(v *Var, at int64) {
		if vars[v] == nil {
			vars[v] = x.local(v, frame+at)
		}
	})
	x.reserve(frame + size)
	first := len(b.Insts)
	text := f.code.unpack()
	for i := range f.code.count {
		inst.at[i] = len(b.Insts)
		var in Inst
		text.next(&in)
		if err := x.one(&in, &inst, frame+size); err != nil {
			return err
		}
		if len(b.Insts) > InlineLimit {
			return &Error{f.Line, fmt.Sprintf("more than %d instructions after inlining", InlineLimit), ErrInvalidPTX}
		}
	}
	inst.at[f.code.count] = len(b.Insts)
	x.retarget(first, &inst, inner)
	return nil
}

// local returns a copy of a variable that lies in the frame of the unit.
func (x *inliner) local(v *Var, at int64) *Var {
	c := *v
	c.Space, c.Offset, c.Framed = Local, at, x.unit > 0
	return &c
}

// reserve makes the frame of the unit at least size bytes.
func (x *inliner) reserve(size int64) {
	u := &x.body.Units[x.unit]
	u.Frame = max(u.Frame, (size+15)&^15)
}

// pendingTarget marks branches with a label that is still an index in their function.
const pendingTarget = 1

func (x *inliner) retarget(first int, inst *instance, inner bool) {
	b := x.body
	for i := first; i < len(b.Insts); i++ {
		in := &b.Insts[i]
		switch {
		case in.Op == opBra && in.Args[0].Returns == pendingTarget:
			in.Args[0].Imm = uint64(inst.at[in.Args[0].Imm])
			in.Args[0].Returns = 0
		case in.Op == opRet && inner:
			*in = Inst{Line: in.Line, Guard: in.Guard, Not: in.Not, Op: opBra, Form: "L",
				Args: []Operand{{Kind: Label, Reg: None, Pair: None, Imm: uint64(len(b.Insts))}}}
		}
	}
}

func (x *inliner) one(in *Inst, inst *instance, frame int64) error {
	if in.Guard != None {
		in.Guard += inst.regs
	}
	x.relocate(in.Args, inst)
	switch {
	case in.Op == opBra:
		in.Args[0].Returns = pendingTarget
	case in.Op == opCall:
		return x.call(in, frame)
	}
	x.body.Insts = append(x.body.Insts, *in)
	return nil
}

// relocate maps operands to the registers and the variables of an instance.
func (x *inliner) relocate(args []Operand, inst *instance) {
	for i := range args {
		o := &args[i]
		if o.Reg != None {
			o.Reg += inst.regs
		}
		if o.Pair != None {
			o.Pair += inst.regs
		}
		if o.Var != nil {
			if c := inst.vars[o.Var]; c != nil {
				o.Var = c
			} else if c := x.module[o.Var]; c != nil {
				o.Var = c
			}
		}
		x.relocate(o.Elems, inst)
	}
}

// call inlines a call, or leaves it for the engine to execute.
func (x *inliner) call(in *Inst, frame int64) error {
	b := x.body
	skip := -1
	if in.Guard != None {
		skip = len(b.Insts)
		b.Insts = append(b.Insts, Inst{Line: in.Line, Guard: in.Guard, Not: !in.Not, Op: opBra, Form: "L",
			Args: []Operand{{Kind: Label, Reg: None, Pair: None}}})
	}
	if err := x.reachCallee(in, frame); err != nil {
		return err
	}
	if skip >= 0 {
		b.Insts[skip].Args[0].Imm = uint64(len(b.Insts))
	}
	return nil
}

func (x *inliner) reachCallee(in *Inst, frame int64) error {
	c := &in.Args[0]
	callee := c.Func
	if c.Reg == None {
		callee = x.mod.Funcs[c.Func.Name]
	}
	if x.work += len(callee.Vars) + len(c.Elems); x.work > workLimit {
		return &Error{int(in.Line), "the functions that are called have too many variables", ErrInvalidPTX}
	}
	switch {
	case c.Reg != None:
		if !x.indirect {
			x.indirect = true
			for _, f := range x.mod.Pointed {
				x.list(f)
			}
		}
		x.transfer(in, callee, frame)
		return nil
	case callee.Defined && x.links.known[callee].apart:
		x.list(callee)
		x.transfer(in, callee, frame)
		return nil
	}
	return x.inline(in, callee, frame)
}

// inline puts the function in place of its call: arguments that are variables replace the parameters themselves, others
// are stored first. Calls of functions that the engine provides then have variables only.
func (x *inliner) inline(in *Inst, callee *Func, frame int64) error {
	c := &in.Args[0]
	vars := map[*Var]*Var{}
	bind := func(o *Operand, p *Param) {
		if o.Kind == Symbol {
			vars[p.v] = o.Var
		}
	}
	for i := range callee.Returns {
		bind(&c.Elems[i], &callee.Returns[i])
	}
	for i := range callee.Params {
		if o := &c.Elems[c.Returns+i]; !c.returnsTo(o.Var) {
			bind(o, &callee.Params[i])
		}
	}
	// The frame of the callee begins where the caller's ends, so its own
	// variables can be placed before their instance exists.
	callee.frame(func(v *Var, at int64) {
		if vars[v] == nil {
			vars[v] = x.local(v, frame+at)
		}
	})
	for i := range callee.Params {
		o, v := &c.Elems[c.Returns+i], vars[callee.Params[i].v]
		if o.Kind == Symbol && o.Var != v {
			x.copy(in, o.Var, v)
		}
		x.pass(in, o, v, "st", "Mr")
	}
	if !callee.Defined {
		x.builtin(in, callee, vars, frame)
	} else if err := x.expand(callee, vars, frame, true); err != nil {
		return err
	}
	for i := range callee.Returns {
		x.pass(in, &c.Elems[i], vars[callee.Returns[i].v], "ld", "RM")
	}
	return nil
}

// returnsTo reports whether a call stores a result in the variable.
func (o *Operand) returnsTo(v *Var) bool {
	return v != nil && slices.ContainsFunc(o.Elems[:o.Returns], func(r Operand) bool { return r.Var == v })
}

// copy copies a variable through registers, for a function that might store its result where it has yet to read an
// argument.
func (x *inliner) copy(call *Inst, from, to *Var) {
	t := B32
	if to.Type.Size() == 8 {
		t = B64
	}
	all := Operand{Kind: Vector, Reg: None, Pair: None}
	for range min(from.Size, to.Size) / int64(to.Type.Size()) {
		all.Elems = append(all.Elems, Operand{Kind: Register, Reg: int32(len(x.body.Regs)), Pair: None})
		x.body.Regs = append(x.body.Regs, t)
	}
	source, target := *from, *to
	source.Type, source.Pred, target.Pred = to.Type, false, false
	x.pass(call, &all, &source, "ld", "RM")
	x.pass(call, &all, &target, "st", "Mr")
}

// transfer leaves a call for the engine: its operands are variables of the frame, each with its place in the frame of
// the callee. The call's return point is an instruction of its own, so that nothing else leads there.
func (x *inliner) transfer(in *Inst, callee *Func, frame int64) {
	b := x.body
	c := in.Args[0]
	c.Func, c.Elems = callee, slices.Clone(c.Elems)
	place := map[*Var]int64{}
	x.reserve(frame + callee.passing(func(v *Var, at int64) { place[v] = at }))
	params := slices.Concat(callee.Returns, callee.Params)
	for i := range c.Elems {
		o, v := &c.Elems[i], params[i].v
		switch {
		case o.Kind == Sink:
			continue
		case o.Kind != Symbol:
			*o = Operand{Kind: Symbol, Reg: None, Pair: None, Var: x.local(v, frame+place[v])}
			if i >= c.Returns {
				x.pass(in, &in.Args[0].Elems[i], o.Var, "st", "Mr")
			}
		}
		o.Imm = uint64(place[v])
	}
	b.Insts = append(b.Insts, Inst{Line: in.Line, Guard: None, Op: opCall, Form: in.Form, Args: []Operand{c}})
	b.Insts = append(b.Insts, Inst{Line: in.Line, Guard: None, Op: opBra, Form: "L",
		Args: []Operand{{Kind: Label, Reg: None, Pair: None, Imm: uint64(len(b.Insts) + 1)}}})
	for i := range c.Returns {
		x.pass(in, &in.Args[0].Elems[i], c.Elems[i].Var, "ld", "RM")
	}
}

// builtin emits a call of a function that the engine provides.
func (x *inliner) builtin(call *Inst, callee *Func, vars map[*Var]*Var, frame int64) {
	b := x.body
	x.reserve(frame + callee.frame(nil))
	c := Operand{Kind: Callee, Func: callee, Reg: None, Pair: None, Returns: len(callee.Returns)}
	for _, list := range [][]Param{callee.Returns, callee.Params} {
		for i := range list {
			c.Elems = append(c.Elems, Operand{Kind: Symbol, Reg: None, Pair: None, Var: vars[list[i].v]})
		}
	}
	b.Insts = append(b.Insts, Inst{Line: call.Line, Guard: None, Op: opCall, Form: call.Form, Args: []Operand{c}})
}

// pass moves a register, a vector of them or an immediate to or from a parameter.
func (x *inliner) pass(call *Inst, o *Operand, v *Var, op, form string) {
	elems := []Operand{*o}
	switch o.Kind {
	case Symbol:
		return
	case Vector:
		elems = o.Elems
	}
	for i, e := range elems {
		if e.Kind == Sink {
			continue
		}
		in := Inst{Line: call.Line, Guard: None, Op: OpOf(op), Type: v.Type, Form: form}
		in.Mods.Add(ModLocal)
		mem := Operand{Kind: Address, Reg: None, Pair: None, Var: v, Imm: uint64(i * v.Type.Size())}
		in.Args = []Operand{mem, e}
		if op == "ld" {
			in.Args = []Operand{e, mem}
		}
		if v.Pred && e.Kind == Register {
			x.body.Regs = append(x.body.Regs, U32)
			x.body.Insts = append(x.body.Insts, movePredicate(in, int32(len(x.body.Regs)-1))...)
			continue
		}
		x.body.Insts = append(x.body.Insts, in)
	}
}
