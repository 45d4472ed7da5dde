package frontend

import (
	"slices"
	"sync"
)

// grain is the alignment of arena blocks.
const grain = 4096

// space allocates blocks of the arena, first fit.
type space struct {
	mu   sync.Mutex
	free []extent // by offset, never adjacent
}

type extent struct{ at, n uint64 }

func (s *space) init(bytes uint64) { s.free = []extent{{0, bytes}} }

// take allocates n bytes; it returns false if no gap is large enough.
func (s *space) take(n uint64) (extent, bool) {
	n = (max(n, 1) + grain - 1) &^ (grain - 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.free {
		if f := &s.free[i]; f.n >= n {
			e := extent{f.at, n}
			if f.at, f.n = f.at+n, f.n-n; f.n == 0 {
				s.free = slices.Delete(s.free, i, i+1)
			}
			return e, true
		}
	}
	return extent{}, false
}

// give frees a block.
func (s *space) give(e extent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.free, e, func(a, b extent) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	s.free = slices.Insert(s.free, i, e)
	s.join(i)
	if i > 0 {
		s.join(i - 1)
	}
}

// join merges gap i with the one after it if they are adjacent.
func (s *space) join(i int) {
	if i+1 < len(s.free) && s.free[i].at+s.free[i].n == s.free[i+1].at {
		s.free[i].n += s.free[i+1].n
		s.free = slices.Delete(s.free, i+1, i+2)
	}
}
