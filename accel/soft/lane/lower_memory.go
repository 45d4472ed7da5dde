package lane

import "pegasus/accel/ptx"

// load lowers ld and ldu: one instruction for each element of a vector.
func (l *lowerer) load(in *ptx.Inst) {
	o := &in.Args[1]
	if o.Var != nil && o.Var.Kernel {
		l.loadParam(in, o)
		return
	}
	base := l.access(in, o, false)
	for i, e := range elements(&in.Args[0]) {
		d := l.dst(e, in.Type.Size() == 8)
		size := 4
		if e.Kind == ptx.Register {
			size = l.body.Regs[e.Reg].Size()
		}
		c := base
		c.d, c.shift = d, i*in.Type.Size()
		c.exec = loaderOf(in.Type, d.kind == row64)
		l.emit(c)
		if in.Type.Signed() && in.Type.Size() <= 2 && size == 2 {
			l.op("cvtU16", d, d)
		}
	}
}

func elements(o *ptx.Operand) []*ptx.Operand {
	if o.Kind != ptx.Vector {
		return []*ptx.Operand{o}
	}
	var list []*ptx.Operand
	for i := range o.Elems {
		list = append(list, &o.Elems[i])
	}
	return list
}

func loaderOf(t ptx.Type, wide bool) func(*group, *instr) {
	type pair struct{ narrow, wide func(*group, *instr) }
	signed := [9]pair{1: {runLoad[int8, uint32], runLoad[int8, uint64]}, 2: {runLoad[int16, uint32], runLoad[int16, uint64]}, 4: {runLoad[int32, uint32], runLoad[int32, uint64]}}
	plain := [9]pair{1: {runLoad[uint8, uint32], runLoad[uint8, uint64]}, 2: {runLoad[uint16, uint32], runLoad[uint16, uint64]},
		4: {runLoad[uint32, uint32], runLoad[uint32, uint64]}, 8: {nil, runLoad[uint64, uint64]}}
	p := plain[t.Size()]
	if t.Signed() && t.Size() < 8 {
		p = signed[t.Size()]
	}
	if wide {
		return p.wide
	}
	return p.narrow
}

// access prepares a memory instruction: address, region cache, alignment.
func (l *lowerer) access(in *ptx.Inst, o *ptx.Operand, write bool) instr {
	space := in.Mods.Space()
	if o.Var != nil {
		space = o.Var.Space
	}
	if space == ptx.Const {
		space = ptx.Global
	}
	if o.Var != nil && o.Var.Kernel && write {
		l.fail("store to a parameter of the kernel")
	}
	size := in.Type.Size() * in.Mods.Vector()
	c := instr{aux: &access{space: space, size: uint64(size), write: write}, align: uint64(size - 1), imm: o.Imm,
		spin:  in.Mods.First(ptx.RN, ptx.Volatile, ptx.Relaxed, ptx.Acquire, ptx.Release) != ptx.RN,
		cache: int32(l.prog.caches), private: space == ptx.Local || space == ptx.ParamSpace || space == ptx.Generic}
	l.prog.caches++
	l.prog.awaits = l.prog.awaits || c.spin
	switch {
	case o.Var != nil:
		c.a, c.imm = l.variableAddress(o), 0
	case o.Reg == ptx.None:
		c.a, c.imm = l.constant(o.Imm), 0
	default:
		c.a = l.baseAddress(in, o)
	}
	return c
}

// baseAddress is the register of an address with 64 bits. If the instruction
// writes it before it has read it for the last time, a copy.
func (l *lowerer) baseAddress(in *ptx.Inst, o *ptx.Operand) place {
	a := l.reg(o.Reg)
	if l.body.Regs[o.Reg].Size() == 4 {
		k := l.temp(a, true)
		l.op("cvtU64U32", k, a)
		return k
	}
	if in.Mods.Vector() > 1 && in.Args[0].Kind == ptx.Vector {
		for i := range in.Args[0].Elems {
			if in.Args[0].Elems[i].Reg == o.Reg {
				k := l.temp(a, true)
				l.op("movU64", k, a)
				return k
			}
		}
	}
	return a
}

// loadParam lowers ld.param of a kernel's parameter.
func (l *lowerer) loadParam(in *ptx.Inst, o *ptx.Operand) {
	size := uint64(in.Type.Size())
	at := uint64(o.Var.Offset) + o.Imm
	n := uint64(in.Mods.Vector())
	if end := uint64(l.body.Func.ParamBytes); at > end || size*n > end-at {
		l.fail("load beyond the parameters")
		return
	}
	for i, e := range elements(&in.Args[0]) {
		if e.Kind == ptx.Sink {
			continue
		}
		c := instr{exec: runLoadParam, d: l.reg(e.Reg), imm: at + uint64(i)*size, aux: &access{size: size}}
		if in.Type.Signed() {
			c.extend = uint8(64 - 8*size)
		}
		c.mask = ^uint64(0)
		if w := l.body.Regs[e.Reg].Size(); w < 8 {
			c.mask = 1<<(8*w) - 1
		}
		l.emit(c)
	}
}

func (l *lowerer) store(in *ptx.Inst) {
	base := l.access(in, &in.Args[0], true)
	for i, e := range elements(&in.Args[1]) {
		c := base
		c.b, c.shift = l.src(e, in.Type), i*in.Type.Size()
		wide := c.b.kind == row64
		switch in.Type.Size() {
		case 1:
			c.exec = pick(wide, runStore[uint8, uint32], runStore[uint8, uint64])
		case 2:
			c.exec = pick(wide, runStore[uint16, uint32], runStore[uint16, uint64])
		case 4:
			c.exec = pick(wide, runStore[uint32, uint32], runStore[uint32, uint64])
		default:
			c.exec = runStore[uint64, uint64]
		}
		l.emit(c)
	}
}

func pick[T any](second bool, a, b T) T {
	if second {
		return b
	}
	return a
}

func (l *lowerer) atomic(in *ptx.Inst) {
	args := in.Args
	t := in.Type
	var results []*ptx.Operand
	if in.Op.String() == "atom" {
		results = elements(&args[0])
		args = args[1:]
	}
	if in.Mods.Has(ptx.CacheHint) {
		args = args[:len(args)-1]
	}
	c := l.access(in, &args[0], true)
	op := in.Mods.First(ptx.RN, ptx.Min, ptx.Max, ptx.Inc, ptx.Dec, ptx.And, ptx.Or, ptx.Xor, ptx.Exch, ptx.CAS, ptx.Add)
	a := atomicOf(op, t, c.aux.(*access).space == ptx.Shared)
	if a == nil {
		l.fail("%s is not implemented for %s", in.Op, t)
		return
	}
	if t.Size() == 4 {
		f := a.f
		a.f = func(o, b, c uint64) uint64 { return uint64(uint32(f(o, b, c))) }
	}
	c.exec, c.aux2 = runAtomic, a
	c.spin = op == ptx.CAS || op == ptx.Exch
	l.prog.awaits = l.prog.awaits || in.Op.String() == "atom" && c.aux.(*access).space != ptx.Shared
	if len(args) > 2 {
		c.c = l.src(&args[2], t)
	}
	for i, e := range elements(&args[1]) {
		c.b, c.shift, c.d = l.src(e, t), i*t.Size(), place{}
		if results != nil && results[i].Kind != ptx.Sink {
			c.d = l.reg(results[i].Reg)
		}
		l.emit(c)
	}
}
