package ptx

import "errors"

// matrixText continues formText: floats of 16 bits and less, instructions on matrices, and asynchronous copies.
const matrixText = `
add sub mul | rn? ftz? sat? | f16 f16x2 | Aaa
add sub mul | rn? | bf16 bf16x2 | Aaa
fma | rn ftz? sat? | f16 f16x2 | Aaaa
fma | rn ftz? relu | f16 f16x2 | Aaaa
fma | rn relu? | bf16 bf16x2 | Aaaa
abs neg | ftz? | f16 f16x2 | Aa
abs neg | | bf16 bf16x2 | Aa
min max | ftz? NaN? | f16 f16x2 | Aaa
min max | ftz? NaN? xorsign abs | f16 f16x2 | Aaa
min max | NaN? | bf16 bf16x2 | Aaa
min max | NaN? xorsign abs | bf16 bf16x2 | Aaa
ex2 | approx | f16 f16x2 | Aa
ex2 | approx ftz | bf16 bf16x2 | Aa
tanh | approx | f16 f16x2 bf16 bf16x2 | Aa
setp | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan ftz? | f16 f16x2 | Qaa
setp | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor ftz? | f16 f16x2 | Qaap
setp | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan | bf16 bf16x2 | Qaa
setp | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor | bf16 bf16x2 | Qaap
set | eq/ne/lt/le/gt/ge/lo/ls/hi/hs ftz? | f16 bf16 : b16 b32 b64 u16 u32 u64 s16 s32 s64 | Abb
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan ftz? | f16 bf16 : f16 bf16 f32 f64 | Abb
set | eq/ne/lt/le/gt/ge/lo/ls/hi/hs and/or/xor ftz? | f16 bf16 : b16 b32 b64 u16 u32 u64 s16 s32 s64 | Abbp
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor ftz? | f16 bf16 : f16 bf16 f32 f64 | Abbp
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan ftz? | u16 s16 u32 s32 : f16 bf16 | Abb
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor ftz? | u16 s16 u32 s32 : f16 bf16 | Abbp
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan ftz? | f16x2 u32 s32 : f16x2 | Abb
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor ftz? | f16x2 u32 s32 : f16x2 | Abbp
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan | bf16x2 u32 s32 : bf16x2 | Abb
set | eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan and/or/xor | bf16x2 u32 s32 : bf16x2 | Abbp
cvt | rn/rz/rm/rp ftz? sat? | f16 bf16 : u8 u16 u32 u64 s8 s16 s32 s64 f16 bf16 f32 f64 | Rr
cvt | rn/rz ftz? relu? satfinite? | f16 bf16 : f32 | Rr
cvt | rn/rz/rm/rp? ftz? sat? | f32 f64 : f16 bf16 | Rr
cvt | sat? | f16 : f16 | Rr
cvt | sat? | bf16 : bf16 | Rr
cvt | rni/rzi/rmi/rpi sat? | f16 : f16 | Rr
cvt | rni/rzi/rmi/rpi sat? | bf16 : bf16 | Rr
cvt | rni/rzi/rmi/rpi sat? | u8 u16 u32 u64 s8 s16 s32 s64 : f16 bf16 | Rr
cvt | rn/rz relu? satfinite? | f16x2 bf16x2 : f32 | Abb
cvt | rn satfinite relu? | e4m3x2 e5m2x2 : f32 | Abb
cvt | rn satfinite relu? | e4m3x2 e5m2x2 : f16x2 | Ab
cvt | rn relu? | f16x2 : e4m3x2 e5m2x2 | Ab
cvt | rna satfinite? | tf32 : f32 | Ab
cvt | rn/rz relu? satfinite? | tf32 : f32 | Ab
cvt | pack sat | u16 s16 : s32 | Ccc
cvt | pack sat | u2 s2 u4 s4 u8 s8 : s32 : b32 | Cccc
add sub | rn/rz/rm/rp? sat? | f32 : f16 bf16 | Aba
fma | rn/rz/rm/rp sat? | f32 : f16 bf16 | Abba
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? v2/v4/v8 add/min/max noftz | f16 bf16 | RMr
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? v2/v4 add/min/max noftz | f16x2 bf16x2 | RMr
red | relaxed/release? cta/gpu/sys/cluster? global? v2/v4/v8 add/min/max noftz | f16 bf16 | Mr
red | relaxed/release? cta/gpu/sys/cluster? global? v2/v4 add/min/max noftz | f16x2 bf16x2 | Mr
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global/shared? add noftz | f16 f16x2 bf16 bf16x2 | AMa
red | relaxed/release? cta/gpu/sys/cluster? global/shared? add noftz | f16 f16x2 bf16 bf16x2 | Ma
mma | sync aligned m8n8k4 row/col row=2/col=2 | f16 f32 : f16 : f16 : f16 f32 | Yyyy
mma | sync aligned m16n8k8/m16n8k16 row col=2 | f16 f32 : f16 : f16 : f16 f32 | Yyyy
mma | sync aligned m16n8k8/m16n8k16 row col=2 | f32 : bf16 : bf16 : f32 | Yyyy
mma | sync aligned m16n8k4/m16n8k8 row col=2 | f32 : tf32 : tf32 : f32 | Yyyy
mma | sync aligned m16n8k16/m16n8k32 row col=2 | f16 f32 : e4m3 e5m2 : e4m3 e5m2 : f16 f32 | Yyyy
mma | sync aligned m8n8k4/m16n8k4/m16n8k8/m16n8k16 row col=2 rn? | f64 : f64 : f64 : f64 | Yyyy
mma | sync aligned m8n8k16/m16n8k16/m16n8k32 row col=2 satfinite? | s32 : u8 s8 : u8 s8 : s32 | Yyyy
mma | sync aligned m8n8k32/m16n8k32/m16n8k64 row col=2 satfinite? | s32 : u4 s4 : u4 s4 : s32 | Yyyy
mma | sync aligned m8n8k128/m16n8k128/m16n8k256 row col=2 xor/and popc | s32 : b1 : b1 : s32 | Yyyy
wmma | load a/b sync? aligned? row/col m16n16k16/m8n32k16/m32n8k16 global/shared? | f16 bf16 u8 s8 | YMc?
wmma | load c sync? aligned? row/col m16n16k16/m8n32k16/m32n8k16 global/shared? | f16 f32 s32 | YMc?
wmma | store d sync? aligned? row/col m16n16k16/m8n32k16/m32n8k16 global/shared? | f16 f32 s32 | Myc?
wmma | mma sync? aligned? row/col row=2/col=2 m16n16k16/m8n32k16/m32n8k16 satfinite? | f16 f32 : f16 f32 | Yyyy
wmma | mma sync aligned row/col row=2/col=2 m16n16k16/m8n32k16/m32n8k16 | f32 : bf16 : bf16 : f32 | Yyyy
wmma | mma sync aligned row/col row=2/col=2 m16n16k16/m8n32k16/m32n8k16 satfinite? | s32 : u8 s8 : u8 s8 : s32 | Yyyy
wmma | load a/b sync aligned row/col m16n16k8 global/shared? | tf32 | YMc?
wmma | load c sync aligned row/col m16n16k8 global/shared? | f32 | YMc?
wmma | store d sync aligned row/col m16n16k8 global/shared? | f32 | Myc?
wmma | mma sync aligned row/col row=2/col=2 m16n16k8 | f32 : tf32 : tf32 : f32 | Yyyy
wmma | load a/b/c sync aligned row/col m8n8k4 global/shared? | f64 | YMc?
wmma | store d sync aligned row/col m8n8k4 global/shared? | f64 | Myc?
wmma | mma sync aligned row/col row=2/col=2 m8n8k4 rn? | f64 : f64 : f64 : f64 | Yyyy
wmma | load a sync aligned row m8n8k32 global/shared? | u4 s4 | YMc?
wmma | load b sync aligned col m8n8k32 global/shared? | u4 s4 | YMc?
wmma | load a sync aligned row m8n8k128 global/shared? | b1 | YMc?
wmma | load b sync aligned col m8n8k128 global/shared? | b1 | YMc?
wmma | load c sync aligned row/col m8n8k32/m8n8k128 global/shared? | s32 | YMc?
wmma | store d sync aligned row/col m8n8k32/m8n8k128 global/shared? | s32 | Myc?
wmma | mma sync aligned row col=2 m8n8k32 satfinite? | s32 : u4 s4 : u4 s4 : s32 | Yyyy
wmma | mma sync aligned row col=2 m8n8k128 xor/and popc | s32 : b1 : b1 : s32 | Yyyy
ldmatrix | sync aligned m8n8 x1/x2/x4 trans? shared? | b16 | YM
stmatrix | sync aligned m8n8 x1/x2/x4 trans? shared? | b16 | My
movmatrix | sync aligned m8n8 trans | b16 | Cc
cp | async ca/cg shared global L2::64B/L2::128B/L2::256B? | | mMni?
cp | async ca/cg shared global L2::cache_hint L2::64B/L2::128B/L2::256B? | | mMni?h
cp | async commit_group/wait_all | | -
cp | async wait_group | | c
ld | volatile/relaxed/acquire/weak? cta/gpu/sys/cluster? global? nc? v2/v4/v8? ca/cg/cs/lu/cv? L1::evict_first/L1::evict_last/L1::evict_normal/L1::evict_unchanged/L1::no_allocate? L2::cache_hint L2::64B/L2::128B/L2::256B? | b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 | RMh
st | volatile/relaxed/release/weak? cta/gpu/sys/cluster? global? v2/v4/v8? wb/cg/cs/wt? L1::evict_first/L1::evict_last/L1::evict_normal/L1::evict_unchanged/L1::no_allocate? L2::cache_hint | b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64 | Mrh
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? add L2::cache_hint | u32 u64 s32 s64 f32 f64 | AMah
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? min/max L2::cache_hint | u32 u64 s32 s64 | AMah
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? inc/dec L2::cache_hint | u32 | AMah
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? and/or/xor L2::cache_hint | u32 u64 s32 s64 b32 b64 | AMah
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? exch L2::cache_hint | u32 u64 s32 s64 b32 b64 f32 f64 | AMah
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? add noftz L2::cache_hint | f16 f16x2 bf16 bf16x2 | AMah
atom | relaxed/acquire/release/acq_rel? cta/gpu/sys/cluster? global? cas L2::cache_hint | b16 b32 b64 u32 u64 s32 s64 | AMaah
red | relaxed/release? cta/gpu/sys/cluster? global? add L2::cache_hint | u32 u64 s32 s64 f32 f64 | Mah
red | relaxed/release? cta/gpu/sys/cluster? global? min/max L2::cache_hint | u32 u64 s32 s64 | Mah
red | relaxed/release? cta/gpu/sys/cluster? global? inc/dec L2::cache_hint | u32 | Mah
red | relaxed/release? cta/gpu/sys/cluster? global? and/or/xor L2::cache_hint | u32 u64 s32 s64 b32 b64 | Mah
red | relaxed/release? cta/gpu/sys/cluster? global? add noftz L2::cache_hint | f16 f16x2 bf16 bf16x2 | Mah
createpolicy | fractional L2::evict_last/L2::evict_normal/L2::evict_first/L2::evict_unchanged | b64 | Ac?
createpolicy | range global? L2::evict_last/L2::evict_normal/L2::evict_first/L2::evict_unchanged | b64 | AMcc
createpolicy | cvt L2 | b64 | Aa
`

