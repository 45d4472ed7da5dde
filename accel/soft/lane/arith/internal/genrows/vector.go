package main

import "fmt"

// value is the result of an expression for the lanes of one vector of 32-bit lanes: 64-bit lanes take two registers. A
// bool is a mask of 32-bit lanes, or two of 64-bit lanes.
type value struct {
	kind string // Go's type
	v    [2]vec
	n    int
	from string // integers of 64 bits: the 32-bit type that they were converted from
}

func wide(kind string) bool { return kind[len(kind)-2:] == "64" }

func float(kind string) bool { return kind[0] == 'f' }

// parts returns how many registers a kind takes.
func parts(kind string) int {
	if wide(kind) {
		return 2
	}
	return 1
}

// suffix of floating-point instructions.
func suffix(kind string) string {
	if wide(kind) {
		return "PD"
	}
	return "PS"
}

// width in bits.
func width(kind string) int {
	if wide(kind) {
		return 64
	}
	return 32
}

// fail ends the compilation of a kernel that an instruction set can't express.
func (c *code) fail(format string, args ...any) { panic(unsupported(fmt.Sprintf(format, args...))) }

type unsupported string

// each builds a value register by register.
func each(kind string, n int, f func(i int) vec) value {
	r := value{kind: kind, n: n}
	for i := range n {
		r.v[i] = f(i)
	}
	return r
}

func (c *code) splat(kind string, bits uint64) value {
	k := c.constant(bits, width(kind))
	return each(kind, parts(kind), func(int) vec { return k })
}

// logicName returns the instruction for bits.
func (c *code) logicName(op string) string {
	name := map[string]string{"&": "VPAND", "|": "VPOR", "^": "VPXOR", "&^": "VPANDN"}[op]
	if c.masks {
		name += "Q"
	}
	return name
}

func (c *code) bits(op string, x, y value) value {
	name := c.logicName(op)
	return each(x.kind, x.n, func(i int) vec {
		if op == "&^" {
			return c.op(name, x.v[i], y.v[i])
		}
		return c.op(name, y.v[i], x.v[i])
	})
}

// binary returns an arithmetic or logical operator.
func (c *code) binary(op string, x, y value) value {
	letter := "D"
	if wide(x.kind) {
		letter = "Q"
	}
	var name string
	switch {
	case op == "&" || op == "|" || op == "^" || op == "&^":
		return c.bits(op, x, y)
	case float(x.kind):
		name = map[string]string{"+": "VADD", "-": "VSUB", "*": "VMUL", "/": "VDIV"}[op] + suffix(x.kind)
	case op == "*" && wide(x.kind):
		return c.product(x, y)
	case op == "*":
		name = "VPMULLD"
	case op == "+" || op == "-":
		name = map[string]string{"+": "VPADD", "-": "VPSUB"}[op] + letter
	default:
		c.fail("operator %s of %s", op, x.kind)
	}
	return each(x.kind, x.n, func(i int) vec { return c.op(name, y.v[i], x.v[i]) })
}

// product returns the lower half of a 64-bit product.
func (c *code) product(x, y value) value {
	return each(x.kind, x.n, func(i int) vec {
		a, b := x.v[i], y.v[i]
		switch {
		case x.from == "uint32" && y.from == "uint32":
			return c.op("VPMULUDQ", b, a)
		case x.from == "int32" && y.from == "int32":
			return c.op("VPMULDQ", b, a)
		case c.masks:
			return c.op("VPMULLQ", b, a)
		}
		cross := c.op("VPADDQ", c.op("VPMULUDQ", b, c.op("VPSRLQ", 32, a)), c.op("VPMULUDQ", a, c.op("VPSRLQ", 32, b)))
		return c.op("VPADDQ", c.op("VPSLLQ", 32, cross), c.op("VPMULUDQ", b, a))
	})
}

