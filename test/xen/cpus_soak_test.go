//go:build soak

package xen

import (
	"fmt"
	"testing"
)

// The remaining credits of domUs in the daemon's model beside the print of Xen's debugging key a moment
// later: for two domUs that spin in a pool of one CPU, with weights of 256 and 512, and for domUs that spin,
// rest and wake often, beside Dom0 on two CPUs. On a calm host 95 % of the mixed ones' signs agree;
// the bounds are for a host that isn't always calm.
func TestSoakXenCredits(t *testing.T) {
	for _, scheduler := range []string{"credit", "credit2"} {
		for _, crowd := range []struct {
			name    string
			start   func(h *Host, scheduler string)
			domains string
			signs   float64 // that have to agree
		}{{"pair", pair, "light heavy", 0.8}, {"mixed", populate, "rests wakes spins heavy", 0.9}} {
			t.Run(scheduler+"-"+crowd.name, func(t *testing.T) {
				h := Start(t, "sched="+scheduler, quick)
				crowd.start(h, scheduler)
				s := h.credits(60, crowd.domains)
				t.Logf("%s, %s: %v", scheduler, crowd.name, s)
				if s.vcpus < 60 || s.signs/s.vcpus < crowd.signs || s.us/s.vcpus > 6000 {
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

// testCost prints the cost of a sample with so many vCPUs in the host, with an emulated processor.
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
