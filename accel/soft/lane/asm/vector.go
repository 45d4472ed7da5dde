package asm

import "encoding/binary"

// Op is a vector instruction: its opcode with the fields of the EVEX prefix that belong to it.
type Op struct {
	Name   string // in the syntax of the GNU assembler, for messages and tests
	space  uint8  // opcode map
	prefix uint8  // 0: none, 1: 66, 2: F3, 3: F2
	wide   uint8  // the W bit
	code   uint8
	length uint8 // 0: 128, 1: 256, 2: 512 bits
	ext    uint8 // opcode extension + 1 of shifts by constants, in the field of the register; then the result is vvvv
	kind   form
}

// form is the shape of an instruction's operands.
type form uint8

const (
	threeOperands form = iota // dst, a, b
	twoOperands               // dst, b
	storing                   // b, dst: memory or register is the destination
	comparing                 // mask, a, b
	shifting                  // dst, b, constant
	indexed                   // a gather: dst, b; a scatter: b, dst
)

// Vector instructions.
var (
	ADDPS       = op("vaddps", 1, 0, 0, 0x58)
	SUBPS       = op("vsubps", 1, 0, 0, 0x5c)
	MULPS       = op("vmulps", 1, 0, 0, 0x59)
	DIVPS       = op("vdivps", 1, 0, 0, 0x5e)
	SQRTPS      = op2("vsqrtps", 1, 0, 0, 0x51)
	ADDPD       = op("vaddpd", 1, 1, 1, 0x58)
	SUBPD       = op("vsubpd", 1, 1, 1, 0x5c)
	MULPD       = op("vmulpd", 1, 1, 1, 0x59)
	DIVPD       = op("vdivpd", 1, 1, 1, 0x5e)
	MINPD       = op("vminpd", 1, 1, 1, 0x5d)
	MAXPD       = op("vmaxpd", 1, 1, 1, 0x5f)
	FMADD132PS  = op("vfmadd132ps", 2, 1, 0, 0x98)
	FMADD213PS  = op("vfmadd213ps", 2, 1, 0, 0xa8)
	FMADD231PS  = op("vfmadd231ps", 2, 1, 0, 0xb8)
	FMADD213PD  = op("vfmadd213pd", 2, 1, 1, 0xa8)
	FMADD231PD  = op("vfmadd231pd", 2, 1, 1, 0xb8)
	FNMADD213PD = op("vfnmadd213pd", 2, 1, 1, 0xac)

	PADDD   = op("vpaddd", 1, 1, 0, 0xfe)
	PSUBD   = op("vpsubd", 1, 1, 0, 0xfa)
	PMULLD  = op("vpmulld", 2, 1, 0, 0x40)
	PADDQ   = op("vpaddq", 1, 1, 1, 0xd4)
	PSUBQ   = op("vpsubq", 1, 1, 1, 0xfb)
	PMULLQ  = op("vpmullq", 2, 1, 1, 0x40)
	PMULUDQ = op("vpmuludq", 1, 1, 1, 0xf4)
	PMULDQ  = op("vpmuldq", 2, 1, 1, 0x28)
	PANDD   = op("vpandd", 1, 1, 0, 0xdb)
	PORD    = op("vpord", 1, 1, 0, 0xeb)
	PXORD   = op("vpxord", 1, 1, 0, 0xef)
	PANDQ   = op("vpandq", 1, 1, 1, 0xdb)
	PORQ    = op("vporq", 1, 1, 1, 0xeb)
	PXORQ   = op("vpxorq", 1, 1, 1, 0xef)
	PMINUD  = op("vpminud", 2, 1, 0, 0x3b)
	PMAXUD  = op("vpmaxud", 2, 1, 0, 0x3f)
	PMINSD  = op("vpminsd", 2, 1, 0, 0x39)
	PMAXSD  = op("vpmaxsd", 2, 1, 0, 0x3d)
	PSLLVD  = op("vpsllvd", 2, 1, 0, 0x47)
	PSRLVD  = op("vpsrlvd", 2, 1, 0, 0x45)
	PSRAVD  = op("vpsravd", 2, 1, 0, 0x46)
	PSLLVQ  = op("vpsllvq", 2, 1, 1, 0x47)
	PSRLVQ  = op("vpsrlvq", 2, 1, 1, 0x45)
	PSRAVQ  = op("vpsravq", 2, 1, 1, 0x46)
	PERMD   = op("vpermd", 2, 1, 0, 0x36)    // dst = lanes of b, by their numbers in a
	PERMI2D = op("vpermi2d", 2, 1, 0, 0x76)  // dst = lanes of a and b, by their numbers in dst
	PBLENDD = op("vpblendmd", 2, 1, 0, 0x64) // mask ? b : a
	PBLENDQ = op("vpblendmq", 2, 1, 1, 0x64)

	PSLLD = shift("vpslld", 0, 0x72, 6)
	PSRLD = shift("vpsrld", 0, 0x72, 2)
	PSRAD = shift("vpsrad", 0, 0x72, 4)
	PSLLQ = shift("vpsllq", 1, 0x73, 6)
	PSRLQ = shift("vpsrlq", 1, 0x73, 2)
	PSRAQ = shift("vpsraq", 1, 0x72, 4)

	// Loads and moves; the stores have the same width.
	MOVD       = op2("vmovdqu32", 1, 2, 0, 0x6f)
	MOVQ       = op2("vmovdqu64", 1, 2, 1, 0x6f)
	STORED     = Op{"vmovdqu32", 1, 2, 0, 0x7f, 2, 0, storing}
	STOREQ     = Op{"vmovdqu64", 1, 2, 1, 0x7f, 2, 0, storing}
	BROADCASTD = op2("vpbroadcastd", 2, 1, 0, 0x58) // of 32 bits in memory or an XMM register
	BROADCASTQ = op2("vpbroadcastq", 2, 1, 1, 0x59)
	MOVZXBD    = op2("vpmovzxbd", 2, 1, 0, 0x31)
	MOVSXBD    = op2("vpmovsxbd", 2, 1, 0, 0x21)
	MOVZXWD    = op2("vpmovzxwd", 2, 1, 0, 0x33)
	MOVSXWD    = op2("vpmovsxwd", 2, 1, 0, 0x23)
	MOVZXDQ    = op2("vpmovzxdq", 2, 1, 0, 0x35) // of a YMM register
	MOVSXDQ    = op2("vpmovsxdq", 2, 1, 0, 0x25)
	STOREB     = Op{"vpmovdb", 2, 2, 0, 0x31, 2, 0, storing}
	STOREW     = Op{"vpmovdw", 2, 2, 0, 0x33, 2, 0, storing}
	MOVQD      = Op{"vpmovqd", 2, 2, 0, 0x35, 2, 0, storing} // into a YMM register
	HIGHHALF   = Op{"vextracti64x4", 3, 1, 1, 0x3b, 2, 0, storing}
	QUARTER    = Op{"vextracti32x4", 3, 1, 0, 0x39, 2, 0, storing}
	INSERTHALF = Op{"vinserti64x4", 3, 1, 1, 0x3a, 2, 0, threeOperands}

	CVTDQ2PS  = op2("vcvtdq2ps", 1, 0, 0, 0x5b)
	CVTUDQ2PS = op2("vcvtudq2ps", 1, 3, 0, 0x7a)
	CVTTPS2DQ = op2("vcvttps2dq", 1, 2, 0, 0x5b)
	CVTPS2PD  = op2("vcvtps2pd", 1, 0, 0, 0x5a) // of a YMM register
	CVTPD2PS  = op2("vcvtpd2ps", 1, 1, 1, 0x5a) // into a YMM register
	CVTQQ2PD  = op2("vcvtqq2pd", 1, 2, 1, 0xe6)

	CMPPS  = compare("vcmpps", 1, 0, 0, 0xc2)
	CMPD   = compare("vpcmpd", 3, 1, 0, 0x1f)
	CMPUD  = compare("vpcmpud", 3, 1, 0, 0x1e)
	CMPQ   = compare("vpcmpq", 3, 1, 1, 0x1f)
	CMPUQ  = compare("vpcmpuq", 3, 1, 1, 0x1e)
	CLASS  = Op{"vfpclassps", 3, 1, 0, 0x66, 2, 0, comparing} // mask, b, constant
	TESTMD = Op{"vptestmd", 2, 1, 0, 0x27, 2, 0, comparing}

	GATHERDPS  = Op{"vgatherdps", 2, 1, 0, 0x92, 2, 0, indexed}  // lanes of 32 bits, indices of 32 bits
	GATHERQPS  = Op{"vgatherqps", 2, 1, 0, 0x93, 2, 0, indexed}  // lanes of 32 bits, indices of 64 bits
	GATHERQPD  = Op{"vgatherqpd", 2, 1, 1, 0x93, 2, 0, indexed}  // lanes of 64 bits, indices of 64 bits
	SCATTERDPS = Op{"vscatterdps", 2, 1, 0, 0xa2, 2, 0, indexed} // lanes of 32 bits, indices of 32 bits
)

