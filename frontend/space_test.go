package frontend

import (
	"math/rand/v2"
	"testing"
)

// Blocks never overlap and never leave the arena, and when all are given back
// the arena is one block again.
func TestSpace(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		const total = 64 * grain
		var s space
		s.init(total)
		var held []extent
		for range 500 {
			if len(held) > 0 && r.IntN(2) == 0 {
				i := r.IntN(len(held))
				s.give(held[i])
				held[i] = held[len(held)-1]
				held = held[:len(held)-1]
				continue
			}
			e, ok := s.take(r.Uint64N(8 * grain))
			if !ok {
				continue
			}
			if e.at%grain != 0 || e.n%grain != 0 || e.n == 0 || e.at+e.n > total {
				t.Fatalf("seed %d: took %+v", seed, e)
			}
			for _, h := range held {
				if e.at < h.at+h.n && h.at < e.at+e.n {
					t.Fatalf("seed %d: %+v overlaps %+v", seed, e, h)
				}
			}
			held = append(held, e)
		}
		for _, h := range held {
			s.give(h)
		}
		if e, ok := s.take(total); !ok || e.at != 0 {
			t.Fatalf("seed %d: %+v is left of the whole", seed, s.free)
		}
		if _, ok := s.take(1); ok {
			t.Fatalf("seed %d: more than the whole", seed)
		}
	}
}
