package ptx

import (
	"encoding/binary"
	"slices"
)

// code has the instructions of a function in a compact encoding, as thousands of functions of a module may never be
// executed. Body unpacks the functions that a kernel needs.
type code struct {
	templates *templates
	// packed has, for each instruction, the number of its template, its line,
	// guard and operands.
	packed   []byte
	count    int     // of instructions
	operands int     // in all of them, those within others included
	targets  []int32 // instructions that labels stand for, by the operands' Imm
	vars     []*Var  // that operands refer to
	uses     []use   // in the order of the text
}

// use is the information on an instruction that linking needs.
type use struct {
	kind useKind
	line int32
	v    *Var  // in shared memory; only its first use in a function is one
	fn   *Func // called, or pointed to
}

type useKind uint8

const (
	ofShared useKind = iota
	ofCallee
	ofPrototype // of a call by address
	ofPointer   // to a function
)

// templates are the common parts of instructions that differ in their operands only.
type templates struct {
	list   []Inst
	number map[template]int
}

// template is an instruction without its line, guard and operands.
type template struct {
	op    Op
	types [4]Type
	mods  Mods
	form  string
}

// of returns the number of an instruction's template.
func (t *templates) of(in *Inst) int {
	key := template{in.Op, [4]Type{in.Type, in.Type2, in.Type3, in.Type4}, in.Mods, in.Form}
	n, ok := t.number[key]
	if !ok {
		n = len(t.list)
		t.number[key] = n
		t.list = append(t.list, Inst{Guard: None, Op: in.Op, Type: in.Type, Type2: in.Type2, Type3: in.Type3, Type4: in.Type4, Mods: in.Mods, Form: in.Form})
	}
	return n
}

// Each operand begins with its kind, and with flags for its optional fields.
const (
	kindBits = 4
	hasNot   = 1 << (kindBits + iota - 1)
	hasReg
	hasPair
	hasSel
	hasImm
	hasVar
	hasFunc
	hasElems
)

// packer packs the instructions of one function after the other.
type packer struct {
	code          // of the current function; its lists are used again
	number int32  // of the current function
	line   int32  // of the instruction before
	store  []byte // for the packed code of many functions
}

// begin makes the packer ready for the next function.
func (k *packer) begin() {
	k.code = code{templates: k.templates, packed: k.packed[:0], targets: k.targets[:0], vars: k.vars[:0], uses: k.uses[:0]}
	k.number++
	k.line = 0
}

// storeSize is the allocation unit of packed code, in bytes.
const storeSize = 64 << 10

// end returns the code of the function.
func (k *packer) end() code {
	c := k.code
	if cap(k.store)-len(k.store) < len(c.packed) {
		k.store = make([]byte, 0, max(storeSize, len(c.packed)))
	}
	at := len(k.store)
	k.store = append(k.store, c.packed...)
	c.packed = k.store[at:len(k.store):len(k.store)]
	c.targets, c.vars, c.uses = slices.Clone(c.targets), slices.Clone(c.vars), slices.Clone(c.uses)
	return c
}

// add packs an instruction with the given template.
func (k *packer) add(in *Inst, template int) {
	b := binary.AppendUvarint(k.packed, uint64(template))
	b = binary.AppendVarint(b, int64(in.Line-k.line))
	guard := uint64(in.Guard+1) << 1
	if in.Not {
		guard |= 1
	}
	k.packed = binary.AppendUvarint(b, guard)
	k.line = in.Line
	k.count++
	k.list(in.Args)
}

func (k *packer) list(list []Operand) {
	k.packed = binary.AppendUvarint(k.packed, uint64(len(list)))
	k.operands += len(list)
	for i := range list {
		k.operand(&list[i])
	}
}