// Shape is the size of a product of matrices: A is M×K, B is K×N, C and D are M×N.
type Shape struct{ M, N, K int }

var shapes = map[Mod]Shape{
	M8N8: {8, 8, 0}, M8N8K4: {8, 8, 4}, M8N8K16: {8, 8, 16}, M8N8K32: {8, 8, 32}, M8N8K128: {8, 8, 128},
	M16N8K4: {16, 8, 4}, M16N8K8: {16, 8, 8}, M16N8K16: {16, 8, 16}, M16N8K32: {16, 8, 32}, M16N8K64: {16, 8, 64},
	M16N8K128: {16, 8, 128}, M16N8K256: {16, 8, 256},
	M16N16K8: {16, 16, 8}, M16N16K16: {16, 16, 16}, M8N32K16: {8, 32, 16}, M32N8K16: {32, 8, 16},
}

// Shape returns the shape that the modifiers name.
func (s *Mods) Shape() Shape {
	for m := M8N8; m <= M32N8K16; m++ {
		if s.Has(m) {
			return shapes[m]
		}
	}
	return Shape{}
}

// Role is the role of a matrix in a product.
type Role uint8

// Roles.
const (
	RoleD Role = iota
	RoleA
	RoleB
	RoleC
)

// Fragment describes the distribution of a matrix over the registers of a warp.
type Fragment struct {
	Role       Role
	Type       Type
	Rows, Cols int
	Regs       int // of a thread
	// PerLane is the number of elements of a thread. The registers may hold them more than once.
	PerLane int
	// Parts is the number of such matrices of a warp, which divide its threads among them.
	Parts int
}

