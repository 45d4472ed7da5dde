package reference

// postDominators returns, for each instruction, the first one that all threads come to on every path, or len(code) for
// the end of the thread. A guarded exit is no path: threads that take it are no longer there to be waited for.
func postDominators(code []inst) []int {
	n := len(code)
	next := make([][]int, n)
	for i := range code {
		in := &code[i]
		switch {
		case in.op == "bra" && in.guard < 0:
			next[i] = []int{in.target}
		case in.op == "bra":
			next[i] = []int{i + 1, in.target}
		case (in.op == "exit" || in.op == "ret") && in.guard < 0:
			next[i] = []int{n}
		default:
			next[i] = []int{i + 1}
		}
	}
	// after[i] is the set of all that must follow i, i included: the largest
	// solution of after[i] = {i} ∪ ⋂ after[next].
	after := make([][]bool, n+1)
	for i := range after {
		after[i] = make([]bool, n+1)
		for k := range after[i] {
			after[i][k] = i < n || k == n
		}
	}
	for changed := true; changed; {
		changed = false
		for i := n - 1; i >= 0; i-- {
			for k := range after[i] {
				all := true
				for _, s := range next[i] {
					all = all && after[s][k]
				}
				if must := all || k == i; must != after[i][k] {
					after[i][k], changed = must, true
				}
			}
		}
	}
	joins := make([]int, n)
	for i := range joins {
		joins[i] = nearest(after, i)
	}
	return joins
}

// nearest returns the instruction that follows i before any other that must follow it: all the others must follow it in
// turn.
func nearest(after [][]bool, i int) int {
	for k := range after[i] {
		if k == i || !after[i][k] {
			continue
		}
		first := true
		for other := range after[i] {
			if other != i && after[i][other] && !after[k][other] {
				first = false
			}
		}
		if first {
			return k
		}
	}
	return len(after) - 1
}
