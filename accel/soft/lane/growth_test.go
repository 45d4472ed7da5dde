package lane

import (
	"sync/atomic"
	"testing"
)

// Cores that are added while a launch runs take blocks and pause with the others, up to the most that it may have.
func TestGrowth(t *testing.T) {
	const blocks, threads, n, most = 64, 96, 3000, 4
	var g Growth
	if g.Add(1) != 0 {
		t.Error("a core is added without a launch")
	}
	for range 3 {
		d := newDevice(t)
		k, out := d.kernel(d.load(entry(xorshift)), "k"), d.buffer(4*blocks*threads)
		l := d.launch(k, x(blocks), x(threads), out, n)
		l.Cores, l.MostCores, l.Growth = 1, most, &g
		var looks, added, computing atomic.Int32
		l.Yield = func() bool {
			computing.Add(1)
			defer computing.Add(-1)
			if look := looks.Add(1); look%3 == 0 {
				added.Add(int32(g.Add(2)))
			}
			return looks.Load()%7 == 0
		}
		l.Resume = func() {
			if computing.Load() != 0 {
				t.Error("a core looks while the launch is paused")
			}
			if g.Add(1) != 0 {
				t.Error("a core is added while the launch is paused")
			}
		}
		if f := k.Run(l); f != nil {
			t.Fatal(f)
		}
		for i := range blocks * threads {
			if got, want := out.word(i), steps(uint32(i+1), n); got != want {
				t.Fatalf("thread %d: %#x, want %#x", i, got, want)
			}
		}
		if added.Load() != most-1 {
			t.Errorf("%d cores were added, want %d", added.Load(), most-1)
		}
		if g.Add(1) != 0 {
			t.Error("a core is added to a launch that has ended")
		}
	}
	d := newDevice(t)
	k := d.kernel(d.load(entry(xorshift)), "k")
	l := d.launch(k, x(1), x(threads), d.buffer(4*threads), n)
	l.Cores, l.MostCores, l.Growth = 1, most, &g
	l.Yield = func() bool {
		if g.Add(1) != 0 {
			t.Error("a core is added to a launch of one block")
		}
		return false
	}
	if f := k.Run(l); f != nil {
		t.Fatal(f)
	}
}
