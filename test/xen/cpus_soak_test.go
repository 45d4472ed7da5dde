//go:build soak

package xen

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// What credit vCPUs have left, as the daemon computes it, beside what Xen's debugging key says
// at about the same moment: of two domUs that spin on one CPU with weights of 256 and 512.
func TestSoakXenCredits(t *testing.T) {
	h := Start(t)
	const spin = "while :; do :; done"
	h.Run("xl cpupool-cpu-remove Pool-0 1")
	for _, c := range []struct {
		scheduler string
		// A credit of the hypervisor's is as of its last tick, so it is off by up to so much.
		tick float64
		// The parts of signs that have to agree: of all, and of those of a larger credit than a tick's.
		all, beyond float64
		off         float64 // the most in the mean
	}{{"credit", 100, 0.72, 0.88, 110}, {"credit2", 0, 0, 0, 60}} {
		t.Run(c.scheduler, func(t *testing.T) {
			h := h.of(t)
			h.Run(fmt.Sprintf(`xl cpupool-create 'name="one"' 'sched="%s"' 'cpus=["1"]'`, c.scheduler))
			h.Create("light", spin, `pool="one"`)
			h.Create("heavy", spin, `pool="one"`, "cpu_weight=512")
			ids := strings.Fields(h.Run("xl domid light; xl domid heavy"))
			defer h.Run("xl destroy light; xl destroy heavy; sleep 1; xl cpupool-destroy one")
			h.Await(60*time.Second, "both spin", func() bool {
				for range 3 {
					if strings.Contains(h.Run("xl vcpu-list light; xl vcpu-list heavy"), " -b- ") {
						return false
					}
				}
				return true
			})
			var n, agree, beyond, agreeBeyond, off, bias, told, wrong float64
			for range 4 {
				out := h.Run("probe cpus credits 50 " + strings.Join(ids, " "))
				for line := range strings.Lines(out) {
					var at, id int
					var ours, xens float64
					var what string
					if _, err := fmt.Sscanf(line, "%s %d %d %f %f", &what, &at, &id, &ours, &xens); err != nil {
						t.Fatalf("%q: %v", line, err)
					}
					if at < 5 { // accounts begin without a past
						continue
					}
					if what == "ran" {
						told, wrong = told+1, wrong+math.Abs(ours-xens)/1000
						continue
					}
					same := 0.
					if (ours >= 0) == (xens >= 0) {
						same = 1
					}
					n, agree, off, bias = n+1, agree+same, off+math.Abs(ours-xens), bias+ours-xens
					if math.Abs(xens) > c.tick {
						beyond, agreeBeyond = beyond+1, agreeBeyond+same
					}
				}
			}
			t.Logf("%s: of %.0f signs %.3f agree, of %.0f beyond a tick %.3f; %.1f ms off in the mean, %+.1f ms to one side",
				c.scheduler, n, agree/n, beyond, agreeBeyond/beyond, off/n/10, bias/n/10)
			t.Logf("%s: what part of the coming period a vCPU runs is foretold with an error of %.3f, in the mean of %.0f", c.scheduler, wrong/told, told)
			if n < 300 || agree/n < c.all || agreeBeyond/beyond < c.beyond || off/n > c.off {
				t.Error("that is too little, or too far off")
			}
		})
	}
	h.Run("xl cpupool-cpu-add Pool-0 1")
	t.Run("cost", func(t *testing.T) { testCost(t, h.of(t)) })
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
