//go:build soak

package xen

import (
	"fmt"
	"testing"
)

// What credit domUs have left, as the daemon knows it, beside what Xen's debugging key says a moment
// later: of two that spin in a pool of one CPU, with weights of 256 and 512, and of ones that spin,
// rest and wake often, beside Dom0 on two CPUs. The bounds are for a host that is calm.
func TestSoakXenCredits(t *testing.T) {
	for _, c := range []struct {
		scheduler string
		signs     float64 // that have to agree
		off       float64 // the most in the mean, in credits of 100 µs
	}{{"credit", 0.95, 40}, {"credit2", 0.95, 10}} {
		for _, crowd := range []struct {
			name    string
			start   func(h *Host, scheduler string)
			domains string
		}{{"pair", pair, "light heavy"}, {"mixed", populate, "rests wakes spins heavy"}} {
			t.Run(c.scheduler+"-"+crowd.name, func(t *testing.T) {
				h := Start(t, "sched="+c.scheduler, quick)
				crowd.start(h, c.scheduler)
				s := h.credits(60, crowd.domains)
				t.Logf("%s, %s: of %.0f signs %.3f agree, %.2f ms off in the mean; what part of the coming period a vCPU runs is foretold with an error of %.3f in the mean; "+
					"who runs is right in %.3f of %d, and that all goes on as now in %.3f; looking takes %.1f %% of an emulated CPU",
					c.scheduler, crowd.name, s.n, s.agree/s.n, s.off/s.n/10, s.wrong/s.told, s.right/s.asked, int(s.asked), s.asNow/s.asked, s.cost)
				if s.n < 100 || s.agree/s.n < c.signs || s.off/s.n > c.off {
					t.Error("that is too little, or too far off")
				}
				t.Logf("by accounts alone: %s", h.accounts(20, crowd.domains))
			})
		}
	}
	t.Run("cost", func(t *testing.T) { testCost(t, Start(t)) })
}

// accounts is what agrees by accounts alone, as it is known where there is no trace.
func (h *Host) accounts(times int, domains string) string {
	s := h.compare("accounts", times, domains)
	return fmt.Sprintf("of %.0f signs %.3f agree, %.2f ms off in the mean, error of a part %.3f, %.1f %% of an emulated CPU", s.n, s.agree/s.n, s.off/s.n/10, s.wrong/s.told, s.cost)
}

// testCost prints what a look costs with so many vCPUs in the host, with an emulated processor.
func testCost(t *testing.T, h *Host) {
	for _, vcpus := range []int{2, 8, 64} {
		if vcpus > 2 { // Dom0 has two
			h.Create("many", "sleep 3600", fmt.Sprintf("vcpus=%d", vcpus-2))
		}
		out := h.Run("probe cpus look 100 10ms 1")
		t.Logf("%d vCPUs: %s", vcpus, out)
		if vcpus > 2 {
			h.Run("xl destroy many")
		}
	}
}
