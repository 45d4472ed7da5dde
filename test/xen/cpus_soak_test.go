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
		us        float64 // that it may be off, in the mean
	}{{"credit", 0.95, 4000}, {"credit2", 0.95, 500}} {
		for _, crowd := range []struct {
			name    string
			start   func(h *Host, scheduler string)
			domains string
		}{{"pair", pair, "light heavy"}, {"mixed", populate, "rests wakes spins heavy"}} {
			t.Run(c.scheduler+"-"+crowd.name, func(t *testing.T) {
				h := Start(t, "sched="+c.scheduler, quick)
				crowd.start(h, c.scheduler)
				s := h.credits(60, crowd.domains)
				t.Logf("%s, %s: %v", c.scheduler, crowd.name, s)
				if s.vcpus < 60 || s.signs/s.vcpus < c.signs || s.us/s.vcpus > c.us {
					t.Error("that is too little, or too far off")
				}
				if s.right < s.asNow {
					t.Error("who runs is foretold less well than that all goes on as now")
				}
				t.Logf("by accounts alone: %v", h.compare("accounts", 10, crowd.domains))
			})
		}
	}
	t.Run("cost", func(t *testing.T) { testCost(t, Start(t)) })
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
