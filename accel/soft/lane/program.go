package lane

import "pegasus/accel/ptx"

// program is a kernel that can be executed: the compiled kernel, with the executors of its instructions.
type program struct {
	irProgram
	blocks []block
}

// block is a block with instructions that can be executed.
type block struct {
	irBlock
	code []instr
}

// instr is an instruction with its executor.
type instr struct {
	irInstr
	exec   func(g *group, in *instr)
	inner  func(g *group, in *instr) // executor of a guarded instruction, for the threads for which the guard holds
	row    rowFunc                   // kernel of a row operation
	move   chunkMover                // of loads and stores, or nil
	affine *affineOp                 // if d is an affine register
	order  *order                    // of irCompareAffine
}

// lineAt returns the line of the instruction at, or of the block's ending.
func (b *block) lineAt(at int) int {
	if at < len(b.code) {
		return int(b.code[at].line)
	}
	return int(b.line)
}

// bind prepares a compiled kernel for execution.
func bind(p *irProgram) *program {
	out := &program{irProgram: *p, blocks: make([]block, len(p.blocks))}
	out.irProgram.blocks = nil
	for i := range p.blocks {
		b := &p.blocks[i]
		to := &out.blocks[i]
		to.irBlock, to.code = *b, make([]instr, len(b.code))
		to.irBlock.code = nil
		for k := range b.code {
			to.code[k].bind(&b.code[k])
		}
	}
	return out
}

// executors has the executor of each opcode. Those of loads, stores and additions depend on the types: see bind.
var executors [opcodes]func(g *group, in *instr)

func init() {
	executors = [opcodes]func(g *group, in *instr){
		irRow: runRow, irCompare: runCompare, irCompareAffine: runCompareAffine, irSelect: runSelect, irPredicates: runPredicates,
		irFill: runFill, irSpecial: runSpecial, irLoadParam: runLoadParam, irWatch: runWatch, irHold: runHold, irResume: runResume,
		irFrame: runFrame, irAtomic: runAtomic, irAsyncCopy: runCopy, irBulkCopy: runBulk, irBulkStore: runBulkStore,
		irAsyncStore: runAsyncStore, irInitMbarrier: runInitMbarrier, irInvalMbarrier: runInvalMbarrier,
		irArriveMbarrier: runArriveMbarrier, irWaitMbarrier: runWaitMbarrier, irAlloca: runAlloca, irStackSave: runStacksave,
		irStackRestore: runStackrestore, irOnlyBlock: runOnlyBlock, irMalloc: runMalloc, irFree: runFree, irPrint: runVprintf,
		irAssertFail: runAssertfail, irTexture: runTex, irQuery: runQuery, irIsType: runIsType, irLoadSurface: runLoadSurface,
		irStoreSurface: runStoreSurface, irReduceSurface: runReduceSurface, irLoadStoreTile: runMoveTile,
		irLoadStoreMatrix: runMatrixRows, irWarpBarrier: runWarpBarrier, irShuffle: runShfl, irVote: runVote, irMatch: runMatch,
		irElect: runElect, irReduce: runRedux, irMultiply: runMultiply, irTransposeMatrix: runMovmatrix,
	}
}

// bind chooses the executor of an instruction.
func (in *instr) bind(c *irInstr) {
	in.irInstr, in.exec = *c, executors[c.op]
	var alone rowFunc // for single values
	switch c.op {
	case irCompareAffine:
		in.order = orders[c.row]
		alone = in.bindRow(c)
	case irRow, irCompare, irSelect:
		alone = in.bindRow(c)
	case irSpecial:
		if c.d.affine != 0 {
			in.exec = runSpecialAffine
		}
	case irLoad:
		in.bindLoad(c)
	case irStore:
		in.bindStore(c)
	case irAdd:
		in.exec = pick(c.detail.(*atomicOp).size == 8, runAdd[uint32], runAdd[uint64])
	case irTexture:
		if op := c.detail.(*textureOp); op.plain && !op.integer {
			in.exec = runPlainTex
		}
	}
	if c.d.affine != 0 && !c.aware && c.op != irSelect {
		in.affine, in.exec = &affineOp{affineFuncs[c.row], alone, in.exec}, runAffine
	}
	if c.guard >= 0 {
		in.inner, in.exec = in.exec, runGuarded
	}
}

// bindRow chooses the kernel of a row operation, and returns that for single values.
func (in *instr) bindRow(c *irInstr) (alone rowFunc) {
	switch {
	case c.lane != nil:
		alone = rowOf(c.lane.f, c.lane.wide[0], c.lane.wide[1], c.lane.wide[2], c.lane.wide[3])
		in.row = alone
	default:
		alone = plainRows[c.row]
		in.row = alone
		if c.d.kind != single {
			in.row = rowNamed(c.row)
		}
	}
	if c.op == irRow && c.d.kind == single {
		in.exec = runSingle
	}
	return alone
}

func (in *instr) bindLoad(c *irInstr) {
	t, wide := c.mem.typ, c.d.kind == row64
	in.exec = loaderOf(t, wide)
	if size := t.Size(); (size == 8) == wide && !(t.Signed() && size < 4) {
		in.move = vectorLoads[size]
	}
}

func (in *instr) bindStore(c *irInstr) {
	size := c.mem.typ.Size()
	wide := c.b.kind == row64 || size == 8
	if wide == (size == 8) {
		in.move = vectorStores[size]
	}
	switch size {
	case 1:
		in.exec = pick(wide, runStore[uint8, uint32], runStore[uint8, uint64])
	case 2:
		in.exec = pick(wide, runStore[uint16, uint32], runStore[uint16, uint64])
	case 4:
		in.exec = pick(wide, runStore[uint32, uint32], runStore[uint32, uint64])
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
