package ptx

import "fmt"

// Body is a kernel with all calls inlined: what an engine compiles.
type Body struct {
	Func   *Func
	Regs   []Type
	Insts  []Inst
	Local  int64 // bytes of local memory a thread
	Shared int64 // bytes of static shared memory
}

// Body inlines the calls of a kernel and gives its shared and local variables
// their places; operands refer to copies of the variables with Offset set.
func (f *Func) Body() (*Body, error) {
	in := &inliner{mod: f.Module, body: &Body{Func: f}, shared: map[*Var]*Var{}}
	r, err := newLinker(f.Module).reach(f, 0)
	if err != nil {
		return nil, err
	}
	in.body.Shared = sharedLayout(r.shared, func(v *Var, at int64) {
		c := *v
		c.Offset = at
		in.shared[v] = &c
	})
	if err := in.expand(f, map[*Var]*Var{}, 0, false); err != nil {
		return nil, clip(err)
	}
	return in.body, nil
}

type inliner struct {
	mod    *Module
	body   *Body
	shared map[*Var]*Var
	work   int // variables of the calls
}

// instance is one copy of a function within the body.
type instance struct {
	regs int32         // added to register numbers
	vars map[*Var]*Var // local variables and parameters, with their places
	at   []int         // index in the body of each instruction
}

// expand appends the instructions of f. vars has the caller's variables that
// stand for parameters; frame is the local memory in use. In an inlined
// function a return branches to what follows it.
func (x *inliner) expand(f *Func, vars map[*Var]*Var, frame int64, inner bool) error {
	b := x.body
	inst := instance{regs: int32(len(b.Regs)), vars: vars, at: make([]int, len(f.Insts)+1)}
	if len(b.Regs)+len(f.Regs) > maxRegisters {
		return &Error{f.Line, "too many registers after inlining", ErrInvalidPTX}
	}
	b.Regs = append(b.Regs, f.Regs...)
	size := f.frame(func(v *Var, at int64) {
		if vars[v] == nil {
			c := *v
			c.Space, c.Offset = Local, frame+at
			vars[v] = &c
		}
	})
	b.Local = max(b.Local, frame+size)
	first := len(b.Insts)
	for i := range f.Insts {
		inst.at[i] = len(b.Insts)
		if err := x.one(&f.Insts[i], &inst, frame+size); err != nil {
			return err
		}
		if len(b.Insts) > inlineLimit {
			return &Error{f.Line, fmt.Sprintf("more than %d instructions after inlining", inlineLimit), ErrInvalidPTX}
		}
	}
	inst.at[len(f.Insts)] = len(b.Insts)
	x.retarget(first, &inst, inner)
	return nil
}

// pendingTarget marks branches whose label is still an index in their function.
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

func (x *inliner) one(src *Inst, inst *instance, frame int64) error {
	in := *src
	if in.Guard != None {
		in.Guard += inst.regs
	}
	in.Args = x.operands(src.Args, inst)
	switch {
	case in.Op == opBra:
		in.Args[0].Returns = pendingTarget
	case in.Op == opCall:
		callee := x.mod.Funcs[in.Args[0].Func.Name]
		return x.call(&in, callee, frame)
	}
	x.body.Insts = append(x.body.Insts, in)
	return nil
}

func (x *inliner) operands(args []Operand, inst *instance) []Operand {
	if len(args) == 0 {
		return nil
	}
	out := make([]Operand, len(args))
	for i := range args {
		o := args[i]
		if o.Reg != None {
			o.Reg += inst.regs
		}
		if o.Pair != None {
			o.Pair += inst.regs
		}
		if o.Var != nil {
			if c := inst.vars[o.Var]; c != nil {
				o.Var = c
			} else if c := x.shared[o.Var]; c != nil {
				o.Var = c
			}
		}
		o.Elems = x.operands(o.Elems, inst)
		out[i] = o
	}
	return out
}

// call inlines a call: arguments that are variables stand for the parameters
// themselves, others are stored first. What the engine provides is then called
// with variables only.
func (x *inliner) call(in *Inst, callee *Func, frame int64) error {
	b := x.body
	skip := -1
	if in.Guard != None {
		skip = len(b.Insts)
		b.Insts = append(b.Insts, Inst{Line: in.Line, Guard: in.Guard, Not: !in.Not, Op: opBra, Form: "L",
			Args: []Operand{{Kind: Label, Reg: None, Pair: None}}})
	}
	if x.work += len(callee.Vars) + len(in.Args[0].Elems); x.work > workLimit {
		return &Error{int(in.Line), "the functions that are called have too many variables", ErrInvalidPTX}
	}
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
		bind(&c.Elems[c.Returns+i], &callee.Params[i])
	}
	// The frame of the callee begins where the caller's ends, so its own
	// variables can be placed before their instance exists.
	callee.frame(func(v *Var, at int64) {
		if vars[v] == nil {
			k := *v
			k.Space, k.Offset = Local, frame+at
			vars[v] = &k
		}
	})
	for i := range callee.Params {
		x.pass(in, &c.Elems[c.Returns+i], vars[callee.Params[i].v], "st", "Mr")
	}
	if !callee.Defined {
		x.builtin(in, callee, vars, frame)
	} else if err := x.expand(callee, vars, frame, true); err != nil {
		return err
	}
	for i := range callee.Returns {
		x.pass(in, &c.Elems[i], vars[callee.Returns[i].v], "ld", "RM")
	}
	if skip >= 0 {
		b.Insts[skip].Args[0].Imm = uint64(len(b.Insts))
	}
	return nil
}

// builtin calls a function that the engine provides.
func (x *inliner) builtin(call *Inst, callee *Func, vars map[*Var]*Var, frame int64) {
	b := x.body
	b.Local = max(b.Local, frame+callee.frame(nil))
	c := Operand{Kind: Callee, Func: callee, Reg: None, Pair: None, Returns: len(callee.Returns)}
	for _, list := range [][]Param{callee.Returns, callee.Params} {
		for i := range list {
			c.Elems = append(c.Elems, Operand{Kind: Symbol, Reg: None, Pair: None, Var: vars[list[i].v]})
		}
	}
	b.Insts = append(b.Insts, Inst{Line: call.Line, Guard: None, Op: opCall, Form: call.Form, Args: []Operand{c}})
}

// pass moves a register or immediate to or from a parameter.
func (x *inliner) pass(call *Inst, o *Operand, v *Var, op, form string) {
	if o.Kind == Symbol || o.Kind == Sink {
		return
	}
	in := Inst{Line: call.Line, Guard: None, Op: OpOf(op), Type: v.Type, Form: form}
	in.Mods.Add(ModLocal)
	mem := Operand{Kind: Address, Reg: None, Pair: None, Var: v}
	in.Args = []Operand{mem, *o}
	if op == "ld" {
		in.Args = []Operand{*o, mem}
	}
	x.body.Insts = append(x.body.Insts, in)
}
