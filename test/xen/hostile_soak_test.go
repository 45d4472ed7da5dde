//go:build soak

package xen

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// used is how much processor time a process of Dom0 has had, and the most memory.
func used(h *Host, pid string) (cpu time.Duration, kib int) {
	h.t.Helper()
	fields := strings.Fields(h.Run("sed 's/.*) //' /proc/" + pid + "/stat"))
	if len(fields) < 13 {
		h.t.Fatalf("process %s: %q", pid, fields)
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	kib, _ = strconv.Atoi(h.Run("sed -n 's/VmHWM:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/" + pid + "/status"))
	return time.Duration(user+system) * time.Second / 100, kib
}

// The root of a domU does what it can to Dom0 by all that the two share. Only that domU suffers: another
// computes what is right, with its share, and daemon and hub keep small and mostly idle.
func TestSoakHostile(t *testing.T) {
	h := Start(t)
	const each = 15 * time.Second
	const acts = 5
	startDaemon(t, h, daemonConfig+"[[domain]]\nname = \"honest\"\narena = \"4MiB\"\n[[domain]]\nname = \"foe\"\narena = \"1MiB\"\n")
	h.Create("honest", withAgent+fmt.Sprintf(`
echo "computes"
busy %d
try
echo "done"
sleep 3600
`, int((acts*each+20*time.Second).Seconds())), "memory=192")
	defer stopHub(t, h, "honest")
	startHub(t, h, "honest")
	h.Await(90*time.Second, "the honest one computes", func() bool { return strings.Contains(h.Console("honest"), "computes") })
	h.Run("rm /tmp/honest/initrd")
	h.Create("foe", fmt.Sprintf("sleep 3\necho 20000 >/sys/module/xen_gntalloc/parameters/limit\necho begun\nfoe all %d\necho 'foe ended'\nsleep 3600", int(each.Seconds())), "memory=192")
	defer stopHub(t, h, "foe")
	startHub(t, h, "foe")
	pids := strings.Fields(h.Run("cat /tmp/pegasusd.pid /tmp/hub-foe.pid /tmp/hub-honest.pid"))
	h.Await(60*time.Second, "the foe begins", func() bool { return strings.Contains(h.Console("foe"), "begun") })
	var before [3]time.Duration
	for i, pid := range pids {
		before[i], _ = used(h, pid)
	}
	d, _ := domainOf(h, "honest")
	begin := time.Now()
	h.Await(acts*each+60*time.Second, "the foe has ended", func() bool { return strings.Contains(h.Console("foe"), "foe ended") })
	took := time.Since(begin)
	after, _ := domainOf(h, "honest")
	share := float64(after.GPU-d.GPU) / float64(took)
	t.Logf("for %v the honest domU had %.2f of the accelerator", took.Round(time.Second), share)
	for i, pid := range pids {
		cpu, kib := used(h, pid)
		t.Logf("%s had %.2f cores and %d KiB", []string{"daemon", "foe's hub", "the honest one's hub"}[i], float64(cpu-before[i])/float64(took), kib)
		if kib > 64<<10 || cpu-before[i] > took/2 {
			t.Errorf("that is too much")
		}
	}
	if share < 0.1 {
		t.Errorf("the honest domU had %.2f of the accelerator", share)
	}
	t.Log(h.Console("foe"))
	h.Run("xl destroy foe")
	h.Await(20*time.Second, "nothing is left of the foe", func() bool {
		list := h.Run("xl list")
		return !strings.Contains(list, "(null)") && !strings.Contains(list, "foe")
	})
	h.Await(90*time.Second, "the honest one is done", func() bool { return strings.Contains(h.Console("honest"), "done") })
	if out := h.Console("honest"); strings.Count(out, `"right"`) != 2 || !strings.Contains(out, "busy ended: 0") {
		t.Errorf("the honest domU says:\n%s", out)
	}
	h.Run("xl destroy honest")
	log := h.Run("cat /tmp/hub-foe.log")
	t.Log(log)
	if len(log) > 1<<18 || !strings.Contains(log, "session ends") {
		t.Errorf("the foe's hub has said %d bytes; nothing hit it?", len(log))
	}
}
