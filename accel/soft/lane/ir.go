package lane

import "pegasus/accel/ptx"

// irProgram is a compiled kernel.
type irProgram struct {
	fn       *ptx.Func // the kernel
	blocks   []irBlock
	rows32   int                     // slots of rows with 32 bits a lane
	rows64   int                     // slots of rows with 64 bits a lane
	preds    int                     // slots of predicates
	uniforms []uint64                // initial contents of the slots of single values: constants, or 0
	affine   int                     // slots of affine registers, over both widths
	caches   int                     // memory operands; each has a region cache
	local    int                     // bytes of local memory a thread, without its stack
	stacked  bool                    // threads need a stack for indirect or recursive calls, or for alloca
	taken    place                   // row of the bytes that alloca has taken from the stack's end, or nowhere
	starts   []start                 // of the functions that have addresses, in their order
	shared   int                     // bytes of static shared memory
	awaits   bool                    // may poll memory that other blocks or other work write
	samplers map[uint64]*ptx.Sampler // of the module, by handle
	opaque   map[uint64]ptx.Opaque   // kinds of the module's variables of opaque types, by address
}

// irBlock is a sequence of instructions that is entered at its first one and left at its last one.
type irBlock struct {
	code   []irInstr
	ending ending
	guard  int32      // slot of the predicate of the ending, or -1
	not    bool       // the ending is for threads for which the predicate does not hold
	target int32      // block that a branch leads to, or -1
	next   int32      // block that follows
	join   int32      // immediate post-dominator, or -1
	line   int32      // of the ending in the PTX
	cost   int        // of executing the block once, in common instructions
	bar    *barrierOp // of arrives
	call   *callOp    // of calls
}

// irInstr is an instruction of the executor. One instruction of PTX becomes one or a few of them. An operand that the
// instruction does not have is nowhere.
type irInstr struct {
	op      opcode
	row     string // of row operations: the name of the operation in package arith, or "" if lane is set
	lane    *laneOp
	d, d2   place  // results; d2 is the second one of a comparison or a warp instruction
	a, b, c place  // sources
	scalars int    // sources that are single values: 1 for a, 2 for b, 4 for c
	boolOp  boolOp // combines the result of a comparison, or predicate a, with predicate c
	notA    bool   // predicate a is complemented
	notC    bool   // predicate c is complemented
	guard   int32  // slot of the predicate that restricts the threads, or -1
	not     bool   // the guard is complemented
	line    int32  // in the PTX, 0 if there is none
	mem     memOperand
	imm     uint64 // number of a special register, or an offset in bytes within the frame
	// detail has the further operands and modifiers of the instruction's family: a pointer to one of the structs in
	// operands.go, or nil. The comment of the opcode names the type.
	detail any
	// aware is set if the instruction handles affine registers as d and as the address; rows of other operands are written
	// before.
	aware bool
}

// laneOp is an operation that is given for single lanes.
type laneOp struct {
	f    laneFunc
	wide [4]bool // which of d, a, b and c have 64 bits
}

// memOperand is a memory operand: its addresses, and the properties of the access.
type memOperand struct {
	address place  // of 64 bits; with a scale, the index of 32 bits
	offset  uint64 // bytes added to the address
	base    place  // a single value that is added to index times scale
	scale   uint64 // bytes; 0: there are neither base nor index
	signed  bool   // the index is

	space ptx.Space
	typ   ptx.Type // of the element that a load or a store moves
	shift int      // bytes from the address to that element, in a vector access
	size  uint64   // bytes of the whole access, a power of two
	align uint64   // bits that must be clear in an address

	write   bool
	atomic  bool // an atomic access can't be to local memory
	private bool // the same address may be another place for each lane
	spin    bool // reads memory that other threads may be about to write

	cache int32 // number of its region cache
	shape int32 // number of its address shape within the block
	seen  bool  // an earlier instruction of the block has determined that shape
	line  int32 // in the PTX
}

// once reports whether lanes that store to one address store once, the last of them: a store to memory that other
// blocks see may release another block, which must not observe further stores.
func (m *memOperand) once() bool { return m.space == ptx.Global || m.space == ptx.Generic }

// opcode selects the executor of an instruction.
type opcode uint8