func (k *packer) operand(o *Operand) {
	flags := uint16(o.Kind)
	set := func(flag uint16, is bool) {
		if is {
			flags |= flag
		}
	}
	set(hasNot, o.Not)
	set(hasReg, o.Reg != None)
	set(hasPair, o.Pair != None)
	set(hasSel, o.Sel != Selector{})
	set(hasImm, o.Imm != 0)
	set(hasVar, o.Var != nil)
	set(hasFunc, o.Func != nil)
	set(hasElems, len(o.Elems) > 0)
	b := binary.LittleEndian.AppendUint16(k.packed, flags)
	if flags&hasReg != 0 {
		b = binary.AppendUvarint(b, uint64(o.Reg))
	}
	if flags&hasPair != 0 {
		b = binary.AppendUvarint(b, uint64(o.Pair))
	}
	if flags&hasSel != 0 {
		half := byte(0)
		if o.Sel.Half {
			half = 1
		}
		b = binary.LittleEndian.AppendUint16(append(b, half, o.Sel.N), o.Sel.parts)
	}
	if flags&hasImm != 0 {
		b = binary.AppendUvarint(b, o.Imm)
	}
	if flags&hasVar != 0 {
		b = binary.AppendUvarint(b, k.variable(o.Var))
	}
	if flags&hasFunc != 0 {
		b = binary.AppendUvarint(b, uint64(len(k.uses)))
		kind := ofPointer
		switch {
		case o.Kind == Callee && o.Reg == None:
			kind = ofCallee
		case o.Kind == Callee:
			kind = ofPrototype
		}
		k.uses = append(k.uses, use{kind: kind, line: k.line, fn: o.Func})
	}
	k.packed = b
	if flags&hasElems != 0 {
		k.packed = binary.AppendUvarint(k.packed, uint64(o.Returns))
		k.list(o.Elems)
	}
}

// variable returns the number of a variable in the function.
func (k *packer) variable(v *Var) uint64 {
	if v.packedIn != k.number {
		v.packedIn, v.packedAs = k.number, int32(len(k.vars))
		k.vars = append(k.vars, v)
		if v.Space == Shared {
			k.uses = append(k.uses, use{kind: ofShared, v: v})
		}
	}
	return uint64(v.packedAs)
}

// unpacker returns the instructions of a code, one after the other.
type unpacker struct {
	*code
	rest []byte
	line int32
	slab []Operand // for the operands of all of them
}

func (c *code) unpack() unpacker {
	return unpacker{code: c, rest: c.packed, slab: make([]Operand, c.operands)}
}

func (u *unpacker) number() uint64 {
	v, n := binary.Uvarint(u.rest)
	u.rest = u.rest[n:]
	return v
}

// next sets in to the next instruction, which has operands of its own.
func (u *unpacker) next(in *Inst) {
	*in = u.templates.list[u.number()]
	delta, n := binary.Varint(u.rest)
	u.rest = u.rest[n:]
	u.line += int32(delta)
	in.Line = u.line
	guard := u.number()
	in.Guard, in.Not = int32(guard>>1)-1, guard&1 != 0
	in.Args = u.list()
}

func (u *unpacker) list() []Operand {
	n := u.number()
	if n == 0 {
		return nil
	}
	list := u.slab[:n:n]
	u.slab = u.slab[n:]
	for i := range list {
		u.operand(&list[i])
	}
	return list
}

func (u *unpacker) operand(o *Operand) {
	flags := binary.LittleEndian.Uint16(u.rest)
	u.rest = u.rest[2:]
	o.Kind, o.Reg, o.Pair = OperandKind(flags&(1<<kindBits-1)), None, None
	o.Not = flags&hasNot != 0
	if flags&hasReg != 0 {
		o.Reg = int32(u.number())
	}
	if flags&hasPair != 0 {
		o.Pair = int32(u.number())
	}
	if flags&hasSel != 0 {
		o.Sel = Selector{Half: u.rest[0] != 0, N: u.rest[1], parts: binary.LittleEndian.Uint16(u.rest[2:])}
		u.rest = u.rest[4:]
	}
	if flags&hasImm != 0 {
		o.Imm = u.number()
	}
	if flags&hasVar != 0 {
		o.Var = u.vars[u.number()]
	}
	if flags&hasFunc != 0 {
		o.Func = u.uses[u.number()].fn
	}
	if flags&hasElems != 0 {
		o.Returns = int(u.number())
		o.Elems = u.list()
	}
	if o.Kind == Label {
		o.Imm = uint64(u.targets[o.Imm])
	}
}
