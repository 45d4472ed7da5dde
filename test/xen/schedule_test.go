package xen

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// testSchedule: the hypervisor's answers to the project's calls are those to its own tools.
func testSchedule(t *testing.T, h *Host) {
	const spin = "echo there it spins\nwhile :; do :; done"
	h.Create("spins", spin, "cpus=\"1\"")
	h.Create("rests", "echo there it rests; sleep 3600")
	defer h.Run("xl destroy spins; xl destroy rests")
	h.Run("xl sched-credit -d spins -w 512 -c 80")
	id := h.Run("xl domid rests")
	h.Run("probe weigh " + id + " 333")
	// A vCPU goes on running between two commands: xl prints a time between those of the probes before and behind it.
	both := h.Run("probe sched; echo; xl vcpu-list; echo; xl sched-credit; echo; probe sched")
	parts := strings.Split(both, "\n\n")
	if len(parts) != 4 || !strings.Contains(parts[0], " credit slice 30ms least 1ms\n") {
		t.Fatalf("they say:\n%s", both)
	}
	// NAME ID VCPU CPU STATE TIME AFFINITY
	vcpus := 0
	for _, m := range regexp.MustCompile(`(?m)^\S+ +(\d+) +(\d+) +(\d+|-) +([-rbp]{3}) +([0-9.]+)`).FindAllStringSubmatch(parts[1], -1) {
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^vcpu %s\.%s cpu (\d+) running (\S+) blocked (\S+) time (\S+)$`, m[1], m[2]))
		before, after := line.FindStringSubmatch(parts[0]), line.FindStringSubmatch(parts[3])
		if before == nil || after == nil {
			t.Errorf("vCPU %s.%s isn't known:\n%s", m[1], m[2], parts[0])
			continue
		}
		vcpus++
		var least, theirs, most float64
		fmt.Sscan(before[4]+" "+m[5]+" "+after[4], &least, &theirs, &most)
		if theirs < least-0.15 || theirs > most+0.15 { // both are rounded
			t.Errorf("vCPU %s.%s ran %v s, and then %v; xl says %v", m[1], m[2], least, most, theirs)
		}
	}
	if vcpus != 4 {
		t.Errorf("%d vCPUs are compared, not 4:\n%s", vcpus, both)
	}
	spins := h.Run("xl domid spins")
	if !regexp.MustCompile(`(?m)^vcpu ` + spins + `\.0 cpu 1 `).MatchString(parts[0]) {
		t.Errorf("the one that is tied to CPU 1 is elsewhere:\n%s", parts[0])
	}
	for _, m := range regexp.MustCompile(`(?m)^\S+ +(\d+) +(\d+) +(\d+)$`).FindAllStringSubmatch(parts[2], -1) {
		if want := fmt.Sprintf("domain %s weight %s cap %s\n", m[1], m[2], m[3]); !strings.Contains(parts[0], want) {
			t.Errorf("no %q in:\n%s", want, parts[0])
		}
	}
	if !strings.Contains(parts[2], " 512   80") || !strings.Contains(parts[2], " 333    0") {
		t.Errorf("xl doesn't see our weight, or its own:\n%s", parts[2])
	}
	testLook(t, h, spins, id)
	h.Create("naps", "echo at work\nwhile :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 0.02; done", "cpu_weight=512")
	defer h.Run("xl destroy naps; rm -r /tmp/naps") // Dom0's memory has other files to hold
	testRaise(t, h, id)
	testTrace(t, h)
}
