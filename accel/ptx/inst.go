package ptx

import "fmt"

// Inst is one instruction.
type Inst struct {
	Line  int32
	Guard int32 // predicate register, or None
	Not   bool  // of the guard
	Op    Op
	Type  Type
	Type2 Type
	Type3 Type
	Type4 Type
	Mods  Mods
	// Args in the order of the text; a vector is one argument.
	Args []Operand
	// Form has a letter for each argument, as the form table explains.
	Form string
}

// None is the absence of a register.
const None int32 = -1

// OperandKind is the kind of an operand.
type OperandKind uint8

// Operand kinds.
const (
	Register    OperandKind = iota
	Integer                 // Imm, two's complement
	Float32                 // Imm has the bits
	Float64                 // Imm has the bits
	Symbol                  // address of Var plus Imm
	Special                 // special register, Imm is its number
	Address                 // [register + Imm], [variable + Imm] or [Imm]
	Vector                  // Elems
	Sink                    // _
	Label                   // Imm is the index of an instruction
	Callee                  // Func, or the address in Reg and its prototype Func; Elems are returns, then arguments
	FuncAddress             // address of Func
	Texture                 // Reg or Var is the handle, Elems the coordinates, then as an Address the sampler if there is one
)

// Operand is an argument of an instruction.
type Operand struct {
	Kind  OperandKind
	Not   bool  // a negated predicate, or a value with a minus sign
	Reg   int32 // Register; base of Address or Texture, or None
	Pair  int32 // the q of p|q, or None (Register only)
	Sel   Selector
	Imm   uint64
	Var   *Var
	Func  *Func
	Index *Index // to be added to an Address, or nil
	Elems []Operand
	// Returns is the number of Elems that are return values (Callee only).
	Returns int
}

// Index is a component of an address: a register of 32 bits times a positive number, in 64 bits.
type Index struct {
	Reg    int32
	Scale  uint64
	Signed bool
}

// SpecialReg is a special register.
type SpecialReg uint8

// Special registers.
const (
	TidX SpecialReg = iota
	TidY
	TidZ
	NTidX
	NTidY
	NTidZ
	CtaidX
	CtaidY
	CtaidZ
	NCtaidX
	NCtaidY
	NCtaidZ
	LaneID
	WarpID
	NWarpID
	SMID
	NSMID
	GridID
	LaneMaskEQ
	LaneMaskLE
	LaneMaskLT
	LaneMaskGE
	LaneMaskGT
	Clock
	ClockHi
	Clock64
	GlobalTimer
	GlobalTimerLo
	GlobalTimerHi
	DynamicSmem
	TotalSmem
	One
	Zero
	Zero64
	GridBarrierHi // the address of the grid barrier of a cooperative launch
	GridBarrierLo
)

var specials = map[string]SpecialReg{
	"%tid.x": TidX, "%tid.y": TidY, "%tid.z": TidZ,
	"%ntid.x": NTidX, "%ntid.y": NTidY, "%ntid.z": NTidZ,
	"%ctaid.x": CtaidX, "%ctaid.y": CtaidY, "%ctaid.z": CtaidZ,
	"%nctaid.x": NCtaidX, "%nctaid.y": NCtaidY, "%nctaid.z": NCtaidZ,
	"%laneid": LaneID, "%warpid": WarpID, "%nwarpid": NWarpID, "%smid": SMID, "%nsmid": NSMID,
	"%gridid": GridID, "%lanemask_eq": LaneMaskEQ, "%lanemask_le": LaneMaskLE,
	"%lanemask_lt": LaneMaskLT, "%lanemask_ge": LaneMaskGE, "%lanemask_gt": LaneMaskGT,
	"%clock": Clock, "%clock_hi": ClockHi, "%clock64": Clock64, "%globaltimer": GlobalTimer,
	"%globaltimer_lo": GlobalTimerLo, "%globaltimer_hi": GlobalTimerHi,
	"%dynamic_smem_size": DynamicSmem, "%total_smem_size": TotalSmem, "%aggr_smem_size": TotalSmem,
	// Each block is a cluster of its own.
	"%clusterid.x": CtaidX, "%clusterid.y": CtaidY, "%clusterid.z": CtaidZ,
	"%nclusterid.x": NCtaidX, "%nclusterid.y": NCtaidY, "%nclusterid.z": NCtaidZ,
	"%cluster_ctaid.x": Zero, "%cluster_ctaid.y": Zero, "%cluster_ctaid.z": Zero,
	"%cluster_nctaid.x": One, "%cluster_nctaid.y": One, "%cluster_nctaid.z": One,
	"%cluster_ctarank": Zero, "%cluster_nctarank": One,
	"%current_graph_exec": Zero64, "%reserved_smem_offset_begin": Zero, "%reserved_smem_offset_end": Zero,
	"%reserved_smem_offset_cap": Zero, "%reserved_smem_offset_0": Zero, "%reserved_smem_offset_1": Zero,
}

// Registers of the environment, two of which have a meaning in the driver ABI, and of the performance monitor, which
// read as zero.
func init() {
	for i := range 32 {
		specials[fmt.Sprintf("%%envreg%d", i)] = Zero
	}
	specials["%envreg1"], specials["%envreg2"] = GridBarrierHi, GridBarrierLo
	for i := range 8 {
		specials[fmt.Sprintf("%%pm%d", i)] = Zero
		specials[fmt.Sprintf("%%pm%d_64", i)] = Zero64
	}
}

// Wide reports whether the register has 64 bits, not 32.
func (s SpecialReg) Wide() bool {
	return s == GridID || s == Clock64 || s == GlobalTimer || s == Zero64
}

// Uniform reports whether all threads of a block read the same value at any time.
func (s SpecialReg) Uniform() bool {
	return s >= NTidX && s <= NCtaidZ || s == NSMID || s == GridID || s == DynamicSmem || s == TotalSmem || s == NWarpID || s == SMID || s >= One
}