// shift returns x << y or x >> y, with Go's semantics for large counts.
func (c *code) shift(op string, x, y value) value {
	letter := "D"
	if wide(x.kind) {
		letter = "Q"
		if !wide(y.kind) {
			y = c.convert(y, "uint64")
		}
	}
	arithmetic := op == ">>" && x.kind[0] == 'i'
	switch {
	case arithmetic && wide(x.kind) && !c.masks:
		sign, most := c.constant(1<<63, 64), c.constant(63, 64)
		return each(x.kind, x.n, func(i int) vec {
			n := c.op("VPMINUD", most, y.v[i])
			s := c.op("VPSRLVQ", n, sign)
			return c.op("VPSUBQ", s, c.op("VPXOR", s, c.op("VPSRLVQ", n, x.v[i])))
		})
	case arithmetic:
		return each(x.kind, x.n, func(i int) vec { return c.op("VPSRAV"+letter, y.v[i], x.v[i]) })
	case op == "<<":
		return each(x.kind, x.n, func(i int) vec { return c.op("VPSLLV"+letter, y.v[i], x.v[i]) })
	}
	return each(x.kind, x.n, func(i int) vec { return c.op("VPSRLV"+letter, y.v[i], x.v[i]) })
}

// shiftBy returns a shift by a constant.
func (c *code) shiftBy(op string, x value, by int) value {
	if by >= width(x.kind) {
		c.fail("shift by %d", by)
	}
	name := "VPSLL"
	if op == ">>" {
		name = "VPSRL"
		if x.kind[0] == 'i' {
			name = "VPSRA"
		}
	}
	if !wide(x.kind) {
		return each(x.kind, x.n, func(i int) vec { return c.op(name+"D", by, x.v[i]) })
	}
	if name == "VPSRA" && !c.masks {
		return c.shift(op, x, c.splat("uint64", uint64(by)))
	}
	return each(x.kind, x.n, func(i int) vec { return c.op(name+"Q", by, x.v[i]) })
}

// extreme returns the min or max of integers.
func (c *code) extreme(name string, x, y value) value {
	if wide(x.kind) && !c.masks {
		op := map[string]string{"min": "<", "max": ">"}[name]
		return c.choose(c.compare(op, x, y), x, y)
	}
	letters := map[string]string{"uint32": "UD", "int32": "SD", "uint64": "UQ", "int64": "SQ"}[x.kind]
	name = map[string]string{"min": "VPMIN", "max": "VPMAX"}[name] + letters
	return each(x.kind, x.n, func(i int) vec { return c.op(name, y.v[i], x.v[i]) })
}

// Predicates of comparison instructions.
var (
	floatPredicates   = map[string]int{"==": 0, "<": 0x11, "<=": 0x12, "!=": 4, ">=": 0x1d, ">": 0x1e}
	integerPredicates = map[string]int{"==": 0, "<": 1, "<=": 2, "!=": 4, ">=": 5, ">": 6}
)

// compare returns a bool.
func (c *code) compare(op string, x, y value) value {
	if float(x.kind) {
		return each("bool", x.n, func(i int) vec {
			return c.mask("VCMP"+suffix(x.kind), floatPredicates[op], y.v[i], x.v[i])
		})
	}
	if c.masks {
		name := map[string]string{"uint32": "VPCMPUD", "int32": "VPCMPD", "uint64": "VPCMPUQ", "int64": "VPCMPQ"}[x.kind]
		return each("bool", x.n, func(i int) vec { return c.mask(name, integerPredicates[op], y.v[i], x.v[i]) })
	}
	letter := "D"
	if wide(x.kind) {
		letter = "Q"
	}
	if x.kind[0] == 'u' && op != "==" && op != "!=" {
		top := c.splat(x.kind, 1<<(width(x.kind)-1))
		x, y = c.bits("^", x, top), c.bits("^", y, top)
	}
	switch op {
	case "==":
		return each("bool", x.n, func(i int) vec { return c.mask("VPCMPEQ"+letter, y.v[i], x.v[i]) })
	case ">":
		return each("bool", x.n, func(i int) vec { return c.mask("VPCMPGT"+letter, y.v[i], x.v[i]) })
	case "<":
		return each("bool", x.n, func(i int) vec { return c.mask("VPCMPGT"+letter, x.v[i], y.v[i]) })
	case "!=":
		return c.not(c.compare("==", x, y))
	}
	signed := x
	signed.kind = "int" + x.kind[len(x.kind)-2:]
	return c.not(c.compare(map[string]string{"<=": ">", ">=": "<"}[op], signed, y))
}

