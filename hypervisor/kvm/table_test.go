package kvm

import (
	"math/rand/v2"
	"testing"

	"pegasus/callbuf"
)

func TestTable(t *testing.T) {
	tab := table{limit: 1 << 20}
	page := func(at, n uint64) callbuf.Extent { return callbuf.Extent{Offset: at * 4096, Bytes: n * 4096} }
	if err := tab.add(1, callbuf.Extents{page(10, 5), page(2, 2)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		parts callbuf.Extents
		ok    bool
	}{
		{"the same", callbuf.Extents{page(10, 5)}, false},
		{"over its start", callbuf.Extents{page(9, 2)}, false},
		{"over its end", callbuf.Extents{page(14, 2)}, false},
		{"inside", callbuf.Extents{page(11, 1)}, false},
		{"around", callbuf.Extents{page(1, 100)}, false},
		{"twice itself", callbuf.Extents{page(30, 2), page(31, 1)}, false},
		{"beyond the end", callbuf.Extents{page(255, 2)}, false},
		{"far beyond", callbuf.Extents{{Offset: 1<<64 - 4096, Bytes: 4096}}, false},
		{"between", callbuf.Extents{page(4, 6)}, true},
		{"behind", callbuf.Extents{page(15, 241)}, true},
	} {
		before := len(tab.lent)
		err := tab.add(2, c.parts)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && len(tab.lent) != before {
			t.Errorf("%s: refused, but %v is lent", c.name, tab.lent)
		}
	}
	tab.takeBack(1)
	if err := tab.add(3, callbuf.Extents{page(12, 1), page(2, 2)}); err != nil {
		t.Errorf("what was given back: %v", err)
	}
}

// No sequence of requests lends a page twice.
func TestTableAtRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	tab := table{limit: 64 * 4096}
	owner := map[uint64]uint32{}
	for i := range 20000 {
		to := uint32(r.IntN(6))
		if r.IntN(4) == 0 {
			tab.takeBack(to)
			for p, o := range owner {
				if o == to {
					delete(owner, p)
				}
			}
			continue
		}
		at, n := uint64(r.IntN(70)), uint64(1+r.IntN(8))
		free := at+n <= 64
		for p := at; p < at+n; p++ {
			if _, ok := owner[p]; ok {
				free = false
			}
		}
		err := tab.add(to, callbuf.Extents{{Offset: at * 4096, Bytes: n * 4096}})
		if (err == nil) != free {
			t.Fatalf("step %d: %d pages at %d: %v, free: %v", i, n, at, err, free)
		}
		if err == nil {
			for p := at; p < at+n; p++ {
				owner[p] = to
			}
		}
	}
}
