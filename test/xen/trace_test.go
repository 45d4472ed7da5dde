package xen

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
)

// testTrace: for a domU that spins and one that rests, beside one that naps, the running times by the hypervisor's trace are
// those by its counters, and the credits that the daemon derives from the trace are the hypervisor's credits.
func testTrace(t *testing.T, h *Host) {
	h.Run("xl sched-credit -d spins -c 0")
	h.Await(jobTime, "it works", func() bool { return h.Said("naps", "at work") > 0 })
	compare(t, h, h.Run("probe agree 3"))
	// The trace buffers stay allocated; a later reader uses them, too.
	compare(t, h, h.Run("probe agree 1"))
	testCredits(t, h, "spins naps")
}

// compare checks that the two measurements in the output of `probe agree` agree.
func compare(t *testing.T, h *Host, said string) {
	t.Helper()
	t.Log(said)
	spins := h.Run("xl domid spins")
	vcpus, busy := 0, false
	for _, m := range regexp.MustCompile(`(?m)^vcpu (\d+)\.\d+ ran (\d+) by the trace, (\d+) by Xen$`).FindAllStringSubmatch(said, -1) {
		var ours, theirs float64
		fmt.Sscan(m[2]+" "+m[3], &ours, &theirs)
		// On a calm host they differ by one per cent. Xen reads its clock some time before it writes a trace
		// record, and a busy host may stop an emulated CPU between the two for a tenth of a second.
		if math.Abs(ours-theirs) > 0.1*theirs+150 {
			t.Errorf("%s", m[0])
		}
		vcpus++
		busy = busy || m[1] == spins && ours > 200
	}
	if vcpus != 3 || !busy || strings.Contains(said, "can't see") {
		t.Errorf("%d vCPUs, busy %v:\n%s", vcpus, busy, said)
	}
}