func (c *code) not(x value) value {
	if c.masks {
		return each("bool", x.n, func(i int) vec { return c.mask("KNOTW", x.v[i]) })
	}
	ones := c.constant(0xffffffff, 32)
	return each("bool", x.n, func(i int) vec { return c.op("VPXOR", ones, x.v[i]) })
}

// logical returns && or ||.
func (c *code) logical(op string, x, y value) value {
	if x.n != y.n {
		x, y = c.lanes32(x), c.lanes32(y)
	}
	name := map[string]string{"&&": "VPAND", "||": "VPOR"}[op]
	if c.masks {
		name = map[string]string{"&&": "KANDW", "||": "KORW"}[op]
	}
	return each("bool", x.n, func(i int) vec { return c.mask(name, y.v[i], x.v[i]) })
}

// lanes32 returns a bool as a mask of 32-bit lanes, lanes64 as masks of 64-bit lanes.
func (c *code) lanes32(m value) value {
	if m.n == 1 {
		return m
	}
	if c.masks {
		return value{kind: "bool", n: 1, v: [2]vec{c.mask("KUNPCKBW", m.v[0], m.v[1])}}
	}
	return value{kind: "bool", n: 1, v: [2]vec{c.evenWords(m.v[0], m.v[1])}}
}

func (c *code) lanes64(m value) value {
	if m.n == 2 {
		return m
	}
	if c.masks {
		return value{kind: "bool", n: 2, v: [2]vec{m.v[0], c.mask("KSHIFTRW", 8, m.v[0])}}
	}
	return value{kind: "bool", n: 2, v: [2]vec{c.op("VPMOVSXDQ", half(m.v[0])), c.op("VPMOVSXDQ", half(c.upper(m.v[0])))}}
}

// evenWords returns the even 32-bit words of two registers.
func (c *code) evenWords(lo, hi vec) vec {
	if c.masks {
		even := c.symbol(c.pool.numbers("even", func(i int) uint32 { return uint32(2 * i) }))
		return c.replacing("VPERMT2D", hi, even, lo)
	}
	return c.op("VPERMQ", 0xd8, c.op("VSHUFPS", 0x88, hi, lo))
}

// upper returns the upper half of a register, as a lower half.
func (c *code) upper(v vec) vec {
	if c.masks {
		return c.narrow("VEXTRACTF64X4", 1, v)
	}
	return c.narrow("VEXTRACTF128", 1, v)
}

// both joins two halves in one register.
func (c *code) both(lo, hi vec) vec {
	if c.masks {
		return c.op("VINSERTF64X4", 1, half(hi), lo)
	}
	return c.op("VINSERTF128", 1, half(hi), lo)
}

// choose returns x where m holds, else y.
func (c *code) choose(m, x, y value) value {
	if x.kind == "bool" {
		return c.logical("||", c.logical("&&", m, x), c.logical("&&", c.not(m), y))
	}
	if wide(x.kind) {
		m = c.lanes64(m)
	} else {
		m = c.lanes32(m)
	}
	return each(x.kind, x.n, func(i int) vec {
		if c.masks {
			return c.op("VBLENDM"+suffix(x.kind), x.v[i], y.v[i], m.v[i])
		}
		return c.op("VBLENDV"+suffix(x.kind), m.v[i], x.v[i], y.v[i])
	})
}

// widen applies an instruction that doubles lanes to both halves.
func (c *code) widen(name, kind string, x value) value {
	return value{kind: kind, n: 2, v: [2]vec{c.op(name, half(x.v[0])), c.op(name, half(c.upper(x.v[0])))}}
}

// halved applies an instruction that halves lanes to both registers.
func (c *code) halved(name, kind string, x value) value {
	if !c.masks {
		name += "Y"
	}
	return value{kind: kind, n: 1, v: [2]vec{c.both(c.narrow(name, x.v[0]), c.narrow(name, x.v[1]))}}
}

