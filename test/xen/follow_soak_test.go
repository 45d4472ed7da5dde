//go:build soak

package xen

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// weights returns Xen's weights of two domUs, read so many times in one command of Dom0.
func weights(h *Host, times int) (all []int) {
	h.t.Helper()
	out := h.Run(fmt.Sprintf("one=$(xl domid one) two=$(xl domid two); for i in $(seq %d); do probe sched | grep -E \"^domain ($one|$two) weight\"; done", times))
	for _, m := range regexp.MustCompile(`(?m)^domain \d+ weight (\d+) `).FindAllStringSubmatch(out, -1) {
		w, _ := strconv.Atoi(m[1])
		all = append(all, w)
	}
	if len(all) != 2*times {
		h.t.Fatalf("Xen says:\n%s", out)
	}
	return all
}

// TestSoakXenFollow: with cpu_follows_gpu the weight of a domU is raised in its windows, within bounds, and lowered
// after them; when the daemon is killed all weights are restored.
func TestSoakXenFollow(t *testing.T) {
	const set, factor = 256, 4
	h := crowd(t, queues)
	plan(h, "policy = \"xc\"\ntick = \"100ms\"\ncpu_follows_gpu = true")
	looks, raised, lowered := 0, 0, 0
	h.Await(2*time.Minute, "weights are raised and lowered", func() bool {
		for _, w := range weights(h, 10) {
			switch looks++; {
			case w < set/factor || w > set*factor:
				t.Fatalf("a weight is %d", w)
			case w > set:
				raised++
			case w < set:
				lowered++
			}
		}
		return raised >= 3 && lowered >= 1
	})
	t.Logf("of %d weights that were looked at %d were raised, and %d lowered", looks, raised, lowered)
	back := func() bool { w := weights(h, 1); return w[0] == set && w[1] == set }
	h.Await(2*time.Minute, "one is raised when the daemon is killed", func() bool {
		h.Run("kill -STOP $(cat /tmp/pegasusd.pid)")
		if !back() {
			return true
		}
		h.Run("kill -CONT $(cat /tmp/pegasusd.pid)")
		return false
	})
	if out := h.Run("cat /run/pegasus/raised/*.json"); !regexp.MustCompile(`"set":256`).MatchString(out) {
		t.Errorf("it is written down:\n%s", out)
	}
	h.Run("kill -9 $(cat /tmp/pegasusd.pid)")
	h.Await(seen, "weights are put back", back)
	startDaemon(t, h, coordinated)
	h.Await(60*time.Second, "nothing is raised without the setting", back)
}
