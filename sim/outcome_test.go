package sim

import (
	"math"
	"testing"
	"time"
)

// A replay reports the shares and waits by decisions: the recorded ones as in the run, another policy's by
// its own leases.
func TestOutcomes(t *testing.T) {
	sc := scenario(t, `
time = "5s"
accelerator = [{name = "gpu"}]
domain = [{name = "big", workload = "flood", credits = 768}, {name = "small", workload = "flood", credits = 256}]
workload = {flood = {kernel = "1ms", calls = 100, ahead = 4}}
plan = [{name = "rr", policy = "rr"}]
`)
	s, err := New(sc, &sc.Plans[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := s.Record("gpu")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	measured := s.measure(sc)
	for policy, share := range map[string]float64{"": 0.5, "accc": 0.75} {
		r, err := rec.Replay(policy)
		if err != nil {
			t.Fatal(err)
		}
		if r.Recorded != "rr" || len(r.Was) != 2 || len(r.Is) != 2 || r.Was[0].Domain != "big" || r.Is[1].Domain != "small" {
			t.Fatalf("%+v", r)
		}
		if got := r.Is[0].Share; math.Abs(got-share) > 0.05 {
			t.Errorf("%q: big has a share of %.3f, not %.2f", policy, got, share)
		}
		for _, o := range r.Was {
			if part := measured[o.Domain]["part"] / 100; math.Abs(o.Share-part) > 0.03 {
				t.Errorf("%s: a share of %.3f, measured %.3f", o.Domain, o.Share, part)
			}
			if o.Waits < 20 || o.Wait < int64(5*time.Millisecond) || o.Longest < o.Wait || o.Used == 0 {
				t.Errorf("%+v: waits of a rotation in which the other has its turn", o)
			}
		}
	}
}
