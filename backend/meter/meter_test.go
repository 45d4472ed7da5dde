package meter

import (
	"slices"
	"testing"
)

func TestMeter(t *testing.T) {
	var m Meter
	if total, ns := m.Growth(); total != 0 || ns != 0 {
		t.Errorf("empty: %d in %d", total, ns)
	}
	m.Sample(1000, 10)
	m.Sample(2000, 30)
	if total, ns := m.Growth(); total != 20 || ns != 1000 {
		t.Errorf("two samples: %d in %d", total, ns)
	}
	for i := int64(3); i <= 100; i++ {
		m.Sample(i*1000, i*i)
	}
	if total, ns := m.Growth(); ns != 8000 || total != 100*100-92*92 {
		t.Errorf("full: %d in %d", total, ns)
	}
	if m.Resting() {
		t.Error("growing counts as resting")
	}
	for i := int64(101); i <= 109; i++ {
		m.Sample(i*1000, 100*100)
	}
	if !m.Resting() {
		t.Error("standing still doesn't count as resting")
	}
}

func TestQuantile(t *testing.T) {
	var w Waits
	if q := w.Quantile(0.99); q != 0 {
		t.Errorf("of nothing: %d", q)
	}
	w[0] = 50 // did not wait
	w[11] = 49
	w[21] = 1
	for _, c := range []struct {
		p         float64
		low, high int64
	}{{0.5, 0, 0}, {0.9, 1 << 10, 1 << 11}, {0.99, 1 << 10, 1 << 11}, {1, 1 << 20, 1 << 21}} {
		if q := w.Quantile(c.p); q < c.low || q > c.high {
			t.Errorf("quantile %v = %d, want %d to %d", c.p, q, c.low, c.high)
		}
	}
}

// The counts since an earlier time are those of the requests after it, also if a worker's counts began anew.
func TestWaitsSince(t *testing.T) {
	v, w := Waits{3: 5, 4: 7}, Waits{3: 6, 4: 2, 9: 1}
	if got := w.Since(&v); got != (Waits{3: 1, 9: 1}) || got.Total() != 2 {
		t.Errorf("%v", got)
	}
}

// The buckets of a histogram end with the last one that has a request.
func TestWaitCounts(t *testing.T) {
	var w Waits
	if got := w.Counts(); len(got) != 0 {
		t.Errorf("%v of no request", got)
	}
	w[0], w[3] = 5, 1
	if got := w.Counts(); !slices.Equal(got, []uint64{5, 0, 0, 1}) {
		t.Errorf("%v, want [5 0 0 1]", got)
	}
}
