// Package exec executes compiled kernels. Each instruction works on up to 256 threads of a block in lockstep, with a row
// of lanes per register; threads that part meet again at the immediate post-dominator; blocks run in parallel.
//
// Callers: accel/soft/lane.
//
// Trust boundary: kernels and their arguments are hostile. Every memory access is checked against the launch's Memory,
// and a kernel can always be cancelled.
package exec

import (
	"sync"

	"pegasus/accel/ptx"
	"pegasus/accel/soft/lane/arith"
	"pegasus/accel/soft/lane/ir"
)

// Program is a kernel that can be executed: the compiled kernel, with the executors of its instructions.
type Program struct {
	ir.Program
	blocks   []block
	compiled bool // some instructions are compiled

	// idle has workers for later launches. A pool lets those of kernels that aren't launched any more be collected:
	// each may hold megabytes.
	idle sync.Pool
}

// block is a block with instructions that can be executed.
type block struct {
	ir.Block
	code     []instr
	compiled bool  // some instructions of it are
	body     int32 // block that its branch leads around, or into if taken is set; or -1
	taken    bool
	holds    int // of a body: stores in it that may let other threads continue
}

// instr is an instruction with its executor. The fields that most instructions need share the first cache lines.
type instr struct {
	exec   func(g *group, in *instr)
	native *native       // if machine code begins with the instruction
	row    arith.RowFunc // kernel of a row operation
	affine *affineOp     // if Dst is an affine register
	order  *order        // of OpCompareAffine
	ir.Instr
	inner func(g *group, in *instr) // executor of a guarded instruction, for the threads for which the guard holds
	move  chunkMover                // of loads and stores, or nil
}

// lineAt returns the line of the instruction at, or of the block's ending.
func (b *block) lineAt(at int) int {
	if at < len(b.code) {
		return int(b.code[at].Line)
	}
	return int(b.Line)
}

// Bind prepares a compiled kernel for execution.
func Bind(p *ir.Program) *Program {
	out := &Program{Program: *p, blocks: make([]block, len(p.Blocks))}
	out.Program.Blocks = nil
	blocks, natives := compiled(p)
	for i := range blocks {
		b := &blocks[i]
		to := &out.blocks[i]
		to.Block, to.code = *b, make([]instr, len(b.Code))
		to.Block.Code = nil
		for k := range b.Code {
			to.code[k].bind(&b.Code[k])
		}
	}
	for i := range natives {
		n := &natives[i]
		b := &out.blocks[n.span.Block]
		if first := &b.code[n.span.At]; n.span.Part && first.native != nil {
			first.native.part = n
		} else {
			first.native = n
		}
		b.compiled, out.compiled = true, true
	}
	for i := range out.blocks {
		out.findBody(&out.blocks[i])
	}
	return out
}

// executors has the executor of each opcode. Those of loads, stores and additions depend on the types: see bind.
var executors [ir.NumOps]func(g *group, in *instr)

func init() {
	executors = [ir.NumOps]func(g *group, in *instr){
		ir.OpRow: runRow, ir.OpCompare: runCompare, ir.OpCompareAffine: runCompareAffine, ir.OpSelect: runSelect, ir.OpPredicates: runPredicates,
		ir.OpFill: runFill, ir.OpSpecial: runSpecial, ir.OpPollClock: runPollClock, ir.OpLoadParam: runLoadParam, ir.OpWatch: runWatch, ir.OpHold: runHold, ir.OpResume: runResume,
		ir.OpFrame: runFrame, ir.OpAtomic: runAtomic, ir.OpAsyncCopy: runCopy, ir.OpBulkCopy: runBulk, ir.OpBulkStore: runBulkStore,
		ir.OpAsyncStore: runAsyncStore, ir.OpInitMbarrier: runInitMbarrier, ir.OpInvalMbarrier: runInvalMbarrier,
		ir.OpArriveMbarrier: runArriveMbarrier, ir.OpWaitMbarrier: runWaitMbarrier, ir.OpAlloca: runAlloca, ir.OpStackSave: runStacksave,
		ir.OpStackRestore: runStackrestore, ir.OpOnlyBlock: runOnlyBlock, ir.OpMalloc: runMalloc, ir.OpFree: runFree, ir.OpPrint: runVprintf,
		ir.OpAssertFail: runAssertfail, ir.OpTexture: runTex, ir.OpQuery: runQuery, ir.OpIsType: runIsType, ir.OpLoadSurface: runLoadSurface,
		ir.OpStoreSurface: runStoreSurface, ir.OpReduceSurface: runReduceSurface, ir.OpLoadStoreTile: runMoveTile,
		ir.OpLoadStoreMatrix: runMatrixRows, ir.OpWarpBarrier: runWarpBarrier, ir.OpShuffle: runShfl, ir.OpVote: runVote, ir.OpMatch: runMatch,
		ir.OpElect: runElect, ir.OpReduce: runRedux, ir.OpMultiply: runMultiply, ir.OpTransposeMatrix: runMovmatrix,
	}
}

