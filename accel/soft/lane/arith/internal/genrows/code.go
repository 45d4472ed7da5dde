package main

import (
	"fmt"
	"slices"
	"strings"
)

// isa is an instruction set that kernels are written for.
type isa struct {
	name      string // of its kernels' suffix
	lanes     int    // of 32 bits in a vector
	full      string // letter of its vector registers,
	half      string // and of their lower halves
	registers int
	masks     bool // comparisons give mask registers
}

var isas = []*isa{{"AVX2", 8, "Y", "X", 16, false}, {"AVX512", 16, "Z", "Y", 32, true}}

// bytes of a vector.
func (s *isa) bytes() int { return 4 * s.lanes }

// vec is a virtual register, which is written once.
type vec int

// class is the kind of register that a vec is allocated to.
type class uint8

const (
	vector class = iota
	maskReg
)

// half is the lower half of a vector, as an operand.
type half vec

// memory is an operand in memory.
type memory string

// inst is an instruction in the order of Go's assembler: sources, mask, result.
type inst struct {
	name    string
	args    []any // int, vec, half, memory or string
	dst     vec   // -1: none
	dstHalf bool
	// tied is the argument that the result replaces; -1: none
	tied int
	fma  bool // of args x, y, z: any may be replaced
}

// code is the body of a kernel's loop.
type code struct {
	*isa
	insts  []inst
	class  []class
	consts map[vec]string // vectors that are constants, by symbol
	order  []vec          // the constants as they came
	known  map[string]vec // results, to compute nothing twice
	pool   *pool
}

func (c *code) newVec(k class) vec {
	c.class = append(c.class, k)
	return vec(len(c.class) - 1)
}

// emit adds an instruction unless its result exists already.
func (c *code) emit(i inst, k class) vec {
	key := fmt.Sprintf("%s %v %v %d", i.name, i.args, i.dstHalf, k)
	for _, a := range i.args {
		key += fmt.Sprintf(" %T", a)
	}
	if v, ok := c.known[key]; ok {
		return v
	}
	i.dst = c.newVec(k)
	c.insts = append(c.insts, i)
	c.known[key] = i.dst
	return i.dst
}

// op returns an instruction with a vector as result.
func (c *code) op(name string, args ...any) vec {
	return c.emit(inst{name: name, args: args, tied: -1}, vector)
}

// narrow is op with half a vector as result.
func (c *code) narrow(name string, args ...any) vec {
	return c.emit(inst{name: name, args: args, tied: -1, dstHalf: true}, vector)
}

// mask is op with a mask as result, in the kind of register that the instruction set uses for it.
func (c *code) mask(name string, args ...any) vec {
	k := vector
	if c.masks {
		k = maskReg
	}
	return c.emit(inst{name: name, args: args, tied: -1}, k)
}

// replacing is op for instructions in which the last source is the result as well.
func (c *code) replacing(name string, args ...any) vec {
	return c.emit(inst{name: name, args: args, tied: len(args) - 1}, vector)
}

// fused returns x·y + z.
func (c *code) fused(kind string, x, y, z vec) vec {
	return c.emit(inst{name: kind, args: []any{x, y, z}, tied: -1, fma: true}, vector)
}

// do adds an instruction without result.
func (c *code) do(name string, args ...any) {
	c.insts = append(c.insts, inst{name: name, args: args, dst: -1, tied: -1})
}

// constant returns a vector of equal lanes of 32 or 64 bits.
func (c *code) constant(bits uint64, width int) vec { return c.symbol(c.pool.symbol(bits, width)) }

func (c *code) symbol(name string) vec {
	if v, ok := c.known["constant "+name]; ok {
		return v
	}
	v := c.newVec(vector)
	c.consts[v] = name
	c.order = append(c.order, v)
	c.known["constant "+name] = v
	return v
}

// vecOf returns the register that an argument reads, or -1.
func vecOf(a any) vec {
	switch a := a.(type) {
	case vec:
		return a
	case half:
		return vec(a)
	}
	return -1
}

