package policies

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// BenchmarkDecision measures one turn of the scheduler: the end of a window, what
// it used, and the next one. Besides the mean it reports the 99th percentile.
func BenchmarkDecision(b *testing.B) {
	for _, name := range []string{"rr", "accc", "xc", "slaf", "augc", "cosched", "lag"} {
		for _, mode := range []Mode{Production, Paper} {
			for _, n := range []int{8, 64, 10_000} {
				b.Run(fmt.Sprintf("%s/%s/%d", name, mode, n), func(b *testing.B) { benchDecision(b, name, mode, n) })
			}
		}
	}
}

func benchDecision(b *testing.B, name string, mode Mode, n int) {
	s, holder := crowd(b, name, mode, n)
	took := make([]time.Duration, 0, 1<<20)
	now := Time(0)
	b.ReportAllocs()
	for b.Loop() {
		end := turnEnd(s, now)
		window := end.Sub(now)
		now = end
		start := time.Now()
		s.Step(now, Event{Kind: Charge, Domain: Domain{ID: holder}, Used: Usage{Compute: window + time.Duration(now%7)*time.Millisecond}})
		actions := s.Ready(now)
		if len(took) < cap(took) {
			took = append(took, time.Since(start))
		}
		holder = actions[len(actions)-1].Domain
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

// turnEnd is when the holder's turn ends: when the scheduler says, or when it has
// used what it was lent.
func turnEnd(s *Scheduler, now Time) Time {
	if next := s.Next(); next < Forever {
		return next
	}
	return now.Add(30 * time.Millisecond)
}

// crowd returns a scheduler of n domains that all have work, and who holds the
// window.
func crowd(tb testing.TB, name string, mode Mode, n int) (*Scheduler, ID) {
	p, err := New(name, Defaults(mode))
	if err != nil {
		tb.Fatal(err)
	}
	s := NewScheduler(p)
	for id := range ID(n) {
		d := Domain{ID: id, Credits: Credits(256 << (id % 3))}
		s.Step(0, Event{Kind: Attach, Domain: d})
		s.Step(0, Event{Kind: Wake, Domain: d, Signal: ContextOpened})
		s.Step(0, Event{Kind: Wake, Domain: d, Signal: Arrived})
	}
	actions := s.Ready(0)
	return s, actions[len(actions)-1].Domain
}

// TestDecisionsDoNotAllocate counts what a turn allocates, once everything has
// grown to its size.
func TestDecisionsDoNotAllocate(t *testing.T) {
	for _, name := range []string{"rr", "accc", "xc", "slaf", "augc", "cosched", "lag"} {
		for _, mode := range []Mode{Production, Paper} {
			const n = 10_000
			s, holder := crowd(t, name, mode, n)
			now := Time(0)
			turn := func() {
				now = turnEnd(s, now)
				s.Step(now, Event{Kind: Charge, Domain: Domain{ID: holder}, Used: Usage{Compute: 31 * time.Millisecond}})
				s.Step(now, Event{Kind: Wake, Domain: Domain{ID: (holder + 1) % n}, Signal: Drained})
				s.Step(now, Event{Kind: Wake, Domain: Domain{ID: (holder + 1) % n}, Signal: Arrived})
				actions := s.Ready(now)
				holder = actions[len(actions)-1].Domain
			}
			if a := testing.AllocsPerRun(1000, turn); a > 0 {
				t.Errorf("%s, %v: %v allocations per turn", name, mode, a)
			}
		}
	}
}
