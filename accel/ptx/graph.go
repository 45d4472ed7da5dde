package ptx

// Block is a basic block: instructions First up to, not including, End.
type Block struct {
	First, End int
	Succs      []int
	// Join is the immediate post-dominator, or -1 for the end of the thread.
	Join int
}

// Instructions that end a basic block without being branches.
var (
	opExit    = OpOf("exit")
	opTrap    = OpOf("trap")
	opBar     = OpOf("bar")
	opBarrier = OpOf("barrier")
)

// EndsBlock reports whether nothing may follow the instruction in its block:
// branches, calls, ends of threads, and barriers, where threads wait.
func (in *Inst) EndsBlock() bool {
	switch in.Op {
	case opBra, opRet, opExit, opTrap:
		return true
	case opBar, opBarrier:
		return !in.Mods.Has(Warp)
	case opCall:
		return in.Transfers()
	}
	return false
}

// maxBlock bounds the instructions of a block, so that an engine that checks for cancellation between blocks does so
// often enough.
const maxBlock = 128

// Blocks cuts a body into basic blocks, in the order of the text, with their
// successors and immediate post-dominators.
func (b *Body) Blocks() []Block {
	n := len(b.Insts)
	leader := make([]bool, n+1)
	leader[0] = true
	for i := range b.Insts {
		in := &b.Insts[i]
		if in.Op == opBra {
			leader[in.Args[0].Imm] = true
		}
		if in.EndsBlock() {
			leader[i+1] = true
		}
	}
	count := n / maxBlock
	for _, l := range leader {
		if l {
			count++
		}
	}
	blocks := make([]Block, 0, count)
	index := make([]int, n+1)
	for i := 0; i < n; i++ {
		if leader[i] || i-blocks[len(blocks)-1].First == maxBlock {
			blocks = append(blocks, Block{First: i})
		}
		index[i] = len(blocks) - 1
		blocks[len(blocks)-1].End = i + 1
	}
	index[n] = len(blocks) // beyond the end; the last instruction is a return
	edges := make([]int, 2*len(blocks))
	for k := range blocks {
		blocks[k].Succs = edges[2*k : 2*k : 2*k+2]
		b.connect(&blocks[k], k, index)
	}
	postDominators(blocks, ends(blocks, b.Insts))
	return blocks
}

func (b *Body) connect(blk *Block, k int, index []int) {
	in := &b.Insts[blk.End-1]
	falls := true
	switch in.Op {
	case opBra:
		blk.Succs = append(blk.Succs, index[in.Args[0].Imm])
		falls = in.Guard != None
	case opRet, opExit, opTrap:
		falls = in.Guard != None
	}
	if falls && (len(blk.Succs) == 0 || blk.Succs[0] != k+1) {
		blk.Succs = append(blk.Succs, k+1)
	}
}