// prune drops instructions with unused results.
func (c *code) prune() {
	used := map[vec]bool{}
	var kept []inst
	for _, i := range slices.Backward(c.insts) {
		if i.dst >= 0 && !used[i.dst] {
			continue
		}
		for _, a := range i.args {
			used[vecOf(a)] = true
		}
		kept = append(kept, i)
	}
	slices.Reverse(kept)
	c.insts = kept
	c.order = slices.DeleteFunc(c.order, func(v vec) bool { return !used[v] })
}

// assemble allocates real registers to the virtual ones. setup loads as many constants as there is room for, once for
// all lanes.
func (c *code) assemble() (setup, body []string, err error) {
	c.prune()
	for pinned := len(c.order); pinned >= 0; pinned-- {
		a := &allocation{code: c, last: c.lastUses(), at: map[vec]int{}}
		if setup, body = a.run(pinned); !a.full {
			return setup, body, nil
		}
	}
	return nil, nil, fmt.Errorf("needs more than %d registers", c.registers)
}

func (c *code) lastUses() map[vec]int {
	last := map[vec]int{}
	for n, i := range c.insts {
		for _, a := range i.args {
			if v := vecOf(a); v >= 0 {
				last[v] = n
			}
		}
	}
	return last
}

// allocation is an attempt to place all registers.
type allocation struct {
	*code
	last map[vec]int // instruction that reads it last
	at   map[vec]int // numbers of the real registers
	free [2][]int
	full bool
	out  []string
}

func (a *allocation) run(pinned int) (setup, body []string) {
	for r := a.registers - 1; r >= 0; r-- {
		a.free[vector] = append(a.free[vector], r)
	}
	for r := 7; r > 0; r-- {
		a.free[maskReg] = append(a.free[maskReg], r)
	}
	for _, v := range a.order[:pinned] {
		a.place(v)
		a.last[v] = len(a.insts)
		setup = append(setup, fmt.Sprintf("VMOVUPS %s<>(SB), %s", a.consts[v], a.name(v, a.isa.full)))
	}
	for n := range a.insts {
		a.inst(n, a.insts[n])
	}
	return setup, a.out
}