func op(name string, space, prefix, wide, code uint8) Op {
	return Op{name, space, prefix, wide, code, 2, 0, threeOperands}
}

func op2(name string, space, prefix, wide, code uint8) Op {
	return Op{name, space, prefix, wide, code, 2, 0, twoOperands}
}

func compare(name string, space, prefix, wide, code uint8) Op {
	return Op{name, space, prefix, wide, code, 2, 0, comparing}
}

func shift(name string, wide, code, ext uint8) Op {
	return Op{name, 1, 1, wide, code, 2, ext + 1, shifting}
}

// Predicates of CMPPS, which do not signal, and of integers.
const (
	EQ, LT, LE, NE, GE, GT = 0, 1, 2, 4, 5, 6 // of integers

	FloatEQ, FloatNE, FloatLT, FloatLE, FloatGT, FloatGE       = 0x00, 0x0c, 0x11, 0x12, 0x1e, 0x1d
	FloatEQU, FloatNEU, FloatLTU, FloatLEU, FloatGTU, FloatGEU = 0x08, 0x04, 0x19, 0x1a, 0x16, 0x15
	FloatNum, FloatNaN                                         = 0x07, 0x03
)

// Masking restricts an instruction to the lanes of a mask; K0: to none.
type Masking struct {
	K    Mask
	Zero bool // other lanes become 0, else they keep their value
}