// RegType returns the type of a register of the fragment.
func (f *Fragment) RegType() Type {
	if f.Type == F64 {
		return F64
	}
	return B32
}

// bitsOf returns the size of an element of a matrix.
func bitsOf(t Type) int {
	switch t {
	case B1:
		return 1
	case U4, S4:
		return 4
	}
	return 8 * t.Size()
}

var opMma, opWmma, opAlloca = OpOf("mma"), OpOf("wmma"), OpOf("alloca")

// Fragment describes operand i of an instruction on matrices.
func (in *Inst) Fragment(i int) Fragment {
	if in.Op != opMma && in.Op != opWmma { // ldmatrix, stmatrix
		n := 1
		switch in.Mods.First(X1, X2, X4) {
		case X2:
			n = 2
		case X4:
			n = 4
		}
		return Fragment{Type: B16, Rows: 8, Cols: 8, Regs: n, PerLane: 2 * n, Parts: 1}
	}
	f := Fragment{Role: Role(i), Type: [4]Type{in.Type, in.Type2, in.Type3, in.Type4}[i], Parts: 1}
	switch {
	case in.Mods.Has(MatrixLoad):
		f.Type = in.Type
		f.Role = map[Mod]Role{MatrixA: RoleA, MatrixB: RoleB, MatrixC: RoleC}[in.Mods.First(MatrixA, MatrixB, MatrixC)]
	case in.Mods.Has(MatrixStore):
		f.Type, f.Role = in.Type, RoleD
	case in.Type3 == NoType: // types of D and C; the others are f16
		f.Type = [4]Type{in.Type, F16, F16, in.Type2}[i]
	}
	s := in.Mods.Shape()
	switch f.Role {
	case RoleA:
		f.Rows, f.Cols = s.M, s.K
	case RoleB:
		f.Rows, f.Cols = s.K, s.N
	default:
		f.Rows, f.Cols = s.M, s.N
	}
	if in.Op == opMma && s == shapes[M8N8K4] && in.Type2 == F16 {
		f.Parts = 4
	}
	f.PerLane = f.Rows * f.Cols * f.Parts / 32
	f.Regs = f.PerLane * bitsOf(f.Type) / (8 * f.RegType().Size())
	if in.Op == opWmma && f.Type == F16 && (f.Role == RoleA || f.Role == RoleB) {
		f.Regs = 8 // whatever the shape
	}
	return f
}

