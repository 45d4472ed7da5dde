package compile

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// lowerLoad lowers ld and ldu: one instruction for each element of a vector.
func lowerLoad(l *lowerer, in *ptx.Inst) {
	o := &in.Args[1]
	if o.Var != nil && o.Var.Kernel {
		lowerLoadParam(l, in, o)
		return
	}
	base := l.access(in, o, false)
	l.share(&base, in, o)
	for i, e := range elements(&in.Args[0]) {
		d := l.dst(e, in.Type.Size() == 8)
		size := 4
		if e.Kind == ptx.Register {
			size = l.body.Regs[e.Reg].Size()
		}
		c := base
		c.Op, c.Dst, c.Mem.Shift = ir.OpLoad, d, i*in.Type.Size()
		l.emit(c)
		base.Mem.ShapeKnown = true
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

// access prepares a memory instruction: address, region cache, alignment.
func (l *lowerer) access(in *ptx.Inst, o *ptx.Operand, write bool) ir.Instr {
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
	c := ir.Instr{Mem: ir.Memory{Space: space, Type: in.Type, Size: uint64(size), Write: write, Align: uint64(size - 1), Offset: o.Imm, Line: l.line,
		Spin: l.looksAnew(in), Cache: int32(l.prog.Caches), Private: space == ptx.Local || space == ptx.ParamSpace || space == ptx.Generic}}
	l.prog.Caches++
	m := &c.Mem
	l.prog.MayPoll = l.prog.MayPoll || m.Spin
	switch {
	case o.Var != nil:
		m.Address, m.Offset = l.variableAddress(o), 0
	case o.Reg == ptx.None:
		m.Address, m.Offset = l.constant(o.Imm), 0
	case o.Index != nil:
		m.Address, m.Base, m.Scale, m.SignedIndex = l.reg(o.Index.Reg), l.reg(o.Reg), o.Index.Scale, o.Index.Signed
	default:
		m.Address = l.baseAddress(in, o)
	}
	return c
}

// share sets the number of the address shape of the instruction, and whether another instruction of the block has
// determined that shape already.
func (l *lowerer) share(c *ir.Instr, in *ptx.Inst, o *ptx.Operand) {
	key := l.reused(in, o)
	seen, known := l.shapes[key]
	if known = known && seen.scale == c.Mem.Scale && seen.signed == c.Mem.SignedIndex; !known {
		l.shape++
		seen = seenShape{l.shape, c.Mem.Scale, c.Mem.SignedIndex}
		if key != ptx.None {
			l.shapes[key] = seen
		}
	}
	c.Mem.Shape, c.Mem.ShapeKnown, c.TakesAffine = seen.number, known, true
}

// reused returns the register that contains the address, before an offset that is the same for all lanes, or its
// index; or None if other instructions can't use this one's address shape.
func (l *lowerer) reused(in *ptx.Inst, o *ptx.Operand) int32 {
	if o.Var != nil || in.Guard != ptx.None || l.looksAnew(in) {
		return ptx.None
	}
	if o.Index != nil {
		return o.Index.Reg
	}
	return o.Reg
}

// seenShape is the shape that an instruction determines of the addresses in a register, or of its product with scale.
type seenShape struct {
	number int32
	scale  uint64
	signed bool
}

// forget drops the shapes of the registers that an instruction writes.
func (l *lowerer) forget(in *ptx.Inst) {
	in.Visit(func(r int32, written bool) {
		if written {
			delete(l.shapes, r)
		}
	})
}

// baseAddress returns the register of an address. If the instruction writes it before its last read, the result is a
// copy; a single value has 64 bits.
func (l *lowerer) baseAddress(in *ptx.Inst, o *ptx.Operand) ir.Place {
	a := l.reg(o.Reg)
	if a.Kind == ir.Single && l.body.Regs[o.Reg].Size() == 4 {
		return l.widened(a)
	}
	if in.Mods.Vector() > 1 && in.Args[0].Kind == ptx.Vector {
		for i := range in.Args[0].Elems {
			if in.Args[0].Elems[i].Reg == o.Reg {
				k := l.temp(a, a.Kind == ir.Row64)
				l.op(arith.Pick(a.Kind == ir.Row64, "movU32", "movU64"), k, a)
				return k
			}
		}
	}
	return a
}

// widened returns an address of 32 bits extended to 64.
func (l *lowerer) widened(a ir.Place) ir.Place {
	k := l.temp(a, true)
	l.op("cvtU64U32", k, a)
	return k
}

// lowerLoadParam lowers ld.param of a kernel's parameter.
func lowerLoadParam(l *lowerer, in *ptx.Inst, o *ptx.Operand) {
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
		op := &ir.ParamLoad{At: at + uint64(i)*size, Size: int(size), Mask: ^uint64(0)}
		if in.Type.Signed() {
			op.Extend = uint8(64 - 8*size)
		}
		if w := l.body.Regs[e.Reg].Size(); w < 8 {
			op.Mask = 1<<(8*w) - 1
		}
		l.emit(ir.Instr{Op: ir.OpLoadParam, Dst: l.reg(e.Reg), Detail: op})
	}
}

func lowerStore(l *lowerer, in *ptx.Inst) {
	if in.Mods.Has(ptx.Bulk) {
		lowerBulkStore(l, in)
		return
	}
	if in.Mods.Has(ptx.Async) {
		lowerAsyncStore(l, in)
		return
	}
	base := l.access(in, &in.Args[0], true)
	l.share(&base, in, &in.Args[0])
	for i, e := range elements(&in.Args[1]) {
		c := base
		c.Op, c.B, c.Mem.Shift = ir.OpStore, l.src(e, in.Type), i*in.Type.Size()
		l.emit(c)
		base.Mem.ShapeKnown = true
	}
}

func lowerAtomic(l *lowerer, in *ptx.Inst) {
	if in.Mods.Has(ptx.Async) {
		lowerAsyncStore(l, in)
		return
	}
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
	c.Mem.Atomic = true
	l.share(&c, in, &args[0])
	op := in.Mods.First(ptx.RN, ptx.Min, ptx.Max, ptx.Inc, ptx.Dec, ptx.And, ptx.Or, ptx.Xor, ptx.Exch, ptx.CAS, ptx.Add)
	a := atomicOf(op, t, c.Mem.Space == ptx.Shared)
	if a == nil {
		l.fail("%s is not implemented for %s", in.Op, t)
		return
	}
	if t.Size() == 4 {
		f := a.Apply
		a.Apply = func(o, b, c uint64) uint64 { return uint64(uint32(f(o, b, c))) }
	}
	c.Op, c.Detail = ir.OpAtomic, a
	if a.Adds {
		c.Op = ir.OpAdd
	}
	c.Mem.Spin = op == ptx.CAS || op == ptx.Exch || results != nil && args[1].Kind == ptx.Integer && args[1].Imm == 0 || // which only reads
		l.polling[in]
	l.prog.MayPoll = l.prog.MayPoll || in.Op.String() == "atom" && c.Mem.Space != ptx.Shared
	if len(args) > 2 {
		c.C = l.src(&args[2], t)
	}
	for i, e := range elements(&args[1]) {
		c.B, c.Mem.Shift, c.Dst = l.src(e, t), i*t.Size(), ir.Place{}
		if results != nil && results[i].Kind != ptx.Sink && l.reads[results[i].Reg] > 0 {
			c.Dst = l.reg(results[i].Reg)
		}
		l.emit(c)
		c.Mem.ShapeKnown = true
	}
}
