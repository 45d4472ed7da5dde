package guests

import (
	"fmt"
	"testing"
	"time"
)

// The first reading of a domain is the base of the next one, and has no activity of its own.
func TestObserve(t *testing.T) {
	reg := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	if _, err := reg.domain("web"); err != nil {
		t.Fatal(err)
	}
	reg.domains["web"].past.Calls, reg.domains["web"].past.Waits[3] = 1000, 7
	if r := reg.Observe(time.Now()); len(r) != 1 || r[0].Domain != "web" || r[0].Elapsed != 0 || r[0].Calls != 0 || r[0].Waits.Total() != 0 {
		t.Errorf("first: %+v", r)
	}
	past := &reg.domains["web"].past
	past.Calls, past.Stood = 1010, 500
	past.Waits[3] = 9
	if r := reg.Observe(time.Now()); len(r) != 1 || r[0].Elapsed <= 0 || r[0].Calls != 10 || r[0].Stood != 500 || r[0].Waits.Total() != 2 {
		t.Errorf("second: %+v", r)
	}
	past.Calls = 5 // a worker's counts that shrank
	if r := reg.Observe(time.Now()); r[0].Calls != 0 {
		t.Errorf("after counts have shrunk: %+v", r)
	}
}

// BenchmarkObserve reads 200 domains.
func BenchmarkObserve(b *testing.B) {
	reg := New(Options{})
	for i := range 200 {
		dom := &domain{reg: reg, name: fmt.Sprint("d", i)}
		reg.domains[dom.name] = dom
	}
	b.ReportAllocs()
	for b.Loop() {
		reg.Observe(time.Now())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200, "ns/domain")
}