// Under returns the restriction to a mask's lanes, with the others unchanged.
func Under(k Mask) Masking { return Masking{K: k} }

// evex emits the prefix and the opcode. reg is the register of ModRM, v that of vvvv, rm that of ModRM if it is a register.
func (c *Code) evex(o *Op, reg, v, rm uint8, m *Mem, mk Masking) {
	x, b, v4 := bit(rm, 4), bit(rm, 3), bit(v, 4)
	broadcast := uint8(0)
	if m != nil {
		x, b = 0, 0
		if m.Label == nil {
			b = bit(uint8(m.Base), 3)
		}
		if m.HasVector {
			x, v4 = bit(uint8(m.Vector), 3), bit(uint8(m.Vector), 4)
		} else if m.Index != NoReg {
			x = bit(uint8(m.Index), 3)
		}
		if m.Broadcast {
			broadcast = 1
		}
	}
	zero := uint8(0)
	if mk.Zero && mk.K != 0 {
		zero = 1
	}
	c.emit(0x62,
		(1^bit(reg, 3))<<7|(1^x)<<6|(1^b)<<5|(1^bit(reg, 4))<<4|o.space,
		o.wide<<7|(^v&15)<<3|1<<2|o.prefix,
		zero<<7|o.length<<5|broadcast<<4|(1^v4)<<3|uint8(mk.K),
		o.code)
}

// encode emits an instruction with ModRM operands: rm is a register, or m is memory.
func (c *Code) encode(o *Op, reg, v, rm uint8, m *Mem, mk Masking, imm ...byte) {
	c.evex(o, reg, v, rm, m, mk)
	if m != nil {
		c.modRM(reg, m, len(imm))
	} else {
		c.emit(0xc0 | reg&7<<3 | rm&7)
	}
	c.emit(imm...)
}

