// Package asm encodes the amd64 instructions that package gen selects: 512-bit vector instructions with masks, mask
// instructions, and few of the general registers. It has no more forms than gen uses.
//
// Callers: accel/soft/lane/gen.
//
// Trust boundary: gen chooses instructions and registers; an operand that has no encoding is a panic.
package asm

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Register numbers.
type (
	Vec  uint8 // ZMM0 to ZMM31, or the YMM or XMM register in its lower part
	Mask uint8 // K0 to K7
	Reg  uint8 // a general register of 64 bits
)

// General registers. The stack and frame pointers are not used by generated code.
const (
	RAX Reg = iota
	RCX
	RDX
	RBX
	_
	_
	RSI
	RDI
	R8
	R9
	R10
	R11
	R12
	R13
	R14
	R15
	NoReg Reg = 0xff
)

// Mem is an operand in memory: [Base + Index·Scale + Disp]. An operand with a label is relative to the instruction
// pointer, and has no registers.
type Mem struct {
	Base      Reg
	Index     Reg // NoReg: none
	Vector    Vec // of gathers and scatters, the index of each lane; then Index is NoReg
	HasVector bool
	Scale     uint8 // 1, 2, 4 or 8
	Disp      int32
	Label     *Label // or nil
	Broadcast bool   // one element, for all lanes
}

// At returns [base+disp].
func At(base Reg, disp int) Mem { return Mem{Base: base, Index: NoReg, Scale: 1, Disp: int32(disp)} }

// AtLabel returns the memory at a label.
func AtLabel(l *Label) Mem { return Mem{Base: NoReg, Index: NoReg, Scale: 1, Label: l} }

// Lanes returns [base+index+disp] for the lanes of a vector of indices.
func Lanes(base Reg, index Vec, disp int) Mem {
	return Mem{Base: base, Index: NoReg, Vector: index, HasVector: true, Scale: 1, Disp: int32(disp)}
}

// All returns the operand as one element for all lanes.
func (m Mem) All() Mem {
	m.Broadcast = true
	return m
}

// Label is a position in the code.
type Label struct {
	at    int
	bound bool
	uses  []int // offsets of 32-bit displacements that end at offset+4+trailing
	trail []int // bytes between the displacement and the instruction's end
}

// Code is a piece of machine code under construction. The zero value is empty.
type Code struct {
	Bytes []byte
	pool  map[string]*Label
	items []poolItem
}

type poolItem struct {
	label *Label
	data  []byte
}

// Bind gives a label the current position.
func (c *Code) Bind(l *Label) {
	if l.bound {
		panic("asm: label bound twice")
	}
	l.at, l.bound = len(c.Bytes), true
	for i, u := range l.uses {
		c.patch(u, l.at-(u+4+l.trail[i]))
	}
	l.uses = nil
}

func (c *Code) patch(at, distance int) {
	binary.LittleEndian.PutUint32(c.Bytes[at:], uint32(int32(distance)))
}

// use emits the displacement to a label. trail is the number of bytes of the instruction behind it.
func (c *Code) use(l *Label, trail int) {
	at := len(c.Bytes)
	c.Bytes = append(c.Bytes, 0, 0, 0, 0)
	if l.bound {
		c.patch(at, l.at-(at+4+trail))
		return
	}
	l.uses, l.trail = append(l.uses, at), append(l.trail, trail)
}

// Data returns a constant's label. Finish places the constants behind the code.
func (c *Code) Data(data []byte) *Label {
	if l := c.pool[string(data)]; l != nil {
		return l
	}
	if c.pool == nil {
		c.pool = map[string]*Label{}
	}
	l := &Label{}
	c.pool[string(data)] = l
	c.items = append(c.items, poolItem{l, data})
	return l
}

// Word32 returns a constant as an operand for all lanes.
func (c *Code) Word32(v uint32) Mem {
	return AtLabel(c.Data(binary.LittleEndian.AppendUint32(nil, v))).All()
}

// Word64 is Word32 for lanes of 64 bits.
func (c *Code) Word64(v uint64) Mem {
	return AtLabel(c.Data(binary.LittleEndian.AppendUint64(nil, v))).All()
}

// Float64 is Word64 of a number's bits.
func (c *Code) Float64(v float64) Mem { return c.Word64(math.Float64bits(v)) }

// Finish appends the constants: the code is complete.
func (c *Code) Finish() []byte {
	for _, it := range c.items {
		size := len(it.data)
		for len(c.Bytes)%size != 0 {
			c.Bytes = append(c.Bytes, 0xcc)
		}
		c.Bind(it.label)
		c.Bytes = append(c.Bytes, it.data...)
	}
	c.items = nil
	return c.Bytes
}

func (c *Code) emit(b ...byte) { c.Bytes = append(c.Bytes, b...) }

// modRM emits the ModRM byte, the SIB byte and the displacement of 32 bits of a memory operand.
func (c *Code) modRM(reg uint8, m *Mem, trail int) {
	reg = reg & 7 << 3
	switch {
	case m.Label != nil:
		c.emit(0x05 | reg)
		c.use(m.Label, trail)
		return
	case m.HasVector:
		c.emit(0x84|reg, scaleBits(m.Scale)|uint8(m.Vector)&7<<3|uint8(m.Base)&7)
	case m.Index != NoReg:
		c.emit(0x84|reg, scaleBits(m.Scale)|uint8(m.Index)&7<<3|uint8(m.Base)&7)
	case m.Base&7 == 4: // R12 needs a SIB byte
		c.emit(0x84|reg, 0x24)
	default:
		c.emit(0x80 | reg | uint8(m.Base)&7)
	}
	c.Bytes = binary.LittleEndian.AppendUint32(c.Bytes, uint32(m.Disp))
}

func scaleBits(s uint8) uint8 {
	switch s {
	case 1:
		return 0
	case 2:
		return 1 << 6
	case 4:
		return 2 << 6
	case 8:
		return 3 << 6
	}
	panic(fmt.Sprintf("asm: scale %d", s))
}

func bit(v uint8, n uint) uint8 { return v >> n & 1 }
