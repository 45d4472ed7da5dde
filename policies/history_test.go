package policies

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pegasus/vcpu"
)

// TestHistory walks through learning and forgetting.
func TestHistory(t *testing.T) {
	h := NewHistory(2, 100*time.Microsecond)
	const a, b, c = 1, 2, 3
	predict := func(key uint64, switches bool, want time.Duration, known bool) {
		t.Helper()
		if got, is := h.Predict(key, switches); got != want || is != known {
			t.Errorf("key %d is predicted to cost %v (known: %v), not %v (%v)", key, got, is, want, known)
		}
	}
	predict(a, true, 0, false) // an empty table
	h.Learn(a, 4*ms, false)
	h.Learn(b, 2*ms, false)
	h.Learn(a, 6*ms, false)
	predict(c, false, 5*ms, false) // the worst
	h.Learn(c, ms, false)          // b is dropped: a was used since
	predict(a, false, 5*ms, true)
	predict(b, false, 5*ms, false)
	predict(c, true, ms+100*time.Microsecond, true)
	// A change of context has an impact of its own.
	h.Learn(c, ms+900*time.Microsecond, true)
	predict(c, false, ms, true)
	predict(c, true, ms+200*time.Microsecond, true)
	h.Learn(c, 0, true) // less than without one: the impact is 0
	predict(c, true, ms+175*time.Microsecond, true)
	// From the cost of a key first seen after a change of context the impact is subtracted.
	h.Learn(b, 2*ms+175*time.Microsecond, true)
	predict(b, false, 2*ms, true)
	predict(a, false, 2*ms, false)
	// After eight samples the mean follows slowly.
	for range 20 {
		h.Learn(b, 2*ms, false)
	}
	h.Learn(b, 10*ms, false)
	predict(b, false, 3*ms, true)
}

// TestHistoryForgetsTheOldest compares the table with a linear list.
func TestHistoryForgetsTheOldest(t *testing.T) {
	for _, size := range []int{1, 2, 7, 100} {
		rng := rand.New(rand.NewPCG(1, uint64(size)))
		h := NewHistory(size, 0)
		var used []uint64 // keys, the last one in front
		for range 20_000 {
			key := rng.Uint64N(uint64(size) * 2)
			at := slices.Index(used, key)
			if rng.IntN(2) == 0 {
				if _, known := h.Predict(key, false); known != (at >= 0) {
					t.Fatalf("size %d: key %d is known: %v", size, key, known)
				}
				if at < 0 {
					continue
				}
			} else {
				h.Learn(key, time.Duration(rng.Int64N(1000)), rng.IntN(4) == 0)
			}
			if at >= 0 {
				used = slices.Delete(used, at, at+1)
			}
			used = slices.Insert(used, 0, key)
			used = used[:min(len(used), size)]
			var worst time.Duration
			for _, r := range h.index {
				worst = max(worst, r.mean)
			}
			if got, _ := h.Predict(1<<60, false); got != worst || len(h.index) != len(used) {
				t.Fatalf("size %d: the worst of %d is %v, not %v of %d", size, len(h.index), got, worst, len(used))
			}
		}
	}
}

func TestHistoryDoesNotAllocate(t *testing.T) {
	h := NewHistory(100, ms)
	for key := range uint64(1000) {
		h.Learn(key, ms, false)
	}
	key := uint64(0)
	if a := testing.AllocsPerRun(10_000, func() {
		key++
		h.Predict(key, true)
		h.Learn(key, ms, key%2 == 0)
	}); a > 0 {
		t.Errorf("%v allocations per request", a)
	}
}

// Under an a-priori reserve the expected cost of a request is the cost of its key, regardless of the
// submitter's prediction.
func TestReservePredictsByHistory(t *testing.T) {
	for _, size := range []int{0, 10} {
		o := Defaults(Production)
		o.SetOption(historyKeys.Param, int64(size))
		p, err := New("prt", o)
		if err != nil {
			t.Fatal(err)
		}
		s := NewScheduler(p)
		limited, other := Domain{ID: 1}, Domain{ID: 2}
		limited.Promise.Reserve = vcpu.Reserve{Kind: vcpu.Apriori, Cost: 10 * ms, Period: 25 * ms}
		for _, d := range []Domain{limited, other} {
			s.Step(0, &Event{Kind: Attach, Domain: d})
		}
		s.Ready(0)
		ask := func(now Time, seq, key uint64) {
			s.Step(now, &Event{Kind: Wake, Domain: limited, Signal: Arrived})
			s.Step(now, &Event{Kind: Head, Domain: limited, Class: Compute, Request: Request{Seq: seq, Key: key, Predicted: ms, Known: true}})
			s.Ready(now)
		}
		end := func(now Time, used time.Duration) {
			s.Step(now, &Event{Kind: Charge, Domain: limited, Used: Usage{Compute: used, Requests: 1}})
			s.Ready(now)
		}
		ask(1, 1, 5)
		end(Time(8*ms), 8*ms)
		ask(Time(9*ms), 2, 5) // costs 8 ms, of which 2 are left
		why := s.Refusal(1)
		if refused := strings.HasPrefix(why, "reserve"); refused != (size > 0) {
			t.Errorf("with a history of %d: %q", size, why)
		}
		if size == 0 {
			continue
		}
		s.Ready(Time(25 * ms))
		if why := s.Refusal(1); why != "" {
			t.Errorf("in the next period: %q", why)
		}
		end(Time(33*ms), 8*ms)
		ask(Time(34*ms), 3, 6) // never seen: as the worst
		if why := s.Refusal(1); !strings.HasPrefix(why, "reserve") {
			t.Errorf("of another key: %q", why)
		}
	}
}
