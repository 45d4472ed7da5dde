package ptx

// Inst is one instruction.
type Inst struct {
	Line  int32
	Guard int32 // predicate register, or None
	Not   bool  // of the guard
	Op    Op
	Type  Type
	Type2 Type
	Mods  Mods
	// Args in the order of the text; a vector is one argument.
	Args []Operand
	// Form has a letter for each argument, as the form table explains.
	Form string
}

// None is the absence of a register.
const None int32 = -1

// OperandKind says what an operand is.
type OperandKind uint8

// Operand kinds.
const (
	Register    OperandKind = iota
	Integer                 // Imm, two's complement
	Float32                 // Imm has the bits
	Float64                 // Imm has the bits
	Symbol                  // address of Var plus Imm
	Special                 // special register, Imm says which
	Address                 // [register + Imm], [variable + Imm] or [Imm]
	Vector                  // Elems
	Sink                    // _
	Label                   // Imm is the index of an instruction
	Callee                  // Func, or the address in Reg and its prototype Func; Elems are returns, then arguments
	FuncAddress             // address of Func
	Texture                 // Reg or Imm is the handle, Elems the coordinates
)

// Operand is an argument of an instruction.
type Operand struct {
	Kind  OperandKind
	Not   bool  // a negated predicate
	Reg   int32 // Register; base of Address or Texture, or None
	Pair  int32 // the q of p|q, or None (Register only)
	Imm   uint64
	Var   *Var
	Func  *Func
	Elems []Operand
	// Returns is how many of Elems are return values (Callee only).
	Returns int
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
	Zero
)

var specials = map[string]struct {
	reg  SpecialReg
	size int
}{
	"%tid.x": {TidX, 4}, "%tid.y": {TidY, 4}, "%tid.z": {TidZ, 4},
	"%ntid.x": {NTidX, 4}, "%ntid.y": {NTidY, 4}, "%ntid.z": {NTidZ, 4},
	"%ctaid.x": {CtaidX, 4}, "%ctaid.y": {CtaidY, 4}, "%ctaid.z": {CtaidZ, 4},
	"%nctaid.x": {NCtaidX, 4}, "%nctaid.y": {NCtaidY, 4}, "%nctaid.z": {NCtaidZ, 4},
	"%laneid": {LaneID, 4}, "%warpid": {WarpID, 4}, "%nwarpid": {NWarpID, 4}, "%smid": {SMID, 4}, "%nsmid": {NSMID, 4},
	"%gridid": {GridID, 8}, "%lanemask_eq": {LaneMaskEQ, 4}, "%lanemask_le": {LaneMaskLE, 4},
	"%lanemask_lt": {LaneMaskLT, 4}, "%lanemask_ge": {LaneMaskGE, 4}, "%lanemask_gt": {LaneMaskGT, 4},
	"%clock": {Clock, 4}, "%clock_hi": {ClockHi, 4}, "%clock64": {Clock64, 8}, "%globaltimer": {GlobalTimer, 8},
	"%globaltimer_lo": {GlobalTimerLo, 4}, "%globaltimer_hi": {GlobalTimerHi, 4},
	"%dynamic_smem_size": {DynamicSmem, 4}, "%total_smem_size": {TotalSmem, 4},
}

// Uniform says whether all threads of a block read the same value at any time.
func (s SpecialReg) Uniform() bool {
	return s >= NTidX && s <= NCtaidZ || s == NSMID || s == GridID || s == DynamicSmem || s == TotalSmem || s == NWarpID || s == SMID || s == Zero
}