// bind chooses the executor of an instruction.
func (in *instr) bind(c *ir.Instr) {
	in.Instr, in.exec = *c, executors[c.Op]
	var alone arith.RowFunc // for single values
	switch c.Op {
	case ir.OpCompareAffine:
		in.order = orders[c.Row]
		alone = in.bindRow(c)
	case ir.OpRow, ir.OpCompare, ir.OpSelect:
		alone = in.bindRow(c)
	case ir.OpSpecial:
		if c.Dst.Affine != 0 {
			in.exec = runSpecialAffine
		}
	case ir.OpLoad:
		in.bindLoad(c)
	case ir.OpStore:
		in.bindStore(c)
	case ir.OpAdd:
		in.exec = arith.Pick(c.Detail.(*ir.Atomic).Size == 8, runAdd[uint32], runAdd[uint64])
	case ir.OpTexture:
		if op := c.Detail.(*ir.Texture); op.Plain && !op.Integer {
			in.exec = runPlainTex
		}
	}
	if c.Dst.Affine != 0 && !c.TakesAffine && c.Op != ir.OpSelect {
		in.affine, in.exec = &affineOp{affineFuncs[c.Row], alone, in.exec}, runAffine
		if c.Op == ir.OpRow && (c.Row == "addU32" || c.Row == "movU32") {
			in.exec = runCounter
		}
	}
	if c.Guard >= 0 {
		in.inner, in.exec = in.exec, runGuarded
	}
}

// bindRow chooses the kernel of a row operation, and returns that for single values.
func (in *instr) bindRow(c *ir.Instr) (alone arith.RowFunc) {
	switch {
	case c.Lane != nil:
		alone = arith.RowOf(c.Lane.Func, c.Lane.Wide[0], c.Lane.Wide[1], c.Lane.Wide[2], c.Lane.Wide[3])
		in.row = alone
	default:
		alone = arith.PlainRow(c.Row)
		in.row = alone
		if c.Dst.Kind != ir.Single {
			in.row = arith.FastRow(c.Row)
		}
	}
	if c.Op == ir.OpRow && c.Dst.Kind == ir.Single {
		in.exec = runSingle
	}
	return alone
}

func (in *instr) bindLoad(c *ir.Instr) {
	t, wide := c.Mem.Type, c.Dst.Kind == ir.Row64
	in.exec = loaderOf(t, wide)
	if size := t.Size(); (size == 8) == wide && !(t.Signed() && size < 4) {
		in.move = vectorLoads[size]
	}
}

func (in *instr) bindStore(c *ir.Instr) {
	size := c.Mem.Type.Size()
	wide := c.B.Kind == ir.Row64 || size == 8
	if wide == (size == 8) {
		in.move = vectorStores[size]
	}
	switch size {
	case 1:
		in.exec = arith.Pick(wide, runStore[uint8, uint32], runStore[uint8, uint64])
	case 2:
		in.exec = arith.Pick(wide, runStore[uint16, uint32], runStore[uint16, uint64])
	case 4:
		in.exec = arith.Pick(wide, runStore[uint32, uint32], runStore[uint32, uint64])
	default:
		in.exec = runStore[uint64, uint64]
	}
}

// loaderOf returns the executor of loads of elements of a type into rows of 32 bits, or wide ones of 64.
func loaderOf(t ptx.Type, wide bool) func(*group, *instr) {
	type pair struct{ narrow, wide func(*group, *instr) }
	signed := [9]pair{1: {runLoad[int8, uint32], runLoad[int8, uint64]}, 2: {runLoad[int16, uint32], runLoad[int16, uint64]}, 4: {runLoad[int32, uint32], runLoad[int32, uint64]}}
	plain := [9]pair{1: {runLoad[uint8, uint32], runLoad[uint8, uint64]}, 2: {runLoad[uint16, uint32], runLoad[uint16, uint64]},
		4: {runLoad[uint32, uint32], runLoad[uint32, uint64]}, 8: {nil, runLoad[uint64, uint64]}}
	p := plain[t.Size()]
	if t.Signed() && t.Size() < 8 {
		p = signed[t.Size()]
	}
	if wide {
		return p.wide
	}
	return p.narrow
}

// instrBytes is roughly the memory of an instruction.
const instrBytes = 512

// Bytes returns roughly the memory of a program.
func (p *Program) Bytes() int {
	n := 0
	for i := range p.blocks {
		n += 1 + len(p.blocks[i].code)
	}
	return n * instrBytes
}
