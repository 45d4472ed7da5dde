package ptxc

import (
	"fmt"
	"strings"

	"pegasus/accel/ptx"
)

// inst writes one instruction of block k.
func (t *translator) inst(k int, in *ptx.Inst) error {
	if in.Guard != ptx.None {
		not := map[bool]string{true: "!"}[in.Not]
		t.printf("\tif (%sr%d) {\n", not, in.Guard)
		defer t.printf("\t}\n")
	}
	switch in.Op.String() {
	case "bra":
		t.printf("\tgoto B%d;\n", t.label[in.Args[0].Imm])
	case "ret", "exit":
		t.printf("\tt->at = -1;\n\treturn;\n")
	case "bar":
		if !isBarrier(in) || in.Guard != ptx.None || len(in.Args) != 1 || in.Mods.Has(ptx.Red) || in.Mods.Has(ptx.Arrive) {
			return errUnknown(in)
		}
		t.barrier(k)
	case "ld", "ldu":
		return t.load(in)
	case "st":
		return t.store(in)
	case "atom", "red":
		return t.atomic(in)
	case "setp":
		return t.compare(in)
	default:
		return t.compute(in)
	}
	return nil
}

func errUnknown(in *ptx.Inst) error {
	return fmt.Errorf("%s of type %s: this form can't be translated", in.Op, in.Type)
}

// special are the names of special registers.
var special = map[ptx.SpecialReg]string{
	ptx.TidX: "tid_x", ptx.TidY: "tid_y", ptx.TidZ: "tid_z",
	ptx.NTidX: "ntid_x", ptx.NTidY: "ntid_y", ptx.NTidZ: "ntid_z",
	ptx.CtaidX: "ctaid_x", ptx.CtaidY: "ctaid_y", ptx.CtaidZ: "ctaid_z",
	ptx.NCtaidX: "nctaid_x", ptx.NCtaidY: "nctaid_y", ptx.NCtaidZ: "nctaid_z",
}

// read returns a C expression for an operand, as a value of type typ.
func (t *translator) read(o *ptx.Operand, typ ptx.Type) (string, error) {
	switch o.Kind {
	case ptx.Register:
		not := map[bool]string{true: "!"}[o.Not]
		return not + convert(fmt.Sprintf("r%d", o.Reg), t.body.Regs[o.Reg], typ), nil
	case ptx.Integer:
		return fmt.Sprintf("(%s)%#xull", cType(typ), o.Imm), nil
	case ptx.Float32:
		return convert(fmt.Sprintf("as_f32(%#x)", o.Imm), ptx.F32, typ), nil
	case ptx.Float64:
		return convert(fmt.Sprintf("as_f64(%#xull)", o.Imm), ptx.F64, typ), nil
	case ptx.Special:
		if name, ok := special[ptx.SpecialReg(o.Imm)]; ok {
			return convert(name, ptx.U32, typ), nil
		}
	case ptx.Symbol:
		if o.Var.Space == ptx.Shared {
			return fmt.Sprintf("(%s)%#xull", cType(typ), uint64(o.Var.Offset)+o.Imm), nil
		}
	}
	return "", fmt.Errorf("this operand can't be translated")
}

// convert returns the bits of a C value of type from as a value of type to.
func convert(value string, from, to ptx.Type) string {
	switch {
	case from == to || from == ptx.Pred:
		return value
	case from.Float() && to.Float():
		return value // a move between registers of one type, by another name
	case from.Float():
		return fmt.Sprintf("(%s)bits%d(%s)", cType(to), 8*from.Size(), value)
	case to.Float():
		return fmt.Sprintf("as_f%d(%s)", 8*to.Size(), value)
	}
	return fmt.Sprintf("(%s)%s", cType(to), value)
}

// write stores a value of type typ in a register.
func (t *translator) write(o *ptx.Operand, typ ptx.Type, value string) {
	if o.Kind != ptx.Sink {
		t.printf("\tr%d = %s;\n", o.Reg, convert("("+value+")", typ, t.body.Regs[o.Reg]))
	}
}

// address returns a C expression for the address of an operand.
func (t *translator) address(in *ptx.Inst, o *ptx.Operand) (string, error) {
	space := in.Mods.Space()
	if o.Var != nil {
		space = o.Var.Space
	}
	at := fmt.Sprintf("%#xull", o.Imm)
	switch {
	case o.Var != nil:
		at = fmt.Sprintf("%#xull", uint64(o.Var.Offset)+o.Imm)
	case o.Reg != ptx.None:
		at = fmt.Sprintf("r%d + %s", o.Reg, at)
	}
	switch {
	case space == ptx.Shared:
		return fmt.Sprintf("(shared_%s + (%s))", t.body.Func.Name, at), nil
	case space == ptx.ParamSpace && o.Var != nil && o.Var.Kernel:
		return fmt.Sprintf("(params + (%s))", at), nil
	case (space == ptx.Global || space == ptx.Generic) && o.Var == nil:
		return fmt.Sprintf("(uintptr_t)(%s)", at), nil
	}
	return "", fmt.Errorf("this state space can't be translated")
}

