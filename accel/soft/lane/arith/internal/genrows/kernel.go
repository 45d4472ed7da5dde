package main

import (
	"fmt"
	"slices"
	"strings"
)

// operand is a parameter of a kernel.
type operand struct {
	letter, kind   string
	pointer, step  string // registers
	slot, slotSize int    // where a scalar is spread on the stack
}

// kernel is the vector version of an operation. It computes n lanes, a multiple of 16, or of 64 if the result is a row
// of bits. An operand with its bit set in the kernel's argument scalars is a single value: the kernel first fills a
// vector on the stack with it, and each iteration reads that vector.
type kernel struct {
	*isa
	op       *operation
	operands []operand
	frame    int
}

// write writes the kernel, or nothing if the instruction set lacks something that it needs.
func (s *source) write(b *strings.Builder, op *operation, set *isa, p *pool) (done bool) {
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
		o := operand{letter: "abc"[i : i+1], kind: t, pointer: []string{"SI", "DX", "CX"}[i], step: []string{"R8", "R9", "R10"}[i]}
		if t != "bit" {
			o.slotSize = parts(t) * set.bytes()
			k.frame += o.slotSize
			o.slot = k.frame
		}
		k.operands = append(k.operands, o)
	}
	setup, body, err := s.body(k, p)
	if err != nil {
		return false
	}
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
	// R12 collects the bits of 64 lanes. It is stored each time that some are added; the last time they are complete.
	c.do(fmt.Sprintf("SHRQ $%d, R12", c.lanes))
	c.do(fmt.Sprintf("SHLQ $%d, R11", 64-c.lanes))
	c.do("ORQ R11, R12")
	c.do("MOVQ DI, R13")
	c.do("ANDQ $~7, R13")
	c.do("MOVQ R12, (R13)")
}

// print writes the whole function.
func (k *kernel) print(b *strings.Builder, setup, body []string) {
	guarded := k.op.guard != ""
	size := 48
	if guarded {
		size = 56
	}
	line := func(format string, args ...any) { fmt.Fprintf(b, "\t"+format+"\n", args...) }
	fmt.Fprintf(b, "TEXT ·%s(SB), NOSPLIT, $%d-%d\n", k.symbol(), k.frame, size)
	line("MOVQ d+0(FP), DI")
	for i, o := range k.operands {
		line("MOVQ %s+%d(FP), %s", o.letter, 8*(i+1), o.pointer)
		line("MOVL $%d, %s", k.stepOf(o.kind), o.step)
	}
	line("MOVQ n+32(FP), BX")
	k.spread(line)
	b.WriteString("\nready:\n")
	for _, s := range setup {
		line("%s", s)
	}
	b.WriteString("\nloop:\n")
	for _, s := range body {
		line("%s", s)
	}
	line("ADDQ $%d, DI", k.stepOf(k.op.out))
	for _, o := range k.operands {
		line("ADDQ %s, %s", o.step, o.pointer)
	}
	line("SUBQ $%d, BX", k.lanes)
	line("JGT loop")
	if guarded {
		b.WriteString("\ndone:\n")
		line("MOVQ BX, ret+48(FP)")
	}
	line("VZEROUPPER")
	line("RET")
	b.WriteString("\n")
}

// stepOf returns how many bytes of a row a loop does.
func (k *kernel) stepOf(kind string) int {
	if kind == "bit" {
		return k.lanes / 8
	}
	return parts(kind) * k.bytes()
}

// symbol returns the function's name.
func (k *kernel) symbol() string {
	if k.op.guard != "" {
		return k.op.name + k.name + "Part"
	}
	return k.op.name + k.name
}

// spread stores the scalars on the stack, as vectors of equal lanes.
func (k *kernel) spread(line func(string, ...any)) {
	rows := slices.DeleteFunc(slices.Clone(k.operands), func(o operand) bool { return o.slotSize == 0 })
	line("MOVQ scalars+40(FP), AX")
	line("TESTL AX, AX")
	line("JEQ ready")
	line("XORL R11, R11")
	for i, o := range rows {
		name := "VPBROADCASTD"
		if wide(o.kind) {
			name = "VPBROADCASTQ"
		}
		line("%s (%s), %s0", name, o.pointer, k.full)
		for part := range parts(o.kind) {
			line("VMOVUPS %s0, %s", k.full, slot(o, part*k.bytes()))
		}
		line("LEAQ %s, R12", slot(o, 0))
		line("TESTL $%d, AX", 1<<i)
		line("CMOVQNE R12, %s", o.pointer)
		line("CMOVQNE R11, %s", o.step)
	}
}

func slot(o operand, off int) string { return fmt.Sprintf("%s-%d(SP)", o.letter+"s", o.slot-off) }
