package xen

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// testLook: the daemon's sample is right for a domU that spins, tied to CPU 1 with a weight of 512 and a cap of
// 80 %, and for one that rests, with a weight of 333.
func testLook(t *testing.T, h *Host, spins, rests string) {
	for _, name := range []string{"spins", "rests"} { // not while it boots
		h.Await(jobTime, "it "+name, func() bool { return h.Said(name, "there it "+name) > 0 })
	}
	out := h.Run("probe cpus look 40 30ms " + spins + " " + rests + "; xl vcpu-list")
	t.Log(out)
	if !strings.HasPrefix(out, "quality 1,") {
		t.Error("the schedule isn't known")
	}
	domain := func(id string) (weight, limit, left int, ran, waited time.Duration) {
		t.Helper()
		m := regexp.MustCompile(`(?m)^domain ` + id + ` weight (\d+) cap (\d+) left (-?\d+) ran (\S+) waited (\S+)$`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("domain %s isn't seen", id)
		}
		fmt.Sscan(m[1]+" "+m[2]+" "+m[3], &weight, &limit, &left)
		ran, _ = time.ParseDuration(m[4])
		waited, _ = time.ParseDuration(m[5])
		return
	}
	unit := func(id string) (cpu, running, runnable, blocked, next int) {
		t.Helper()
		m := regexp.MustCompile(`(?m)^vcpu ` + id + `\.0 cpu (\d+) running (\d+) runnable (\d+) blocked (\d+) next (\d+)$`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("vCPU %s.0 isn't seen", id)
		}
		fmt.Sscan(strings.Join(m[1:], " "), &cpu, &running, &runnable, &blocked, &next)
		return
	}
	weight, limit, left, ran, waited := domain(spins)
	if weight != 512 || limit != 80 || left < -600 || left > 300 {
		t.Errorf("the one that spins has weight %d, cap %d, %d left", weight, limit, left)
	}
	if cpu, running, _, blocked, _ := unit(spins); cpu != 1 || running == 0 || blocked > 4 || ran < 100*time.Millisecond || waited == 0 {
		t.Errorf("the one that spins is on CPU %d, %d times running, %d times blocked; it ran %v and waited %v", cpu, running, blocked, ran, waited)
	}
	weight, limit, left, _, _ = domain(rests)
	if weight != 333 || limit != 0 || left < -600 || left > 300 {
		t.Errorf("the one that rests has weight %d, cap %d, %d left", weight, limit, left)
	}
	if _, _, _, blocked, next := unit(rests); blocked < 20 || next > 500 {
		t.Errorf("the one that rests is %d times blocked, and will run for %d ‰", blocked, next)
	}
}

// testRaise: when a daemon is killed that has raised a weight, the guard restores the weight.
func testRaise(t *testing.T, h *Host, id string) {
	weight := func() string {
		m := regexp.MustCompile(`(?m)^domain ` + id + ` weight (\d+) `).FindStringSubmatch(h.Run("probe sched"))
		if m == nil {
			t.Fatalf("domain %s has gone", id)
		}
		return m[1]
	}
	before := weight()
	h.Run("probe cpus raise /run/raised web " + id + " 2048 >/tmp/raise 2>&1 & echo $! >/tmp/raises; probe cpus guard /run/raised web >/tmp/guard 2>&1 & echo $! >/tmp/guards")
	h.Await(seen, "the weight is raised", func() bool { return weight() == "2048" })
	h.Await(seen, "the one that raised it says so", func() bool { // after it has
		out := h.Run("cat /tmp/raise /run/raised/web.json")
		return strings.Contains(out, "Weight:"+before+" Has:2048") && strings.Contains(out, `"set":`+before)
	})
	h.Run("kill -9 $(cat /tmp/raises)")
	h.Await(seen, "the weight is put back", func() bool { return weight() == before })
	h.Await(seen, "the one that guards it says so", func() bool { return strings.Contains(h.Run("cat /tmp/guard"), "put back") })
	h.Run("kill $(cat /tmp/guards)")
}