// Op3 emits dst = a op b.
func (c *Code) Op3(o Op, dst, a, b Vec, mk Masking, imm ...byte) {
	c.encode(&o, uint8(dst), uint8(a), uint8(b), nil, mk, imm...)
}

// Op3M is Op3 with b in memory.
func (c *Code) Op3M(o Op, dst, a Vec, b Mem, mk Masking, imm ...byte) {
	c.encode(&o, uint8(dst), uint8(a), 0, &b, mk, imm...)
}

// Op2 emits dst = op b. For stores into a register dst is that.
func (c *Code) Op2(o Op, dst, b Vec, mk Masking, imm ...byte) {
	if o.kind == storing {
		dst, b = b, dst
	}
	c.encode(&o, uint8(dst), 0, uint8(b), nil, mk, imm...)
}

// Op2M is Op2 with b in memory.
func (c *Code) Op2M(o Op, dst Vec, b Mem, mk Masking, imm ...byte) {
	c.encode(&o, uint8(dst), 0, 0, &b, mk, imm...)
}

// Store emits a store or a scatter of b.
func (c *Code) Store(o Op, to Mem, b Vec, mk Masking, imm ...byte) {
	c.encode(&o, uint8(b), 0, 0, &to, mk, imm...)
}

// Shift emits dst = a shifted by a constant.
func (c *Code) Shift(o Op, dst, a Vec, by uint8, mk Masking) {
	c.encode(&o, o.ext-1, uint8(dst), uint8(a), nil, mk, by)
}

// Compare emits mask = a compared with b.
func (c *Code) Compare(o Op, dst Mask, a, b Vec, mk Masking, imm ...byte) {
	c.encode(&o, uint8(dst), uint8(a), uint8(b), nil, mk, imm...)
}

// CompareM is Compare with b in memory.
func (c *Code) CompareM(o Op, dst Mask, a Vec, b Mem, mk Masking, imm ...byte) {
	c.encode(&o, uint8(dst), uint8(a), 0, &b, mk, imm...)
}

// BroadcastReg emits vpbroadcastd or, if wide, vpbroadcastq of a general register.
func (c *Code) BroadcastReg(dst Vec, from Reg, wide bool) {
	o := Op{"vpbroadcastd", 2, 1, 0, 0x7c, 2, 0, twoOperands}
	if wide {
		o.wide = 1
	}
	c.encode(&o, uint8(dst), 0, uint8(from), nil, Masking{})
}

// Mask instructions. All are of 16 bits.

// vex emits a VEX prefix of three bytes, or of two where that is possible, and the opcode.
func (c *Code) vex(space, prefix, wide, length, code, reg, v, rm uint8, m *Mem) {
	x, b := uint8(0), bit(rm, 3)
	if m != nil {
		b = 0
		if m.Label == nil {
			b = bit(uint8(m.Base), 3)
		}
		if m.Index != NoReg {
			x = bit(uint8(m.Index), 3)
		}
	}
	last := (^v&15)<<3 | length<<2 | prefix
	if space == 1 && wide == 0 && x == 0 && b == 0 {
		c.emit(0xc5, (1^bit(reg, 3))<<7|last, code)
		return
	}
	c.emit(0xc4, (1^bit(reg, 3))<<7|(1^x)<<6|(1^b)<<5|space, wide<<7|last, code)
}

// LoadMask emits k = the 16 bits in memory.
func (c *Code) LoadMask(k Mask, m Mem) {
	c.vex(1, 0, 0, 0, 0x90, uint8(k), 0, 0, &m)
	c.modRM(uint8(k), &m, 0)
}

// StoreMask emits a store of k.
func (c *Code) StoreMask(m Mem, k Mask) {
	c.vex(1, 0, 0, 0, 0x91, uint8(k), 0, 0, &m)
	c.modRM(uint8(k), &m, 0)
}

// MoveMask emits dst = k.
func (c *Code) MoveMask(dst, k Mask) {
	c.vex(1, 0, 0, 0, 0x90, uint8(dst), 0, uint8(k), nil)
	c.emit(0xc0 | uint8(dst)<<3 | uint8(k))
}

