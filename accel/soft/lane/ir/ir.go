// Package ir is the form of compiled kernels: instructions that work on rows of lanes, with their operands. Package
// compile writes it, and package exec executes it.
//
// Callers: accel/soft/lane/compile, accel/soft/lane/exec.
//
// Trust boundary: compile has checked the places, blocks and frames of a program. Addresses and values that a kernel
// computes are hostile.
package ir

import (
	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
)

// Program is a compiled kernel.
type Program struct {
	Func        *ptx.Func // the kernel
	Blocks      []Block
	Rows32      int                     // slots of rows with 32 bits a lane
	Rows64      int                     // slots of rows with 64 bits a lane
	Predicates  int                     // slots of predicates
	Uniforms    []uint64                // initial contents of the slots of single values: constants, or 0
	AffineSlots int                     // slots of affine registers, over both widths
	Caches      int                     // memory operands; each has a region cache
	Stables     int                     // address shapes that outlive blocks
	LocalBytes  int                     // bytes of local memory a thread, without its stack
	NeedsStack  bool                    // threads need a stack for indirect or recursive calls, or for alloca
	AllocaRow   Place                   // row of the bytes that alloca has taken from the stack's end, or Nowhere
	Starts      []FunctionStart         // of the functions that have addresses, in their order
	SharedBytes int                     // bytes of static shared memory
	MayPoll     bool                    // may poll memory that other blocks or other work write
	Samplers    map[uint64]*ptx.Sampler // of the module, by handle
	Opaque      map[uint64]ptx.Opaque   // kinds of the module's variables of opaque types, by address
}

// Block is a sequence of instructions that is entered at its first one and left at its last one.
type Block struct {
	Code     []Instr
	Ending   Ending
	Guard    int32    // slot of the predicate of the ending, or -1
	GuardNot bool     // the ending is for threads for which the predicate does not hold
	Target   int32    // block that a branch leads to, or -1
	Next     int32    // block that follows
	Join     int32    // immediate post-dominator, or -1
	Line     int32    // of the ending in the PTX
	Cost     int      // of executing the block once, in common instructions
	Barrier  *Barrier // of arrives
	Call     *Call    // of calls
	Renews   []int32  // numbers of the address shapes that outlive blocks, but not this one
}

// Instr is an instruction of the executor. One instruction of PTX becomes one or a few of them. An operand that the
// instruction does not have is Nowhere.
type Instr struct {
	Op        Op
	Row       string  // of row operations: the name of the operation in package arith, or "" if Lane is set
	Lane      *LaneOp // a row operation that is given for single lanes, or nil
	Dst, Dst2 Place   // results; Dst2 is the second one of a comparison or a warp instruction
	A, B, C   Place   // sources
	Scalars   int     // sources that are single values: 1 for A, 2 for B, 4 for C
	Combine   BoolOp  // combines the result of a comparison, or predicate A, with predicate C
	NotA      bool    // predicate A is complemented
	NotC      bool    // predicate C is complemented
	Guard     int32   // slot of the predicate that restricts the threads, or -1
	GuardNot  bool    // the guard is complemented
	Line      int32   // in the PTX, 0 if there is none
	Mem       Memory  // of instructions that access memory by addresses
	Imm       uint64  // number of a special register, or an offset in bytes within the frame
	// Detail has the further operands and modifiers of the instruction's family: a pointer to one of the structs in
	// operands.go, or nil. The comment of the opcode names the type.
	Detail any
	// TakesAffine is set if the instruction handles affine registers as Dst and as the address of Mem; rows of other
	// operands are written before.
	TakesAffine bool
}

// LaneOp is an operation that is given for single lanes.
type LaneOp struct {
	Func arith.LaneFunc
	Wide [4]bool // which of Dst, A, B and C have 64 bits
}

// Memory is a memory operand: its addresses, and the properties of the access.
type Memory struct {
	Address     Place  // of 64 bits; with a scale, the index of 32 bits
	Offset      uint64 // bytes added to the address
	Base        Place  // a single value that is added to index times scale
	Scale       uint64 // bytes; 0: there are neither base nor index
	SignedIndex bool   // the index has a sign

	Space ptx.Space
	Type  ptx.Type // of the element that a load or a store moves
	Shift int      // bytes from the address to that element, in a vector access
	Size  uint64   // bytes of the whole access, a power of two
	Align uint64   // bits that must be clear in an address

	Write   bool
	Atomic  bool // an atomic access can't be to local memory
	Private bool // the same address may be another place for each lane
	Spin    bool // reads memory that other threads may be about to write

	Cache      int32 // number of its region cache
	Shape      int32 // number of its address shape within the block
	ShapeKnown bool  // an earlier instruction of the block has determined that shape
	Stable     int32 // number of the address shape among those that outlive blocks, or 0
	Line       int32 // in the PTX
}

// StoresOnce reports whether lanes that store to one address store once, the last of them: a store to memory that other
// blocks see may release another block, which must not observe further stores.
func (m *Memory) StoresOnce() bool { return m.Space == ptx.Global || m.Space == ptx.Generic }

// Op selects the executor of an instruction.
type Op uint8

