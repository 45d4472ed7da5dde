package sched

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Quantiles are never less than the true value, and at most a quarter more.
func TestCosts(t *testing.T) {
	var c costs
	if c.quantile(0.99) != 0 {
		t.Error("of nothing")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var all []int64
	for range 10000 {
		ns := rng.Int64N(1 << (1 + rng.IntN(40)))
		all = append(all, ns)
		c.add(ns, 1)
	}
	slices.Sort(all)
	for _, p := range []float64{0.01, 0.5, 0.99, 1} {
		exact := all[max(int(p*float64(len(all)))-1, 0)]
		if got := c.quantile(p); got < exact || got > exact+exact/4+1 {
			t.Errorf("quantile %v is %d, not %d", p, got, exact)
		}
	}
	for ns := range int64(5000) {
		if b := costBucket(uint64(ns)); most(b) < ns || b > 0 && most(b-1) >= ns {
			t.Fatalf("%d ns are in bucket %d, which ends at %d", ns, b, most(b))
		}
	}
	c.add(-5, 1)
	c.add(1<<63-1, 1)
	if c.quantile(1) != 1<<63-1 {
		t.Errorf("the longest is %d", c.quantile(1))
	}
	if n := testing.AllocsPerRun(100, func() { c.add(700, 2) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