// place allocates a register to v.
func (a *allocation) place(v vec) {
	f := &a.free[a.class[v]]
	if len(*f) == 0 {
		a.full = true
		a.at[v] = 0
		return
	}
	a.at[v] = (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
}

func (a *allocation) drop(v vec) {
	if r, ok := a.at[v]; ok {
		a.free[a.class[v]] = append(a.free[a.class[v]], r)
		delete(a.at, v)
	}
}

func (a *allocation) name(v vec, letter string) string {
	if a.class[v] == maskReg {
		letter = "K"
	}
	return fmt.Sprintf("%s%d", letter, a.at[v])
}

// dies reports whether instruction n is the last to read v.
func (a *allocation) dies(v vec, n int) bool {
	_, placed := a.at[v]
	return placed && a.last[v] == n
}

func (a *allocation) inst(n int, i inst) {
	if i.fma {
		i = a.form(n, i)
	}
	// Constants without a register: as the operand that may be in memory, or through a register.
	var loaded []vec
	memoryTaken := slices.ContainsFunc(i.args, func(x any) bool { _, ok := x.(memory); return ok })
	for k, x := range i.args {
		v := vecOf(x)
		name := a.consts[v]
		if v < 0 || name == "" {
			continue
		}
		if _, placed := a.at[v]; placed {
			continue
		}
		if k == memoryOperand(i) && !memoryTaken {
			i.args = slices.Clone(i.args)
			i.args[k] = memory(name + "<>(SB)")
			memoryTaken = true
			continue
		}
		a.place(v)
		a.write("VMOVUPS", name+"<>(SB)", a.name(v, a.isa.full))
		loaded = append(loaded, v)
	}
	var words []string
	for k, x := range i.args {
		if k == i.tied {
			continue
		}
		words = append(words, a.operand(x))
	}
	dying := loaded
	for _, x := range i.args {
		if v := vecOf(x); v >= 0 && a.dies(v, n) {
			dying = append(dying, v)
		}
	}
	if i.tied >= 0 {
		a.tie(i, dying)
	}
	for _, v := range dying {
		a.drop(v)
	}
	if i.dst >= 0 {
		if i.tied < 0 {
			a.place(i.dst)
		}
		letter := a.isa.full
		if i.dstHalf {
			letter = a.isa.half
		}
		words = append(words, a.name(i.dst, letter))
	}
	a.write(i.name, words...)
}

// tie allocates the register of the argument that the result replaces, or of a copy, to the result.
func (a *allocation) tie(i inst, dying []vec) {
	v := vecOf(i.args[i.tied])
	if slices.Contains(dying, v) {
		a.at[i.dst] = a.at[v]
		delete(a.at, v)
		return
	}
	a.place(i.dst)
	a.write("VMOVAPS", a.name(v, a.isa.full), a.name(i.dst, a.isa.full))
}

// form picks the form of a fused multiply-add by the operands that are dead after it.
func (a *allocation) form(n int, i inst) inst {
	x, y, z := i.args[0].(vec), i.args[1].(vec), i.args[2].(vec)
	kind := i.name
	switch {
	case a.dies(z, n) && z != x && z != y:
		i.name, i.args = "VFMADD231"+kind, []any{y, x, z}
	case a.dies(y, n) && y != x && y != z:
		i.name, i.args = "VFMADD213"+kind, []any{z, x, y}
	default:
		i.name, i.args = "VFMADD213"+kind, []any{z, y, x}
	}
	i.tied, i.fma = 2, false
	return i
}

// memoryOperand returns the argument that may be in memory.
func memoryOperand(i inst) int {
	if strings.HasPrefix(i.name, "VBLENDV") {
		return 1
	}
	if len(i.args) > 0 {
		if _, imm := i.args[0].(int); imm {
			return 1
		}
	}
	if i.tied == 0 {
		return -1
	}
	return 0
}

func (a *allocation) operand(x any) string {
	switch x := x.(type) {
	case int:
		return fmt.Sprintf("$%d", x)
	case vec:
		return a.name(x, a.isa.full)
	case half:
		return a.name(vec(x), a.isa.half)
	case memory:
		return string(x)
	}
	return x.(string)
}

func (a *allocation) write(name string, words ...string) {
	a.out = append(a.out, name+" "+strings.Join(words, ", "))
}

// pool has the constants of all kernels.
type pool struct {
	values map[string][8]uint64
}

// symbol returns the name of a constant vector.
func (p *pool) symbol(bits uint64, width int) string {
	name := fmt.Sprintf("k%d_%x", width, bits)
	if width == 32 {
		bits = bits&0xffffffff | bits<<32
	}
	p.values[name] = [8]uint64{bits, bits, bits, bits, bits, bits, bits, bits}
	return name
}

// numbers returns the name of a vector of different 32-bit words.
func (p *pool) numbers(name string, f func(i int) uint32) string {
	var v [8]uint64
	for i := range 16 {
		v[i/2] |= uint64(f(i)) << (i % 2 * 32)
	}
	p.values[name] = v
	return name
}

func (p *pool) write(b *strings.Builder) {
	var names []string
	for n := range p.values {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		v := p.values[n]
		if equal := [8]uint64{v[0], v[0], v[0], v[0], v[0], v[0], v[0], v[0]}; v == equal {
			fmt.Fprintf(b, "VECTOR(%s, 0x%016x)\n", n, v[0])
			continue
		}
		for i, w := range v {
			fmt.Fprintf(b, "DATA %s<>+%d(SB)/8, $0x%016x\n", n, i*8, w)
		}
		fmt.Fprintf(b, "GLOBL %s<>(SB), RODATA|NOPTR, $64\n", n)
	}
}
