//go:build cgo

package nvidia

import (
	"math/rand/v2"
	"testing"

	"pegasus/test/seeds"
)

func TestCharged(t *testing.T) {
	var c charged
	for _, x := range []struct{ from, to, wantFrom, wantTo int64 }{
		{10, 20, 10, 20},
		{15, 25, 20, 25}, // half of it is charged already
		{0, 12, 0, 10},   // reported later, though it began before
		{5, 22, 22, 22},  // nothing new
		{30, 40, 30, 40},
		{0, 50, 35, 50}, // two gaps: 25 to 30 and 40 to 50
		{7, 7, 7, 7},
		{9, 3, 9, 9},
	} {
		if from, to := c.add(x.from, x.to); to-from != x.wantTo-x.wantFrom || from < x.from || to > max(x.to, x.from) {
			t.Errorf("of [%d, %d) [%d, %d) is charged, want as much as [%d, %d)", x.from, x.to, from, to, x.wantFrom, x.wantTo)
		}
	}
}

// The charge is never more than the time in which anything ran, and exactly that as long as the intervals kept are few.
func TestChargedIsTheUnion(t *testing.T) {
	seed := seeds.Fixed(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, spread := range []int64{50, 100_000} {
		var c charged
		var ran [200_000]bool
		sum, now := int64(0), int64(0)
		for range 2000 {
			now += r.Int64N(60)
			from := max(now-r.Int64N(spread), 0)
			to := from + r.Int64N(100)
			a, b := c.add(from, to)
			sum += b - a
			for i := from; i < to; i++ {
				ran[i] = true
			}
		}
		union := int64(0)
		for _, yes := range ran {
			if yes {
				union++
			}
		}
		if sum > union || spread == 50 && sum != union {
			t.Errorf("seed %d, spread %d: %d is charged of %d", seed, spread, sum, union)
		}
		if len(c.known) > maxCharged {
			t.Errorf("%d intervals are remembered", len(c.known))
		}
	}
}
