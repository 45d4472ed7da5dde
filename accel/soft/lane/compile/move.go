package compile

import (
	"strings"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

func fields(s string) []string { return strings.Fields(s) }

// comparisons names the comparison for the row table. Those for "greater" are of the operands in the other order.
var comparisons = []struct {
	m              ptx.Mod
	integer, float string
	swapped        bool
}{
	{ptx.EQ, "eqU", "eq", false}, {ptx.NE, "neU", "ne", false}, {ptx.LT, "lt", "lt", false}, {ptx.LE, "le", "le", false}, {ptx.GT, "lt", "lt", true}, {ptx.GE, "le", "le", true},
	{ptx.Lo, "ltU", "", false}, {ptx.LSU, "leU", "", false}, {ptx.Hi, "ltU", "", true}, {ptx.HSU, "leU", "", true},
	{ptx.EQU, "", "equ", false}, {ptx.NEU, "", "neu", false}, {ptx.LTU, "", "ltu", false}, {ptx.LEU, "", "leu", false}, {ptx.GTU, "", "ltu", true}, {ptx.GEU, "", "leu", true},
	{ptx.NUM, "", "num", false}, {ptx.NAN, "", "nan", false},
}

// comparison returns the row operation for comparing values of type t, or "", and whether it takes the operands in the
// other order.
func comparison(in *ptx.Inst, t ptx.Type) (name string, swapped bool) {
	for _, c := range comparisons {
		if !in.Mods.Has(c.m) {
			continue
		}
		kind := kindOf(t)
		switch {
		case t.Float() && c.float != "":
			return "cmp" + c.float + kind, c.swapped
		case t.Float() || c.integer == "":
			return "", false
		case strings.HasSuffix(c.integer, "U"):
			return "cmp" + c.integer + kind[1:], c.swapped
		}
		return "cmp" + c.integer + kind, c.swapped
	}
	return "", false
}

func boolOf(in *ptx.Inst) ir.BoolOp {
	switch in.Mods.First(ptx.RN, ptx.And, ptx.Or, ptx.Xor) {
	case ptx.And:
		return ir.BoolAnd
	case ptx.Or:
		return ir.BoolOr
	case ptx.Xor:
		return ir.BoolXor
	}
	return ir.BoolNone
}

// compare emits a comparison of args 1 and 2 into p and, if given, its opposite into q.
func (l *lowerer) compare(in *ptx.Inst, t ptx.Type, p, q ir.Place) {
	name, swapped := comparison(in, t)
	if name == "" {
		l.fail("%s can't compare values of type %s so", in.Op, t)
		return
	}
	a, b := l.signed(&in.Args[1], t, p), l.signed(&in.Args[2], t, p)
	if t == ptx.F32 {
		a, b = l.flushed(in, a, a), l.flushed(in, b, b)
	}
	if swapped {
		a, b = b, a
	}
	l.op(name, p, a, b)
	if l.err != nil {
		return
	}
	c := &l.code[len(l.code)-1]
	c.Dst2, c.Combine = q, boolOf(in)
	if c.Combine != ir.BoolNone {
		c.C, c.NotC = l.pred(&in.Args[3])
	}
}

func lowerSetp(l *lowerer, in *ptx.Inst) {
	o := &in.Args[0]
	var p, q ir.Place
	if o.Kind == ptx.Register {
		p = l.reg(o.Reg)
		if o.Pair != ptx.None {
			q = l.reg(o.Pair)
		}
	} else if o.Pair != ptx.None {
		q = l.reg(o.Pair)
	}
	l.compare(in, in.Type, p, q)
}

func lowerSet(l *lowerer, in *ptx.Inst) {
	d, p := l.dst(&in.Args[0], false), l.tempPred()
	l.compare(in, in.Type2, p, ir.Place{})
	yes := uint64(0xffffffff)
	if in.Type == ptx.F32 {
		yes = 0x3f800000
	}
	l.choose(d, l.constant(yes), l.constant(0), p, false)
}

func lowerSelp(l *lowerer, in *ptx.Inst) {
	t := in.Type
	d := l.dst(&in.Args[0], t.Size() == 8)
	c, not := l.pred(&in.Args[3])
	l.choose(d, l.src(&in.Args[1], t), l.src(&in.Args[2], t), c, not)
}

// choose emits d = a where c holds, else b.
func (l *lowerer) choose(d, a, b, c ir.Place, not bool) {
	name := "selectU32"
	if d.Kind == ir.Row64 {
		name = "selectU64"
	}
	l.op(name, d, a, b, c)
	in := &l.code[len(l.code)-1]
	in.Op, in.NotC = ir.OpSelect, not
}

// lowerSlct lowers a selection by the sign of args[3].
func lowerSlct(l *lowerer, in *ptx.Inst) {
	t, by := in.Type, in.Type2
	d, p, c := l.dst(&in.Args[0], t.Size() == 8), l.tempPred(), l.src(&in.Args[3], by)
	if by == ptx.F32 {
		c = l.flushed(in, c, c)
	}
	l.op("cmple"+kindOf(by), p, l.constant(0), c)
	l.choose(d, l.src(&in.Args[1], t), l.src(&in.Args[2], t), p, false)
}

// lowerTest lowers testp and isspacep, which compute 0 or 1, which is then compared.
func lowerTest(l *lowerer, d *ptx.Operand, f arith.LaneFunc, a ir.Place, wide bool) {
	if d.Kind == ptx.Sink {
		return
	}
	k := l.temp(ir.Place{}, false)
	l.lanes(f, k, [4]bool{false, wide}, a)
	l.op("cmpneU32", l.reg(d.Reg), k, l.constant(0))
}

func lowerTestp(l *lowerer, in *ptx.Inst) {
	lowerTest(l, &in.Args[0], testFunc(in), l.src(&in.Args[1], in.Type), in.Type.Size() == 8)
}

func lowerIsspacep(l *lowerer, in *ptx.Inst) {
	o := &in.Args[1]
	wide := l.body.Regs[o.Reg].Size() == 8
	space, consts := in.Mods.Space(), l.layout.consts
	lowerTest(l, &in.Args[0], func(a, _, _ uint64) uint64 {
		at := ptx.Global
		switch a & ir.WindowMask {
		case ir.SharedWindow:
			at = ptx.Shared
		case ir.LocalWindow:
			at = ptx.Local
		case ir.ParamWindow:
			at = ptx.ParamSpace
		case ir.CodeWindow:
			at = ptx.Generic
		case 0:
			for _, c := range consts {
				if a-c.addr < c.size {
					at = ptx.Const
				}
			}
		}
		// A kernel's parameters are within the global window.
		if at == space || at == ptx.ParamSpace && space == ptx.Global {
			return 1
		}
		return 0
	}, l.reg(o.Reg), wide)
}

// lowerIstypep lowers istypep, of a variable or of a handle.
func lowerIstypep(l *lowerer, in *ptx.Inst) {
	o := &in.Args[0]
	if o.Kind == ptx.Sink {
		return
	}
	kind := map[ptx.Mod]ptx.Opaque{ptx.IsTexture: ptx.TexRef, ptx.IsSampler: ptx.SamplerRef, ptx.IsSurface: ptx.SurfRef}[in.Mods.First(ptx.IsTexture, ptx.IsSampler, ptx.IsSurface)]
	k := l.temp(ir.Place{}, false)
	l.emit(ir.Instr{Op: ir.OpIsType, A: l.handle(&in.Args[1]), Dst: k, Detail: &ir.TypeTest{Kind: kind}})
	l.op("cmpneU32", l.reg(o.Reg), k, l.constant(0))
}

func lowerMov(l *lowerer, in *ptx.Inst) {
	t := in.Type
	d, s := &in.Args[0], &in.Args[1]
	switch {
	case in.Mods.Vector() > 1:
		lowerMovVector(l, in)
	case t == ptx.Pred:
		a, not := l.pred(s)
		l.predicates(d, a, not, ir.Place{}, false, ir.BoolNone)
	case s.Kind == ptx.Vector:
		lowerPack(l, in, d, s)
	case d.Kind == ptx.Vector:
		lowerUnpack(l, in, d, s)
	case s.Kind == ptx.Special:
		lowerMovSpecial(l, d, ptx.SpecialReg(s.Imm), t)
		if l.polling[in] {
			l.emit(ir.Instr{Op: ir.OpPollClock})
			l.prog.MayPoll = true
		}
	default:
		l.op("mov"+plainBits(t), l.dst(d, t.Size() == 8), l.src(s, t))
	}
}

// lowerMovVector moves elements one by one, through temporaries: all are read before any is written.
func lowerMovVector(l *lowerer, in *ptx.Inst) {
	t := in.Type
	var to, from []ir.Place
	for i := range in.Args[0].Elems {
		e := &in.Args[0].Elems[i]
		if e.Kind == ptx.Sink {
			continue
		}
		d := l.reg(e.Reg)
		k := l.temp(ir.Place{}, d.Kind == ir.Row64)
		l.op("mov"+plainBits(t), k, l.src(&in.Args[1].Elems[i], t))
		to, from = append(to, d), append(from, k)
	}
	for i := range to {
		l.op("mov"+plainBits(t), to[i], from[i])
	}
}

func plainBits(t ptx.Type) string {
	if t.Size() == 8 {
		return "U64"
	}
	return "U32"
}

// lowerPack emits d = the elements side by side, the first lowest.
func lowerPack(l *lowerer, in *ptx.Inst, d, s *ptx.Operand) {
	size := in.Type.Size()
	wide := size == 8
	n := len(s.Elems)
	if n == 2 && size > 2 {
		half := partType(size / 2)
		l.op("pack"+plainBits(in.Type), l.dst(d, wide), l.src(&s.Elems[0], half), l.src(&s.Elems[1], half))
		return
	}
	each := partType(size / n)
	step := uint(size / n * 8)
	acc := l.temp(ir.Place{}, wide)
	for i := range s.Elems {
		to := acc
		if i == n-1 {
			to = l.dst(d, wide)
		}
		shift := step * uint(i)
		from := l.src(&s.Elems[i], each)
		if i == 0 {
			l.lanes(func(a, _, _ uint64) uint64 { return a }, to, [4]bool{wide, each.Size() == 8}, from)
			continue
		}
		l.lanes(func(a, b, _ uint64) uint64 { return a | b<<shift }, to, [4]bool{wide, wide, each.Size() == 8}, acc, from)
	}
}

func partType(size int) ptx.Type {
	switch size {
	case 1:
		return ptx.B8
	case 2:
		return ptx.B16
	case 4:
		return ptx.B32
	}
	return ptx.B64
}

func lowerUnpack(l *lowerer, in *ptx.Inst, d, s *ptx.Operand) {
	size := in.Type.Size()
	n := len(d.Elems)
	step := uint(size / n * 8)
	from := l.src(s, in.Type)
	for i := range d.Elems {
		if d.Elems[i].Kind == ptx.Sink {
			continue
		}
		to := l.reg(d.Elems[i].Reg)
		if n == 2 && size > 2 {
			l.op([]string{arith.Pick(size == 8, "cvtU16", "cvtU32U64"), "upper" + plainBits(in.Type)}[i], to, from)
			continue
		}
		shift, keep := step*uint(i), uint64(1)<<step-1
		l.lanes(func(a, _, _ uint64) uint64 { return a >> shift & keep }, to, [4]bool{size/n == 8, size == 8}, from)
	}
}

func lowerCvta(l *lowerer, in *ptx.Inst) {
	t := in.Type
	wide := t.Size() == 8
	d, s := l.dst(&in.Args[0], wide), l.src(&in.Args[1], t)
	var window uint64
	switch in.Mods.Space() {
	case ptx.Shared:
		window = ir.SharedWindow
	case ptx.Local:
		window = ir.LocalWindow
	}
	switch {
	case window == 0 || !wide:
		l.op("mov"+plainBits(t), d, s)
	case in.Mods.Has(ptx.To):
		l.op("subU64", d, s, l.constant(window))
	default:
		l.op("addU64", d, s, l.constant(window))
	}
}
