package main

import (
	"fmt"
	"strings"
)

// operand is a parameter of a kernel.
type operand struct {
	letter, kind  string
	pointer, step string // registers
	slot          int    // where a single value is spread, below the frame's top
}

// operandRegisters are the registers of the operands' pointers and steps.
var operandRegisters = [][2]string{{"SI", "R8"}, {"DX", "R9"}, {"CX", "R10"}}

// kernel is the vector version of an operation. It computes n lanes, a multiple of 16, or of 64 if the result is a row
// of bits. An operand with its bit set in the kernel's argument scalars is a single value: the kernel first fills a
// vector on the stack with it, and each iteration reads that vector. What kernels have in common are macros: those of
// rows_amd64.h, and one for each choice of operands.
type kernel struct {
	*isa
	op       *operation
	operands []operand
	frame    int // size of the vectors on the stack
}

// write writes the kernel, or nothing if the instruction set lacks something that it needs.
func (s *source) write(b *strings.Builder, op *operation, set *isa, p *pool, entries map[string]*kernel) (done bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(unsupported); !ok {
				panic(r)
			}
			done = false
		}
	}()
	k := &kernel{isa: set, op: op}
	for i, t := range strings.Fields(op.types) {
		if t != "bit" {
			k.frame += k.stepOf(t)
		}
		k.operands = append(k.operands, operand{"abc"[i : i+1], t, operandRegisters[i][0], operandRegisters[i][1], k.frame})
	}
	setup, body, err := s.body(k, p)
	if err != nil {
		return false
	}
	entries[k.entry()] = k
	k.print(b, setup, body)
	return true
}

// body compiles the loop's body.
func (s *source) body(k *kernel, p *pool) (setup, body []string, err error) {
	c := &compiler{&code{isa: k.isa, consts: map[vec]string{}, known: map[string]vec{}, pool: p}, s}
	var args []value
	for _, o := range k.operands {
		args = append(args, c.load(o))
	}
	if k.op.guard != "" {
		c.guard(c.call("guard_"+k.op.name, args))
	}
	c.store(k.op.out, c.call("row_"+k.op.name, args))
	return c.assemble()
}

// load emits the load of a vector of lanes.
func (c *compiler) load(o operand) value {
	if o.kind != "bit" {
		return each(o.kind, parts(o.kind), func(i int) vec {
			return c.op("VMOVUPS", memory(fmt.Sprintf("%d(%s)", i*c.bytes(), o.pointer)))
		})
	}
	at := memory("(" + o.pointer + ")")
	if c.masks {
		return value{kind: "bool", n: 1, v: [2]vec{c.mask("KMOVW", at)}}
	}
	place := c.symbol(c.pool.numbers("places", func(i int) uint32 { return 1 << (i % 8) }))
	return value{kind: "bool", n: 1, v: [2]vec{c.op("VPCMPEQD", place, c.op("VPAND", place, c.op("VPBROADCASTB", at)))}}
}

// guard leaves the loop unless m holds for all lanes.
func (c *compiler) guard(m value) {
	m = c.lanes32(m)
	if c.masks {
		c.do("KORTESTW", m.v[0], m.v[0])
		c.do("JCC done")
		return
	}
	c.do("VMOVMSKPS", m.v[0], "R11")
	c.do("CMPL R11, $0xff")
	c.do("JNE done")
}

// store emits the store of a vector of results.
func (c *compiler) store(kind string, v value) {
	if kind != "bit" {
		for i := range v.n {
			c.do("VMOVUPS", v.v[i], fmt.Sprintf("%d(DI)", i*c.bytes()))
		}
		return
	}
	v = c.lanes32(v)
	name := "VMOVMSKPS"
	if c.masks {
		name = "KMOVW"
	}
	c.do(name, v.v[0], "R11")
	c.do(fmt.Sprintf("BITS(%d, %d)", c.lanes, 64-c.lanes))
}

// print writes the whole function.
func (k *kernel) print(b *strings.Builder, setup, body []string) {
	size, next := 48, fmt.Sprintf("NEXT%d", len(k.operands))
	if k.op.guard != "" {
		size, next = 56, "PART"
	}
	lines := func(all ...string) string { return "\t" + strings.Join(all, "\n\t") + "\n" }
	fmt.Fprintf(b, "TEXT ·%s(SB), NOSPLIT, $%d-%d\n%s", k.symbol(), k.frame, size, lines(append([]string{k.entry()}, setup...)...))
	fmt.Fprintf(b, "loop:\n%s\t%s(%d, %d)\n\n", lines(body...), next, k.stepOf(k.op.out), k.lanes)
}

// stepOf returns how many bytes of a row a loop does.
func (s *isa) stepOf(kind string) int {
	if kind == "bit" {
		return s.lanes / 8
	}
	return parts(kind) * s.bytes()
}

// symbol returns the function's name.
func (k *kernel) symbol() string {
	if k.op.guard != "" {
		return k.op.name + k.name + "Part"
	}
	return k.op.name + k.name
}

// entry returns the name of the macro that begins kernels with the same kinds of operands.
func (k *kernel) entry() string {
	name := "ENTER" + k.name
	for _, o := range k.operands {
		if o.kind == "bit" {
			name += "_BIT"
		} else {
			name += fmt.Sprintf("_%d", width(o.kind))
		}
	}
	return name
}

// writeEntry writes that macro.
func (k *kernel) writeEntry(b *strings.Builder) {
	var load, spread string
	for i, o := range k.operands {
		load += fmt.Sprintf("\tOPERAND(%s+%d, %s, %s, %d); \\\n", o.letter, 8*(i+1), o.pointer, o.step, k.stepOf(o.kind))
		if o.kind == "bit" {
			continue
		}
		slot := func(n int) string { return fmt.Sprintf("%ss-%d", o.letter, o.slot-n*k.bytes()) }
		places := slot(0)
		if wide(o.kind) {
			places += ", " + slot(1)
		}
		spread += fmt.Sprintf("\tSPREAD%d(%s0, %d, %s, %s, %s); \\\n", width(o.kind), k.full, 1<<i, places, o.pointer, o.step)
	}
	fmt.Fprintf(b, "#define %s \\\n%s\tSCALARS; \\\n%sready:\n\n", k.entry(), load, spread)
}