func elements(o *ptx.Operand) []ptx.Operand {
	if o.Kind == ptx.Vector {
		return o.Elems
	}
	return []ptx.Operand{*o}
}

func (t *translator) load(in *ptx.Inst) error {
	at, err := t.address(in, &in.Args[1])
	if err != nil {
		return err
	}
	// All values first: the address may be in a register that is written.
	c, list := cType(in.Type), elements(&in.Args[0])
	t.printf("\t{\n\tconst %s *from = (const %[1]s *)%s;\n\tconst %[1]s ", c, at)
	for i := range list {
		t.printf("%sv%d = from[%[2]d]", map[bool]string{true: ", "}[i > 0], i)
	}
	t.printf(";\n")
	for i := range list {
		t.write(&list[i], in.Type, fmt.Sprintf("v%d", i))
	}
	t.printf("\t}\n")
	return nil
}

func (t *translator) store(in *ptx.Inst) error {
	at, err := t.address(in, &in.Args[0])
	if err != nil {
		return err
	}
	for i, e := range elements(&in.Args[1]) {
		v, err := t.read(&e, in.Type)
		if err != nil {
			return err
		}
		t.printf("\t((%s *)%s)[%d] = %s;\n", cType(in.Type), at, i, v)
	}
	return nil
}

// atomic writes a plain access: there is only one processor.
func (t *translator) atomic(in *ptx.Inst) error {
	args := in.Args
	if in.Op.String() == "red" {
		args = append([]ptx.Operand{{Kind: ptx.Sink}}, args...)
	}
	at, err := t.address(in, &args[1])
	if err != nil {
		return err
	}
	v, err := t.read(&args[2], in.Type)
	if err != nil {
		return err
	}
	op := map[ptx.Mod]string{ptx.Add: "old + v", ptx.Min: "v < old ? v : old", ptx.Max: "v > old ? v : old",
		ptx.And: "old & v", ptx.Or: "old | v", ptx.Xor: "old ^ v", ptx.Exch: "v",
	}[in.Mods.First(ptx.RN, ptx.Add, ptx.Min, ptx.Max, ptx.And, ptx.Or, ptx.Xor, ptx.Exch)]
	if op == "" {
		return errUnknown(in)
	}
	t.printf("\t{\n\t%s *p = (%[1]s *)%s, v = %s, old = *p;\n\t*p = %s;\n", cType(in.Type), at, v, op)
	t.write(&args[0], in.Type, "old")
	t.printf("\t}\n")
	return nil
}

// comparisons of numbers; those that are true of NaN are negations of the others.
var comparisons = map[ptx.Mod]string{
	ptx.EQ: "a == b", ptx.NE: "a != b", ptx.LT: "a < b", ptx.LE: "a <= b", ptx.GT: "a > b", ptx.GE: "a >= b",
	ptx.Lo: "a < b", ptx.LSU: "a <= b", ptx.Hi: "a > b", ptx.HSU: "a >= b",
	ptx.EQU: "!(a < b || a > b)", ptx.NEU: "a != b", ptx.LTU: "!(a >= b)", ptx.LEU: "!(a > b)", ptx.GTU: "!(a <= b)", ptx.GEU: "!(a < b)",
	ptx.NUM: "a == a && b == b", ptx.NAN: "a != a || b != b",
}

func (t *translator) compare(in *ptx.Inst) error {
	op := comparisons[in.Mods.First(ptx.RN, ptx.EQ, ptx.NE, ptx.LT, ptx.LE, ptx.GT, ptx.GE, ptx.Lo, ptx.LSU, ptx.Hi, ptx.HSU,
		ptx.EQU, ptx.NEU, ptx.LTU, ptx.LEU, ptx.GTU, ptx.GEU, ptx.NUM, ptx.NAN)]
	if op == "" || len(in.Args) != 3 || in.Args[0].Pair != ptx.None || in.Mods.Has(ptx.FTZ) {
		return errUnknown(in)
	}
	if in.Type.Float() && in.Mods.Has(ptx.NE) {
		op = "a < b || a > b"
	}
	return t.express(in, ptx.Pred, op, in.Type, in.Type)
}

// express assigns to the first argument an expression of a, b and c, which are the others as values of their
// types.
func (t *translator) express(in *ptx.Inst, result ptx.Type, expression string, types ...ptx.Type) error {
	flushed := in.Mods.Has(ptx.FTZ) && !approximate(in)
	t.printf("\t{\n")
	for i, typ := range types {
		v, err := t.read(&in.Args[i+1], typ)
		if err != nil {
			return err
		}
		if flushed && typ == ptx.F32 {
			v = "flush(" + v + ")"
		}
		t.printf("\tconst %s %c = %s;\n", cType(typ), 'a'+i, v)
	}
	if flushed && result == ptx.F32 {
		expression = "flush(" + expression + ")"
	}
	t.write(&in.Args[0], result, expression)
	t.printf("\t}\n")
	return nil
}