const (
	OpNone Op = iota

	// Operations on rows.

	OpRow           // Dst = Row(A, B, C), or Lane
	OpCompare       // predicates Dst and Dst2 = the comparison Row(A, B) and its opposite, combined with predicate C
	OpCompareAffine // OpCompare of integers, of which one at least is an affine register
	OpSelect        // Dst = predicate C ? A : B
	OpPredicates    // predicate Dst = predicate A combined with predicate C
	OpFill          // writes the row of the affine register A
	OpSpecial       // Dst = the special register Imm
	OpLoadParam     // Dst = a parameter of the kernel; ParamLoad

	// Control within a block.

	OpWatch     // checks whether the launch is cancelled or is to pause
	OpPollClock // records that a loop waits for a clock
	OpHold      // lets other threads continue before a store
	OpResume    // restores the registers after a call; Call
	OpFrame     // Dst = the address at Imm within the frame

	// Memory. Loads, stores, atomics, copies and mbarriers have Mem.

	OpLoad           // Dst = the element
	OpStore          // of the element B
	OpAtomic         // with operands B and C; Dst, if it is not Nowhere, = the previous value; Atomic
	OpAdd            // OpAtomic for the addition of integers
	OpAsyncCopy      // from Detail to Mem; AsyncCopy
	OpBulkCopy       // from Detail to Mem; BulkCopy
	OpBulkStore      // clears B bytes
	OpAsyncStore     // AsyncStore
	OpInitMbarrier   // with B arrivals
	OpInvalMbarrier  // makes an mbarrier plain memory
	OpArriveMbarrier // Dst = the previous state; Mbarrier
	OpWaitMbarrier   // predicate Dst = whether the phase with the state or parity B is complete; Mbarrier

	// Local memory, and functions that the engine provides.

	OpAlloca       // Dst = the address of A bytes; B is the row of bytes taken; Alloca
	OpStackSave    // Dst = the position of the stack; B is the row of bytes taken, or Nowhere
	OpStackRestore // to position A; B is the row of bytes taken
	OpOnlyBlock    // fails unless the block of the cluster that A names is 0
	OpMalloc       // Dst = the address of A bytes
	OpFree         // the allocation at A
	OpPrint        // Dst = vprintf(A, B); Print
	OpAssertFail   // __assertfail(A, B, C, ...); Assert

	// Textures and surfaces.

	OpTexture       // of handle A; Texture
	OpQuery         // Dst = a property of the texture, surface or sampler of handle A; Query
	OpIsType        // Dst = 1 if the handle A is of a kind, else 0; TypeTest
	OpLoadSurface   // of handle A; Surface
	OpStoreSurface  // the same
	OpReduceSurface // the same

	// Matrices in memory; both have Mem.

	OpLoadStoreTile   // wmma.load and wmma.store; TileMove
	OpLoadStoreMatrix // ldmatrix and stmatrix; MatrixRows

	// Warp instructions.

	OpWarpBarrier     // Warp
	OpShuffle         // Dst = A of the lane that B and C select, Dst2 = whether there is one; Warp
	OpVote            // of predicate C; Warp
	OpMatch           // of A; Warp
	OpElect           // Dst = the leader, Dst2 = whether the lane is it; Warp
	OpReduce          // of A; Warp
	OpMultiply        // Product
	OpTransposeMatrix // Dst = A transposed

	NumOps // the number of opcodes
)

// Ending is the way in which a block ends.
type Ending uint8

const (
	Falls   Ending = iota // continues with the next block
	Jumps                 // a branch, guarded or not
	Exits                 // threads end
	Calls                 // a function
	Returns               // from a function
	Traps                 // the launch fails
	Arrives               // at a barrier
)

// Place is the location of an operand.
type Place struct {
	Slot   int32 // number among the places of its kind
	Kind   Kind
	Affine uint16 // number of an affine register's slot, or 0
}

// Kind is the kind of an operand's location.
type Kind uint8

const (
	Nowhere   Kind = iota
	Row32          // a row with 32 bits a lane
	Row64          // a row with 64 bits a lane
	Single         // one of the group's single values, of 64 bits
	Predicate      // one bit a lane
	NumKinds       // the number of kinds
)

// BoolOp combines predicates.
type BoolOp uint8

const (
	BoolNone BoolOp = iota
	BoolAnd
	BoolOr
	BoolXor
)

// Sizes in threads.
const (
	MaxLanes   = 256  // of a group: the threads that execute in lockstep
	WarpLanes  = 32   // of a warp
	MaxThreads = 1024 // of a block
)

// Windows of the generic address space. Device addresses are below 2^47.
const (
	SharedWindow = 1 << 48
	LocalWindow  = 2 << 48
	ParamWindow  = 3 << 48
	CodeWindow   = 4 << 48 // addresses of functions, which are no memory
	GridWindow   = 5 << 48 // grid barriers of cooperative launches
	WindowMask   = 0xffff << 48
)

// WatchEvery is the cost of code, in common instructions, between two checks whether the launch is cancelled.
const WatchEvery = 1 << 11

// BulkUnit is the granularity of sizes and addresses of bulk copies, in bytes.
const BulkUnit = 16

// FrameUnit is the granularity of the sizes of frames, in bytes: more than a join takes in memory or nearly so.
const FrameUnit = 64

// CodeStep is the distance of the addresses of functions, in bytes.
const CodeStep = 16

// FunctionStart is the first block of a function, and the bytes of its frame.
type FunctionStart struct{ Block, Frame int }
