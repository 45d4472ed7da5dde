package ptx

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// postDominatorsOf computes immediate post-dominators by their definition: the blocks that are on every path from a
// block to the end.
func postDominatorsOf(blocks []Block) []int {
	n := len(blocks)
	// ends reports which blocks have a path to the end that avoids one block.
	ends := func(avoid int) []bool {
		ok := make([]bool, n)
		for changed := true; changed; {
			changed = false
			for k := range blocks {
				if ok[k] || k == avoid {
					continue
				}
				if len(blocks[k].Succs) == 0 || slices.ContainsFunc(blocks[k].Succs, func(s int) bool { return ok[s] }) {
					ok[k], changed = true, true
				}
			}
		}
		return ok
	}
	all, on := ends(-1), make([][]int, n)
	for avoid := range n {
		for k, ok := range ends(avoid) {
			if k != avoid && all[k] && !ok {
				on[k] = append(on[k], avoid)
			}
		}
	}
	join := make([]int, n)
	for k := range join {
		join[k] = -1
		for _, d := range on[k] {
			if len(on[d]) == len(on[k])-1 { // the first one on the way
				join[k] = d
			}
		}
	}
	return join
}

func TestDominatorsOfAnyGraph(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for range 2000 {
		blocks := make([]Block, 1+r.IntN(12))
		for k := range blocks {
			for range r.IntN(3) {
				if s := r.IntN(len(blocks)); !slices.Contains(blocks[k].Succs, s) {
					blocks[k].Succs = append(blocks[k].Succs, s)
				}
			}
		}
		want := postDominatorsOf(blocks)
		ends := make([]bool, len(blocks))
		for k := range blocks {
			ends[k] = len(blocks[k].Succs) == 0
		}
		postDominators(blocks, ends)
		for k := range blocks {
			if blocks[k].Join != want[k] {
				t.Fatalf("block %d of %v joins at %d, want %d", k, blocks, blocks[k].Join, want[k])
			}
		}
	}
}

// For any branches, the blocks of the largest kernel are found quickly.
func TestManyBranches(t *testing.T) {
	n := 50_000 / part()
	for _, c := range []struct {
		name  string
		count int
		piece func(i int) string
	}{
		{"all back to one place", 2 * n, func(i int) string { return "@%p1 bra L;\n" }},
		{"all on to one place", 2 * n, func(i int) string { return "@%p1 bra M;\n" }},
		{"nested loops", n, func(i int) string { return fmt.Sprintf("@%%p1 bra A%d; A%d: @%%p1 bra A%d;\n", n-1-i, i, max(i-1, 0)) }},
		{"back and on by one", n, func(i int) string {
			return fmt.Sprintf("A%d: @%%p1 bra A%d; @%%p2 bra A%d;\n", i, max(i-1, 0), min(i+1, n-1))
		}},
		{"far back and far ahead", n, func(i int) string { return fmt.Sprintf("A%d: @%%p1 bra A%d; @%%p2 bra A%d;\n", i, i/2, min(2*i, n-1)) }},
	} {
		m := parse(t, head+".entry k() { .reg .pred %p<4>;\nL: "+repeat(c.count, c.piece)+"M: ret; }")
		b, err := m.Kernels[0].Body()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		b.Allocate(b.Blocks())
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: %v", c.name, took)
		}
	}
}