// MaskOp is an instruction of two masks.
type MaskOp struct {
	Name         string
	prefix, code uint8
}

// Instructions of masks.
var (
	KAND    = MaskOp{"kandw", 0, 0x41}
	KANDN   = MaskOp{"kandnw", 0, 0x42} // ^a & b
	KOR     = MaskOp{"korw", 0, 0x45}
	KXOR    = MaskOp{"kxorw", 0, 0x47}
	KXNOR   = MaskOp{"kxnorw", 0, 0x46}
	KUNPACK = MaskOp{"kunpckbw", 1, 0x4b} // the lower 8 bits of a above those of b
)

// MaskOp emits dst = a op b.
func (c *Code) MaskOp(o MaskOp, dst, a, b Mask) {
	c.vex(1, o.prefix, 0, 1, o.code, uint8(dst), uint8(a), uint8(b), nil)
	c.emit(0xc0 | uint8(dst)<<3 | uint8(b))
}

// NotMask emits dst = ^k.
func (c *Code) NotMask(dst, k Mask) {
	c.vex(1, 0, 0, 0, 0x44, uint8(dst), 0, uint8(k), nil)
	c.emit(0xc0 | uint8(dst)<<3 | uint8(k))
}

// UpperMask emits dst = k >> 8.
func (c *Code) UpperMask(dst, k Mask) {
	c.vex(3, 1, 1, 0, 0x30, uint8(dst), 0, uint8(k), nil)
	c.emit(0xc0|uint8(dst)<<3|uint8(k), 8)
}

// TestMask emits a test of a|b: the zero flag is set if it is 0, the carry flag if it has all 16 bits.
func (c *Code) TestMask(a, b Mask) {
	c.vex(1, 0, 0, 0, 0x98, uint8(a), 0, uint8(b), nil)
	c.emit(0xc0 | uint8(a)<<3 | uint8(b))
}

// General registers.

func (c *Code) rex(wide bool, reg, rm uint8, m *Mem) {
	p := uint8(0x40)
	if wide {
		p |= 8
	}
	p |= bit(reg, 3) << 2
	if m != nil {
		if m.Label == nil {
			p |= bit(uint8(m.Base), 3)
		}
		if m.Index != NoReg {
			p |= bit(uint8(m.Index), 3) << 1
		}
	} else {
		p |= bit(rm, 3)
	}
	if p != 0x40 {
		c.emit(p)
	}
}

// Load emits r = the 64 bits in memory.
func (c *Code) Load(r Reg, m Mem) {
	c.rex(true, uint8(r), 0, &m)
	c.emit(0x8b)
	c.modRM(uint8(r), &m, 0)
}

// Load32 emits r = the 32 bits in memory, with zeroes or, if signed, their sign above them.
func (c *Code) Load32(r Reg, m Mem, signed bool) {
	c.rex(signed, uint8(r), 0, &m)
	if signed {
		c.emit(0x63)
	} else {
		c.emit(0x8b)
	}
	c.modRM(uint8(r), &m, 0)
}

// AddTo emits an addition of r to memory, of 64 bits or of 32.
func (c *Code) AddTo(m Mem, r Reg, wide bool) {
	c.rex(wide, uint8(r), 0, &m)
	c.emit(0x01)
	c.modRM(uint8(r), &m, 0)
}

// StoreReg emits a store of 64 bits.
func (c *Code) StoreReg(m Mem, r Reg) {
	c.rex(true, uint8(r), 0, &m)
	c.emit(0x89)
	c.modRM(uint8(r), &m, 0)
}

// StoreInt32 emits a store of a constant of 32 bits.
func (c *Code) StoreInt32(m Mem, v int32) {
	c.rex(false, 0, 0, &m)
	c.emit(0xc7)
	c.modRM(0, &m, 4)
	c.Bytes = binary.LittleEndian.AppendUint32(c.Bytes, uint32(v))
}

