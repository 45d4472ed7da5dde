package lane

import "pegasus/accel/ptx"

// program is a compiled kernel.
type program struct {
	fn       *ptx.Func
	blocks   []block
	rows32   int // slots of each file
	rows64   int
	preds    int
	uniforms []uint64                // initial values: constants
	affine   int                     // affine registers' slots
	caches   int                     // memory instructions
	local    int                     // bytes of local memory a thread, without its stack
	stacked  bool                    // threads need a stack for indirect or recursive calls, or for alloca
	taken    place                   // row of the bytes that alloca has taken from the stack's end, or nowhere
	starts   []start                 // of the functions that have addresses, in their order
	shared   int                     // bytes of static shared memory
	awaits   bool                    // may poll memory that other blocks or other work write
	samplers map[uint64]*ptx.Sampler // of the module, by handle
}

// instr is a lowered instruction.
type instr struct {
	exec       func(g *group, in *instr)
	row        rowFunc
	d, d2      place
	a, b, c    place
	scalars    int // operands that are single values: 1 for a, 2, 4
	boolOp     boolOp
	notA, notC bool
	guard      int32 // predicate slot, or -1
	not        bool
	line       int32
	cache      int32      // region cache
	shape      int32      // number of its address shape; see group.reach
	seen       bool       // an earlier instruction has determined that shape
	move       chunkMover // or nil
	imm        uint64     // added to the address
	base       place      // a single value that is added to a times scale, unless scale is 0
	scale      uint64
	signed     bool   // a is
	align      uint64 // bits that must be clear in an address
	shift      int    // bytes from the address to the element, in a vector access
	extend     uint8  // bits to shift left and back to extend a sign
	mask       uint64 // bits of the register
	// private marks memory in which the same address is another place for each lane.
	private bool
	spin    bool // reads memory that other threads may be about to write
	aux     any  // data of this kind of instruction
	aux2    any
	inner   func(g *group, in *instr)
	affine  *affineOp // if d is an affine register
	// aware is set if exec handles affine registers as a and d; rows of other operands are written before.
	aware bool
}

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

type block struct {
	code   []instr
	ending ending
	guard  int32 // predicate slot, or -1
	not    bool
	target int32
	next   int32
	join   int32 // immediate post-dominator, or -1
	line   int32
	cost   int // of executing it once, in common instructions
	bar    *barrierOp
	call   *callOp
}

// lineAt returns the line of the instruction at, or of the block's ending.
func (b *block) lineAt(at int) int {
	if at < len(b.code) {
		return int(b.code[at].line)
	}
	return int(b.line)
}

// barrierOp is a bar or barrier instruction.
type barrierOp struct {
	id      place // uniform over the warp
	count   place // or nowhere
	arrive  bool
	cluster bool    // it is the cluster's
	red     ptx.Mod // Popc, And or Or; RN if it is no reduction
	d       place
	p       place
	not     bool
}
