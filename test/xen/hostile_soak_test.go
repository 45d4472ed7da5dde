//go:build soak

package xen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// used returns the processor time of a process of Dom0, and its peak memory in KiB.
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

// The root of a domU attacks Dom0 through everything that the two share, also while the domU is attached and detached. Only
// that domU suffers: another domU gets correct results, with its share, and daemon and hub stay small, mostly idle and
// alive. Nothing of the domU is left after its end.
func TestSoakHostile(t *testing.T) {
	h := Start(t, "conring_size=1M")
	const each = 10 * time.Second
	const acts = 11
	const races = 8
	h.Run(inDom0)
	startDaemon(t, h, daemonConfig+"cores = 1\n[[domain]]\nname = \"honest\"\narena = \"4MiB\"\n[[domain]]\nname = \"foe\"\narena = \"1MiB\"\n")
	h.Run("pegasus attach honest; pegasus attach foe")
	empty := h.Run("sleep 1; probe left")
	h.Create("honest", withAgent+fmt.Sprintf(`
echo "computes"
busy %d
try
echo "done"
sleep 3600
`, int((acts*each+races*10*time.Second).Seconds())), "memory=192")
	h.Await(takenTime, "the honest one computes", func() bool { return h.Said("honest", "computes") > 0 })
	h.Run("rm /tmp/honest/initrd")
	h.Create("foe", fmt.Sprintf("sleep 5\necho 20000 >/sys/module/xen_gntalloc/parameters/limit\necho begun\nfoe all %d\necho 'foe ended'\nwhile :; do foe all 2; done", int(each.Seconds())), "memory=192")
	h.Await(takenTime, "the foe begins", func() bool { return h.Said("foe", "begun") > 0 })
	who := []string{"daemon", "foe's hub", "the honest one's hub", "XenStore"}
	look := func() []string {
		return strings.Fields(h.Run(`cat /tmp/pegasusd.pid; ours "hub .*--domain foe "; ours "hub .*--domain honest "; cat /run/xenstored.pid`))
	}
	pids := look()
	if len(pids) != len(who) {
		t.Fatalf("there are processes %v", pids)
	}
	var before [4]time.Duration
	for i, pid := range pids {
		before[i], _ = used(h, pid)
	}
	d, _ := domainOf(h, "honest")
	begin := time.Now()
	h.Await(acts*(each+60*time.Second), "the foe has ended", func() bool { return h.Said("foe", "foe ended") > 0 })
	took := time.Since(begin)
	after, _ := domainOf(h, "honest")
	share := float64(after.GPU-d.GPU) / float64(took)
	t.Logf("for %v the honest domU had %.2f of the accelerator", took.Round(time.Second), share)
	if now := look(); !slices.Equal(now, pids) {
		t.Errorf("processes %v are %v now: one has died", pids, now)
	}
	for i, pid := range pids {
		cpu, kib := used(h, pid)
		t.Logf("%s had %.2f cores and %d KiB", who[i], float64(cpu-before[i])/float64(took), kib)
		if ours := who[i] != "XenStore"; ours && (kib > 64<<10 || cpu-before[i] > took/2) {
			t.Errorf("that is too much")
		}
	}
	if share < 0.1 {
		t.Errorf("the honest domU had %.2f of the accelerator", share)
	}
	t.Log(h.Console("foe"))
	for i := range races {
		h.Run(fmt.Sprintf("pegasus detach foe; usleep %d; pegasus attach foe; sleep 1", i*300000))
	}
	h.Run("xl destroy foe")
	h.Await(takenTime, "nothing is left of the foe", func() bool {
		list := h.Run("xl list")
		return !strings.Contains(list, "(null)") && !strings.Contains(list, "foe")
	})
	h.Await(2*takenTime, "the honest one is done", func() bool { return h.Said("honest", "done") > 0 })
	if out := h.Console("honest"); strings.Count(out, `"right"`) != 2 || !strings.Contains(out, "busy ended: 0") {
		t.Errorf("the honest domU says:\n%s", out)
	}
	h.Run("xl destroy honest")
	left := ""
	h.Await(takenTime, "there is what there was before", func() bool {
		if now := h.Run("probe left"); now != left {
			t.Logf("there is:\n%s", now)
			left = now
		}
		return left == empty
	})
	log := h.Run("cat /tmp/pegasusd.log")
	t.Log(log)
	if len(log) > 1<<18 || !strings.Contains(log, "session ends") {
		t.Errorf("daemon and hubs have said %d bytes; nothing hit them?", len(log))
	}
}