// Quad emits r = a half of an XMM register, the upper one if upper is set.
func (c *Code) Quad(r Reg, from Vec, upper bool) {
	if upper {
		c.encode(&Op{"vpextrq", 3, 1, 1, 0x16, 0, 0, storing}, uint8(from), 0, uint8(r), nil, Masking{}, 1)
		return
	}
	c.encode(&Op{"vmovq", 1, 1, 1, 0x7e, 0, 0, storing}, uint8(from), 0, uint8(r), nil, Masking{})
}

// Copy32 emits dst = the lower 32 bits of r, with zeroes or, if signed, their sign above them.
func (c *Code) Copy32(dst, r Reg, signed bool) {
	c.rex(signed, uint8(dst), uint8(r), nil)
	if signed {
		c.emit(0x63)
	} else {
		c.emit(0x8b)
	}
	c.emit(0xc0 | uint8(dst)&7<<3 | uint8(r)&7)
}

// Upper32 emits r = its upper 32 bits, with zeroes or, if signed, their sign above them.
func (c *Code) Upper32(r Reg, signed bool) {
	c.rex(true, 0, uint8(r), nil)
	ext := uint8(5)
	if signed {
		ext = 7
	}
	c.emit(0xc1, 0xc0|ext<<3|uint8(r)&7, 32)
}

// Prefetch emits a prefetch of a cache line, which never faults.
func (c *Code) Prefetch(m Mem) {
	c.rex(false, 1, 0, &m)
	c.emit(0x0f, 0x18)
	c.modRM(1, &m, 0)
}

// Address emits r = the address of m.
func (c *Code) Address(r Reg, m Mem) {
	c.rex(true, uint8(r), 0, &m)
	c.emit(0x8d)
	c.modRM(uint8(r), &m, 0)
}

// RegOp is an instruction of two operands of 64 bits, the number of the classic arithmetic group.
type RegOp uint8

// Arithmetic of general registers.
const (
	ADD RegOp = 0
	OR  RegOp = 1
	AND RegOp = 4
	SUB RegOp = 5
	XOR RegOp = 6
	CMP RegOp = 7
)

// Reg emits dst = dst op b.
func (c *Code) Reg(o RegOp, dst, b Reg) {
	c.rex(true, uint8(b), uint8(dst), nil)
	c.emit(uint8(o)<<3|1, 0xc0|uint8(b)&7<<3|uint8(dst)&7)
}

// RegMem emits dst = dst op the 64 bits in memory.
func (c *Code) RegMem(o RegOp, dst Reg, m Mem) {
	c.rex(true, uint8(dst), 0, &m)
	c.emit(uint8(o)<<3 | 3)
	c.modRM(uint8(dst), &m, 0)
}

// RegInt emits dst = dst op a constant.
func (c *Code) RegInt(o RegOp, dst Reg, v int32) {
	c.rex(true, 0, uint8(dst), nil)
	c.emit(0x81, 0xc0|uint8(o)<<3|uint8(dst)&7)
	c.Bytes = binary.LittleEndian.AppendUint32(c.Bytes, uint32(v))
}

// MemInt emits a comparison, or another operation, of 64 bits in memory with a constant.
func (c *Code) MemInt(o RegOp, m Mem, v int32) {
	c.rex(true, 0, 0, &m)
	c.emit(0x81)
	c.modRM(uint8(o), &m, 4)
	c.Bytes = binary.LittleEndian.AppendUint32(c.Bytes, uint32(v))
}

// Cond is a condition of a jump.
type Cond uint8

// Conditions.
const (
	IfBelow    Cond = 2
	IfNotBelow Cond = 3
	IfZero     Cond = 4 // or equal
	IfNotZero  Cond = 5
	IfAbove    Cond = 7
)

// JumpIf emits a conditional jump.
func (c *Code) JumpIf(cc Cond, l *Label) {
	c.emit(0x0f, 0x80|uint8(cc))
	c.use(l, 0)
}

// Jump emits a jump.
func (c *Code) Jump(l *Label) {
	c.emit(0xe9)
	c.use(l, 0)
}

// Return emits a return.
func (c *Code) Return() { c.emit(0xc3) }
