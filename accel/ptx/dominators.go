package ptx

// postDominators sets Join by the algorithm of Lengauer and Tarjan on the reversed graph, with paths compressed but not
// balanced: n log n steps for any graph. A block from which no thread can reach its end joins nowhere.
//
// A guarded return has an edge to the end as well, but it ends threads rather than parting them, so that edge is left
// out. ends marks the blocks that have one.
func postDominators(blocks []Block, ends []bool) {
	d := newDominators(blocks, ends)
	for w := int32(len(d.node) - 1); w > 0; w-- {
		b := &blocks[d.node[w]]
		if d.ends[d.node[w]] {
			d.semi[w] = 0
		}
		for _, s := range b.Succs {
			if v := d.number[s]; v != unknown {
				d.semi[w] = min(d.semi[w], d.semi[d.least(v)])
			}
		}
		d.hang(w, d.semi[w])
		p := d.parent[w]
		d.ancestor[w] = p
		for v := d.first[p]; v != unknown; v = d.next[v] {
			d.dom[v] = p
			if u := d.least(v); d.semi[u] < p {
				d.dom[v] = u
			}
		}
		d.first[p] = unknown
	}
	for k := range blocks {
		blocks[k].Join = -1
	}
	for w := 1; w < len(d.node); w++ {
		if d.dom[w] != d.semi[w] {
			d.dom[w] = d.dom[d.dom[w]]
		}
		blocks[d.node[w]].Join = int(d.node[d.dom[w]])
	}
}

const unknown int32 = -1

// dominators is the state of Lengauer and Tarjan's algorithm. Nodes are identified by their number in the order of a
// depth-first search against the edges; 0 is the end of the thread.
type dominators struct {
	ends   []bool  // blocks from which the end follows
	number []int32 // of blocks, or unknown if no thread gets to its end from there
	node   []int32 // block of a number; -1 for the end
	parent []int32 // in the tree of the search

	semi     []int32 // semidominator; at first the node itself
	dom      []int32
	ancestor []int32 // in the forest of nodes that are done, or unknown
	label    []int32 // the node with the least semidominator up to the ancestor
	path     []int32 // of least, used again

	// first and next are lists of the nodes that have a semidominator.
	first, next []int32
}

func newDominators(blocks []Block, ends []bool) *dominators {
	n := len(blocks)
	// The blocks before each block are from[start[k]:start[k+1]]; those
	// before the end are the last.
	start, from := make([]int32, n+3), make([]int32, 3*n)
	each := func(f func(k, before int)) {
		for k := range blocks {
			for _, s := range blocks[k].Succs {
				f(s, k)
			}
			if ends[k] {
				f(n, k)
			}
		}
	}
	each(func(k, _ int) { start[k+2]++ })
	for k := range n + 1 {
		start[k+2] += start[k+1]
	}
	each(func(k, before int) {
		from[start[k+1]] = int32(before)
		start[k+1]++
	})
	d := &dominators{ends: ends, number: make([]int32, n)}
	for k := range d.number {
		d.number[k] = unknown
	}
	all := make([]int32, 8*(n+1))
	for _, list := range []*[]int32{&d.node, &d.parent, &d.semi, &d.dom, &d.ancestor, &d.label, &d.first, &d.next} {
		*list, all = all[:0:n+1], all[n+1:]
	}
	// A block is numbered when it is taken from the stack, if it is new.
	type step struct{ block, parent int32 }
	stack := []step{{int32(n), 0}}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		w, block := int32(len(d.node)), unknown
		if s.block < int32(n) {
			if d.number[s.block] != unknown {
				continue
			}
			d.number[s.block], block = w, s.block
		}
		d.node, d.parent = append(d.node, block), append(d.parent, s.parent)
		d.semi, d.label, d.dom = append(d.semi, w), append(d.label, w), append(d.dom, 0)
		d.ancestor, d.first, d.next = append(d.ancestor, unknown), append(d.first, unknown), append(d.next, unknown)
		for _, before := range from[start[s.block]:start[s.block+1]] {
			if d.number[before] == unknown {
				stack = append(stack, step{before, w})
			}
		}
	}
	return d
}

// hang puts a node on the list of those that have a semidominator.
func (d *dominators) hang(w, semi int32) { d.next[w], d.first[semi] = d.first[semi], w }

// least returns the node with the least semidominator between v and the root of its tree in the forest, the root
// excluded. It compresses the path to the root.
func (d *dominators) least(v int32) int32 {
	if d.ancestor[v] == unknown {
		return v
	}
	d.path = d.path[:0]
	for d.ancestor[d.ancestor[v]] != unknown {
		d.path = append(d.path, v)
		v = d.ancestor[v]
	}
	for i := len(d.path) - 1; i >= 0; i-- {
		below := d.path[i]
		if d.semi[d.label[v]] < d.semi[d.label[below]] {
			d.label[below] = d.label[v]
		}
		d.ancestor[below] = d.ancestor[v]
		v = below
	}
	return d.label[v]
}

// ends reports for each block whether the end of the function follows it. That holds for the blocks that return; if no
// reachable block returns, also for those that exit; if none of these is reachable, also for those that trap. A thread
// that exits or traps where others return does so after an error, for which the others need not part.
func ends(blocks []Block, insts []Inst) []bool {
	reached, stack := make([]bool, len(blocks)), []int{0}
	for len(stack) > 0 {
		k := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !reached[k] {
			reached[k] = true
			stack = append(stack, blocks[k].Succs...)
		}
	}
	list := make([]bool, len(blocks))
	for _, op := range []Op{opRet, opExit, opTrap} {
		found := false
		for k := range blocks {
			if b := &blocks[k]; len(b.Succs) == 0 && insts[b.End-1].Op == op {
				list[k] = true
				found = found || reached[k]
			}
		}
		if found {
			break
		}
	}
	return list
}