// convert is Go's conversion.
func (c *code) convert(x value, to string) value {
	from := x.kind
	if from == to {
		return x
	}
	r := x
	r.kind = to
	switch from + " " + to {
	case "uint32 int32", "int32 uint32", "uint64 int64", "int64 uint64":
		return r
	case "uint32 uint64", "uint32 int64":
		r = c.widen("VPMOVZXDQ", to, x)
		r.from = from
		return r
	case "int32 int64", "int32 uint64":
		r = c.widen("VPMOVSXDQ", to, x)
		r.from = from
		return r
	case "uint64 uint32", "int64 uint32", "uint64 int32", "int64 int32":
		return value{kind: to, n: 1, v: [2]vec{c.evenWords(x.v[0], x.v[1])}}
	case "float32 float64":
		return c.widen("VCVTPS2PD", to, x)
	case "float64 float32":
		return c.halved("VCVTPD2PS", to, x)
	case "int32 float32":
		return each(to, 1, func(i int) vec { return c.op("VCVTDQ2PS", x.v[i]) })
	case "int32 float64":
		return c.widen("VCVTDQ2PD", to, x)
	case "float32 int32":
		return each(to, 1, func(i int) vec { return c.op("VCVTTPS2DQ", x.v[i]) })
	case "float64 int32":
		return c.halved("VCVTTPD2DQ", to, x)
	}
	if c.masks {
		return c.convertUnsigned(x, to)
	}
	switch from + " " + to {
	case "uint32 float64":
		two52 := c.splat("uint64", 0x433<<52)
		r = c.bits("|", c.convert(x, "uint64"), two52)
		r.kind, two52.kind = to, to
		return c.binary("-", r, two52)
	case "uint32 float32":
		return c.convert(c.convert(x, "float64"), to)
	case "float64 uint32":
		// Values from 2^31 on lose their top bit first.
		m := c.compare(">=", x, c.splat(from, 0x41e<<52))
		zero := c.splat(from, 0)
		small := c.binary("-", x, c.choose(m, c.splat(from, 0x41e<<52), zero))
		top := c.choose(m, c.splat(to, 1<<31), c.splat(to, 0))
		r = c.halved("VCVTTPD2DQ", to, small)
		return c.bits("^", r, top)
	}
	c.fail("conversion of %s to %s", from, to)
	return r
}

// convertUnsigned returns the conversions that only AVX-512 has.
func (c *code) convertUnsigned(x value, to string) value {
	from := x.kind
	switch from + " " + to {
	case "uint32 float32":
		return each(to, 1, func(i int) vec { return c.op("VCVTUDQ2PS", x.v[i]) })
	case "uint32 float64":
		return c.widen("VCVTUDQ2PD", to, x)
	case "float64 uint32":
		return c.halved("VCVTTPD2UDQ", to, x)
	case "float32 uint32":
		return each(to, 1, func(i int) vec { return c.op("VCVTTPS2UDQ", x.v[i]) })
	}
	name := map[string]string{
		"int64 float64": "VCVTQQ2PD", "uint64 float64": "VCVTUQQ2PD", "float64 int64": "VCVTTPD2QQ", "float64 uint64": "VCVTTPD2UQQ",
	}[from+" "+to]
	switch {
	case name != "":
		return each(to, 2, func(i int) vec { return c.op(name, x.v[i]) })
	case from == "int64" && to == "float32":
		return c.halved("VCVTQQ2PS", to, x)
	case from == "uint64" && to == "float32":
		return c.halved("VCVTUQQ2PS", to, x)
	}
	c.fail("conversion of %s to %s", from, to)
	return x
}

// round returns math.Floor and its like, by the instruction's number.
func (c *code) round(x value, mode int) value {
	name := "VROUND"
	if c.masks {
		name = "VRNDSCALE"
	}
	return each(x.kind, x.n, func(i int) vec { return c.op(name+suffix(x.kind), 8|mode, x.v[i]) })
}

// flush replaces subnormal numbers by zeroes of the same sign.
func (c *code) flush(x value) value {
	if c.masks {
		sign := c.constant(1<<31, 32)
		subnormal := c.mask("VFPCLASSPSZ", 0x20, x.v[0])
		return each(x.kind, 1, func(i int) vec {
			return c.emit(inst{name: "VPANDD", args: []any{sign, x.v[i], subnormal, x.v[i]}, tied: 3}, vector)
		})
	}
	exponent := c.op("VPAND", c.constant(0x7f800000, 32), x.v[0])
	zero := c.op("VPCMPEQD", c.constant(0, 32), exponent)
	magnitude := c.op("VPAND", c.constant(0x7fffffff, 32), zero)
	return each(x.kind, 1, func(i int) vec { return c.op("VPANDN", x.v[i], magnitude) })
}
