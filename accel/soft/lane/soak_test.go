//go:build soak

package lane

import (
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/test/seeds"
)

// soakEnd is the time at which each endless test ends.
func soakEnd(t *testing.T) time.Time {
	limit := 10 * time.Minute
	if s := os.Getenv("SOAKTIME"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatalf("SOAKTIME: %v", err)
		}
		limit = d
	}
	return time.Now().Add(limit)
}

// Random programs, two at a time.
func TestSoakOracle(t *testing.T) {
	end, first := soakEnd(t), seeds.Fresh(t)
	var next, defined atomic.Uint64
	t.Run("programs", func(t *testing.T) {
		for range 2 {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for time.Now().Before(end) {
					if tryProgram(t, first+next.Add(1)) {
						defined.Add(1)
					}
				}
			})
		}
	})
	t.Logf("%d programs, %d of them defined", next.Load(), defined.Load())
	if defined.Load() == 0 {
		t.Error("no program is defined")
	}
}

// Approximate functions of every f32, a piece of each after the other, as far as the time allows.
func TestSoakApproximations(t *testing.T) {
	const piece = 1 << 20
	end, done := soakEnd(t), 0
	for _, i := range rand.Perm(1 << 32 / piece) {
		if time.Now().After(end) {
			break
		}
		for _, a := range approximations {
			a.approximate(t, uint32(i)*piece, 1, piece)
		}
		done++
	}
	t.Logf("%.1f %% of all inputs", float64(done)*piece/(1<<32)*100)
}