// approximate reports whether an operation only bounds the error: then subnormal numbers stay as they are,
// too.
func approximate(in *ptx.Inst) bool { return in.Mods.Has(ptx.Approx) || in.Mods.Has(ptx.Full) }

// The operations, by opcode. $U stands for the type without a sign, $W for that
// of double width, $N for the number of bits, $F for the ending of libm's names.
var (
	integer = map[string]string{
		"add": "($U)a + ($U)b", "sub": "($U)a - ($U)b", "neg": "-($U)a", "abs": "a < 0 ? -($U)a : a",
		"mul.lo": "($U)a * ($U)b", "mul.wide": "($W)a * b", "mul.hi": "($W)a * b >> $N",
		"mad.lo": "($U)a * ($U)b + ($U)c", "mad.hi": "(($W)a * b >> $N) + c", "mad.wide": "($W)a * b + c",
		"div": "a / b", "rem": "a % b", "min": "a < b ? a : b", "max": "a > b ? a : b",
		"and": "a & b", "or": "a | b", "xor": "a ^ b", "not": "~a",
		"shl": "b < $N ? ($U)a << b : 0", "shr": "b < $N ? a >> b : a < 0 ? -1 : 0",
		"selp": "c ? a : b", "mov": "a", "cvta": "a", "bfe": "bit_field(a, b, c, $N)",
	}
	float = map[string]string{
		"add": "a + b", "sub": "a - b", "mul": "a * b", "div": "a / b", "fma": "fma$F(a, b, c)", "mad": "fma$F(a, b, c)",
		"neg": "-a", "abs": "fabs$F(a)", "sqrt": "sqrt$F(a)", "rcp": "1 / a", "rsqrt": "1 / sqrt$F(a)",
		"sin": "sin$F(a)", "cos": "cos$F(a)", "ex2": "exp2$F(a)", "lg2": "log2$F(a)", "tanh": "tanh$F(a)",
		"selp": "c ? a : b", "mov": "a",
	}
)

// compute writes an instruction that only works on registers.
func (t *translator) compute(in *ptx.Inst) error {
	name, result, types := in.Op.String(), in.Type, make([]ptx.Type, len(in.Args)-1)
	for i := range types {
		types[i] = in.Type
	}
	table, ending := integer, ""
	switch {
	case name == "cvt":
		return t.cvt(in)
	case in.Type == ptx.F32:
		table, ending = float, "f"
	case in.Type == ptx.F64:
		table = float
	case name == "mul" || name == "mad":
		name += map[ptx.Mod]string{ptx.Lo: ".lo", ptx.Hi: ".hi", ptx.Wide: ".wide"}[in.Mods.First(ptx.RN, ptx.Lo, ptx.Hi, ptx.Wide)]
	}
	switch name {
	case "mul.wide", "mad.wide":
		result = wide[in.Type]
		types[len(types)-1] = map[bool]ptx.Type{false: in.Type, true: result}[len(types) == 3]
	case "shl", "shr":
		types[1] = ptx.U32
	case "bfe":
		types[1], types[2] = ptx.U32, ptx.U32
	case "selp":
		types[2] = ptx.Pred
	}
	expression, ok := table[name]
	if !ok || !plain(in) || name == "bfe" && in.Type.Signed() || name == "cvta" && in.Mods.Space() != ptx.Global {
		return errUnknown(in)
	}
	expression = strings.NewReplacer("$U", cType(unsigned[in.Type.Size()]), "$W", cType(wide[in.Type]),
		"$N", fmt.Sprint(8*in.Type.Size()), "$F", ending).Replace(expression)
	return t.express(in, result, expression, types...)
}

// plain reports whether an operation neither carries nor saturates, and rounds to the nearest.
func plain(in *ptx.Inst) bool {
	return !in.Mods.Has(ptx.CC) && !in.Mods.Has(ptx.SAT) && in.Mods.First(ptx.RN, ptx.RZ, ptx.RM, ptx.RP) == ptx.RN && !in.Type.Half()
}

// cvt writes a conversion from an integer.
func (t *translator) cvt(in *ptx.Inst) error {
	if !plain(in) || in.Type2.Float() || in.Type.Float() && in.Type != ptx.F32 && in.Type != ptx.F64 {
		return errUnknown(in)
	}
	return t.express(in, in.Type, fmt.Sprintf("(%s)a", cType(in.Type)), in.Type2)
}

var (
	wide     = map[ptx.Type]ptx.Type{ptx.U16: ptx.U32, ptx.U32: ptx.U64, ptx.S16: ptx.S32, ptx.S32: ptx.S64}
	unsigned = map[int]ptx.Type{0: ptx.Pred, 1: ptx.U8, 2: ptx.U16, 4: ptx.U32, 8: ptx.U64}
)