var (
	errFragment = errors.New("is not a vector of as many registers as the matrix needs")
	errPolicy   = errors.New("is not a cache policy")
	errCopySize = errors.New("is not a size that can be copied")
	errAlign    = errors.New("is not an alignment: a power of two, up to 65536")
)

// fragment checks operand i: a vector of registers, or one alone.
func (c checker) fragment(in *Inst, i int, written bool) error {
	f := in.Fragment(i)
	list := in.Args[i : i+1]
	if list[0].Kind == Vector {
		list = list[0].Elems
	}
	if len(list) != f.Regs {
		return errFragment
	}
	size := f.RegType().Size()
	for k := range list {
		err := c.read(&list[k], size)
		if written {
			err = c.written(&list[k], size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSize checks the constant that gives the bytes that cp.async copies, or the alignment of alloca.
func checkSize(in *Inst, o *Operand) error {
	if in.Op == opAlloca {
		if o.Kind == Integer && o.Imm > 0 && o.Imm&(o.Imm-1) == 0 && o.Imm <= maxAlign {
			return nil
		}
		return errAlign
	}
	if o.Kind == Integer && (o.Imm == 16 || (o.Imm == 4 || o.Imm == 8) && in.Mods.Has(CacheCA)) {
		return nil
	}
	return errCopySize
}
