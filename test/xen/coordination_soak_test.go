//go:build soak

package xen

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"pegasus/policies/coordination"
)

// TestSoakXenCoordination: domUs that compute share one CPU with one that spins. Under policies that go by Xen's
// schedule the accelerator goes to the domUs with vCPUs that run by Xen's trace; under others it does so only by
// chance.
//
// A host can stop an emulated CPU for some ten milliseconds, and Xen can't observe that. So slices and ticks are longer
// than Xen's, and all other times are in proportion.
func TestSoakXenCoordination(t *testing.T) {
	h := crowd(t, queues)
	h.Run("xl sched-credit -p one -s -t 200")
	// Slices are no multiple of most of these ticks. Ticks that can fall into step with the slices have no bounds here. max_skip lets a policy pass
	// a domain over for a slice of the others. AugC is first because it compensates domains for the policies before it.
	for _, c := range []struct{ policy, tick string }{{"augc", "70ms"}, {"cosched", "70ms"}, {"cosched", "200ms"}, {"xc", "70ms"}, {"slaf", "70ms"}} {
		plan(h, fmt.Sprintf("policy = %q\ntick = %q\nmax_skip = 16", c.policy, c.tick))
		h.Run("pegasus trace --cpus --seconds " + cmp.Or(os.Getenv("PEGASUS_SECONDS"), "20") + " --out /tmp/trace")
		out := h.Run("pegasus sim coordination /tmp/trace; pegasus sim replay /tmp/trace --cost; pegasus policy --explain")
		t.Logf("%s, ticks of %s, slices of 200ms\n%s", c.policy, c.tick, out)
		var all [1]coordination.Verdict
		if err := json.Unmarshal([]byte(h.Run("pegasus sim coordination /tmp/trace --json")), &all); err != nil {
			t.Fatal(err)
		}
		v := all[0]
		if dir := os.Getenv("PEGASUS_RECORD"); dir != "" {
			fetch(h, "/tmp/trace", filepath.Join(dir, c.policy+"-"+c.tick+".trace.gz"))
		}
		if v.Decisions < 15 {
			t.Errorf("%s: %d decisions", c.policy, v.Decisions)
		}
		// A boosted domain has a running vCPU; the other domains hardly ever do.
		if boosts := c.policy == "cosched" || c.policy == "augc"; boosts && c.tick == "70ms" && (v.Preferred.Times < 15 || v.Preferred.Ran < 2*v.Others.Ran) {
			t.Errorf("%s: of %d that it boosts a vCPU ran in %.2f, and of the %d others in %.2f", c.policy, v.Preferred.Times, v.Preferred.Ran, v.Others.Times, v.Others.Ran)
		}
		if c.policy == "cosched" && c.tick == "70ms" {
			clearly(t, "when it was chosen", v.Now, 2)
			clearly(t, "in its window", v.Window, 4)
		}
	}
}

// clearly checks that the chosen domains' vCPUs ran more often than by chance, by at least 1/parts of the possible
// gain. Windows may extend into the next slice, for which the domain can't be predicted reliably.
func clearly(t *testing.T, when string, p coordination.Part, parts float64) {
	t.Helper()
	if p.Chosen < p.Chance+(p.Best-p.Chance)/parts {
		t.Errorf("a vCPU ran in %.2f %s, not clearly more than the %.2f of chance: %.2f are possible", p.Chosen, when, p.Chance, p.Best)
	}
}