const (
	irNone opcode = iota

	// Operations on rows.

	irRow           // d = row(a, b, c), or lane
	irCompare       // predicates d and d2 = the comparison row(a, b), combined with predicate c
	irCompareAffine // irCompare of integers, of which one at least is an affine register
	irSelect        // d = predicate c ? a : b
	irPredicates    // predicate d = predicate a combined with predicate c
	irFill          // writes the row of the affine register a
	irSpecial       // d = the special register imm
	irLoadParam     // d = a parameter of the kernel; paramLoad

	// Control within a block.

	irWatch  // checks whether the launch is cancelled or is to pause
	irHold   // lets other threads continue before a store
	irResume // restores the registers after a call; callOp
	irFrame  // d = the address at imm within the frame

	// Memory; all have mem.

	irLoad
	irStore           // b
	irAtomic          // b and c; d = the previous value, if d is not nowhere; atomicOp
	irAdd             // irAtomic for the addition of integers
	irAsyncCopy       // from detail to mem; asyncCopy
	irBulkCopy        // from detail to mem; bulkCopy
	irBulkStore       // clears b bytes
	irAsyncStore      // asyncStore
	irInitMbarrier    // with b arrivals
	irInvalMbarrier   // makes an mbarrier plain memory
	irArriveMbarrier  // d = the previous state; mbarrierOp
	irWaitMbarrier    // predicate d = whether the phase with the state or parity b is complete; mbarrierOp
	irAlloca          // d = the address of a bytes; b is the row of bytes taken; allocaOp
	irStackSave       // d = the position of the stack; b is the row of bytes taken, or nowhere
	irStackRestore    // to position a; b is the row of bytes taken
	irOnlyBlock       // fails unless the block of the cluster that a names is 0
	irMalloc          // d = the address of a bytes
	irFree            // the allocation at a
	irPrint           // d = vprintf(a, b); printOp
	irAssertFail      // assertOp
	irTexture         // of handle a; textureOp
	irQuery           // d = a property of the texture, surface or sampler of handle a; queryOp
	irIsType          // d = 1 if the handle a is of a kind, else 0; typeTest
	irLoadSurface     // of handle a; surfaceOp
	irStoreSurface    // the same
	irReduceSurface   // the same
	irLoadStoreTile   // wmma.load and wmma.store; tileMove
	irLoadStoreMatrix // ldmatrix and stmatrix; matrixRows

	// Warp instructions.

	irWarpBarrier     // warpOp
	irShuffle         // d = a of the lane that b and c select, d2 = whether there is one; warpOp
	irVote            // of predicate c; warpOp
	irMatch           // of a; warpOp
	irElect           // d = the leader, d2 = whether the lane is it; warpOp
	irReduce          // of a; warpOp
	irMultiply        // matrixOp
	irTransposeMatrix // d = a transposed
	opcodes
)

// ending is the way in which a block ends.
type ending uint8

const (
	falls   ending = iota // continues with the next block
	jumps                 // a branch, guarded or not
	exits                 // threads end
	calls                 // a function
	returns               // from a function
	traps                 // the launch fails
	arrives               // at a barrier
)

// place is the location of an operand.
type place struct {
	slot   int32 // number among the places of its kind
	kind   placeKind
	affine uint16 // number of an affine register's slot, or 0
}

// placeKind is the kind of an operand's location.
type placeKind uint8

const (
	nowhere    placeKind = iota
	row32                // a row with 32 bits a lane
	row64                // a row with 64 bits a lane
	single               // one of the group's single values, of 64 bits
	predicate            // one bit a lane
	placeKinds           // the number of kinds
)

// boolOp combines predicates.
type boolOp uint8

const (
	boolNone boolOp = iota
	boolAnd
	boolOr
	boolXor
)

// Sizes in threads.
const (
	maxLanes   = 256  // of a group: the threads that execute in lockstep
	warpLanes  = 32   // of a warp
	maxThreads = 1024 // of a block
)

// Windows of the generic address space. Device addresses are below 2^47.
const (
	sharedWindow = 1 << 48
	localWindow  = 2 << 48
	paramWindow  = 3 << 48
	codeWindow   = 4 << 48 // addresses of functions, which are no memory
	gridWindow   = 5 << 48 // grid barriers of cooperative launches
	windowMask   = 0xffff << 48
)

// codeStep is the distance of the addresses of functions, in bytes.
const codeStep = 16

// start is the first block of a function, and the bytes of its frame.
type start struct{ block, frame int }
