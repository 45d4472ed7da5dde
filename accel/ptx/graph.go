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

// EndsBlock says whether nothing may follow the instruction in its block:
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

// maxBlock bounds the instructions of a block, so that an engine that looks
// between blocks whether it is to stop does so often enough.
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
	var blocks []Block
	index := make([]int, n+1)
	for i := 0; i < n; i++ {
		if leader[i] || i-blocks[len(blocks)-1].First == maxBlock {
			blocks = append(blocks, Block{First: i})
		}
		index[i] = len(blocks) - 1
		blocks[len(blocks)-1].End = i + 1
	}
	index[n] = len(blocks) // beyond the end; the last instruction is a return
	for k := range blocks {
		b.connect(&blocks[k], k, index)
	}
	postDominators(blocks)
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

// postDominators sets Join by the algorithm of Cooper, Harvey and Kennedy on
// the reversed graph. A guarded return has an edge to the end as well, but it
// ends threads rather than parting them, so that edge is left out.
func postDominators(blocks []Block) {
	n := len(blocks)
	preds := make([][]int, n)
	var roots []int
	for i := range blocks {
		for _, s := range blocks[i].Succs {
			preds[s] = append(preds[s], i)
		}
		if len(blocks[i].Succs) == 0 {
			roots = append(roots, i)
		}
	}
	order, number := postorder(preds, roots, n)
	const end = -1
	join := make([]int, n)
	known := make([]bool, n)
	rank := func(i int) int {
		if i == end {
			return n + 1
		}
		return number[i]
	}
	meet := func(a, b int) int {
		for a != b {
			for rank(a) < rank(b) {
				a = join[a]
			}
			for rank(b) < rank(a) {
				b = join[b]
			}
		}
		return a
	}
	for changed := true; changed; {
		changed = false
		for i := len(order) - 1; i >= 0; i-- {
			k := order[i]
			best, found := end, len(blocks[k].Succs) == 0
			for _, s := range blocks[k].Succs {
				switch {
				case !known[s]:
				case !found:
					best, found = s, true
				default:
					best = meet(best, s)
				}
			}
			if found && (!known[k] || join[k] != best) {
				join[k], known[k], changed = best, true, true
			}
		}
	}
	for i := range blocks {
		blocks[i].Join = end
		if known[i] {
			blocks[i].Join = join[i]
		}
	}
}

// postorder numbers the nodes that can be reached from roots.
func postorder(next [][]int, roots []int, n int) (order, number []int) {
	type frame struct{ node, edge int }
	number = make([]int, n)
	seen := make([]bool, n)
	var stack []frame
	for _, r := range roots {
		if seen[r] {
			continue
		}
		seen[r] = true
		stack = append(stack, frame{r, 0})
		for len(stack) > 0 {
			f := &stack[len(stack)-1]
			if f.edge < len(next[f.node]) {
				s := next[f.node][f.edge]
				f.edge++
				if !seen[s] {
					seen[s] = true
					stack = append(stack, frame{s, 0})
				}
				continue
			}
			number[f.node] = len(order)
			order = append(order, f.node)
			stack = stack[:len(stack)-1]
		}
	}
	return order, number
}
