package xen

import (
	"math"
	"strings"
	"testing"
	"time"
)

// sharing is the configuration of a Dom0 with a policy that follows the weights of Xen's scheduler.
const sharing = daemonConfig + "policy = \"xc\"\n[default_domain]\narena = \"8MiB\"\n"

// backlog is a job that checks a computation's results, and then keeps many kernels queued, so that it could use
// a whole accelerator. It starts its program again if that fails.
const backlog = withAgent + `
echo 1 >/proc/sys/kernel/sysrq
/bench/blackscholes --size 16384 --iterations 2 --quiet --json
while :; do
	served
	/bench/blackscholes --size 65536 --queue 32 --seconds 3600 --no-check --quiet
	echo "it failed: $?"
done
`

// Shares are measured from the beginning of the check, for at least shareTime, and for up to shareLimit until they
// are right: emulated domUs share two processors with the accelerator, so that a domU may now and then have
// nothing queued, which a longer time evens out. A share that is off all the time is still off then.
const (
	shareTime      = 10 * time.Second
	shareLimit     = 120 * time.Second
	shareTolerance = 3.0
)

// checkShares checks that the second of two domUs gets twice the share of the first, from now on.
func checkShares(h *Host, one, two string) {
	h.t.Helper()
	used := func() (a, b float64) {
		first, _ := domainOf(h, one)
		second, _ := domainOf(h, two)
		return float64(first.GPU), float64(second.GPU)
	}
	began := time.Now()
	a, b := used()
	for time.Sleep(shareTime); ; time.Sleep(time.Second) {
		nowA, nowB := used()
		share, took := 100*(nowB-b)/max(nowA-a+nowB-b, 1), time.Since(began)
		if math.Abs(share-200.0/3) <= shareTolerance {
			h.t.Logf("%s gets %.1f %% over %.0f s", two, share, took.Seconds())
			return
		}
		if took > shareLimit {
			h.t.Errorf("%s gets %.1f %% over %.0f s, not 66.7 %%", two, share, took.Seconds())
			return
		}
	}
}

// backlogged blocks until a job of a domU's has checked its results; starts counts the domU's starts since it was created.
func backlogged(h *Host, name string, starts int) {
	h.t.Helper()
	h.Await(jobTime, name+" has computed right results", func() bool { return h.Said(name, `"right"`) == starts })
}

// computing blocks until a domain uses the accelerator.
func computing(h *Host, name string) {
	h.t.Helper()
	was, _ := domainOf(h, name)
	h.Await(jobTime, name+" computes", func() bool {
		d, _ := domainOf(h, name)
		return d.GPU > was.GPU+int64(100*time.Millisecond)
	})
}

// ours returns the number of the daemon's processes in Dom0, and of their mappings of domUs' pages.
func ours(h *Host) (processes, mapped string) {
	h.t.Helper()
	return h.Run("pidof pegasusd | wc -w"), h.Run("cat $(for p in $(pidof pegasusd); do echo /proc/$p/maps; done) | grep -c /dev/xen/gntdev; true")
}

// testShares: two attached domUs get shares of the accelerator in proportion to Xen's weights, whatever
// happens to the daemon and to them; and nothing of them is left after their end.
func testShares(t *testing.T, h *Host) {
	startDaemon(t, h, sharing)
	h.Run("pegasus attach one; pegasus attach two")
	defer h.Try("xl destroy one; xl destroy two; pegasus detach one; pegasus detach two")
	for _, name := range []string{"one", "two"} {
		h.Create(name, backlog, "memory=192")
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("%s says:\n%s", name, h.Console(name))
			}
		})
	}
	awaitState(h, "one", "running")
	awaitState(h, "two", "running")
	h.Run("pegasus set one weight=256; pegasus set two weight=512")
	backlogged(h, "one", 1) // a share is too small while a job checks results
	backlogged(h, "two", 1)
	computing(h, "one")
	computing(h, "two")
	checkShares(h, "one", "two")
	for _, name := range []string{"one", "two"} {
		if out := h.Console(name); strings.Count(out, `"right"`) != 1 || strings.Contains(out, "it failed") {
			t.Errorf("%s says:\n%s", name, out)
		}
		if d, _ := domainOf(h, name); d.Machine == nil || !d.Machine.Agent || d.Processes != 1 {
			t.Errorf("%s is %+v with %+v", name, d, d.Machine)
		}
	}

	h.Run("kill -9 $(cat /tmp/pegasusd.pid)")
	startDaemon(t, h, sharing)
	awaitState(h, "two", "running")
	computing(h, "one")
	checkShares(h, "one", "two")
	if out := h.Console("one") + h.Console("two"); strings.Contains(out, "it failed") {
		t.Errorf("a daemon's death ends programs:\n%s", out)
	}

	h.Run("xl pause two")
	awaitState(h, "two", "paused")
	was, _ := domainOf(h, "two")
	since, _ := domainOf(h, "one")
	h.Await(seen, "what two had submitted has drained", func() bool { // else it would have had turns beside one's
		two, _ := domainOf(h, "two")
		one, _ := domainOf(h, "one")
		if two.GPU != was.GPU {
			was, since = two, one
		}
		return one.GPU > since.GPU+int64(3*time.Second)
	})
	computing(h, "one")
	if is, _ := domainOf(h, "two"); is.GPU != was.GPU {
		t.Errorf("while it is paused two uses %v", time.Duration(is.GPU-was.GPU))
	}
	h.Run("xl unpause two")
	awaitState(h, "two", "running")
	computing(h, "two")

	h.Run("xl destroy one")
	awaitState(h, "one", "off")
	h.Await(seen, "one has gone", func() bool { return h.Run("xl list | wc -l") == "3" })
	id := strings.TrimSpace(h.Run("xl domid two"))
	h.Run("xl reboot two")
	h.Await(jobTime, "two is another domain", func() bool {
		now, status := h.Try("xl domid two 2>/dev/null")
		return status == 0 && strings.TrimSpace(now) != id
	})
	h.Await(seen, "its domain before has gone", func() bool { return h.Run("xl list | wc -l") == "3" })
	awaitState(h, "two", "running")
	backlogged(h, "two", 2) // only the program after the check is started again, and prints its status
	computing(h, "two")

	h.Run("pegasus detach two")
	awaitState(h, "two", "")
	h.Await(seen, "nobody maps anything of it", func() bool { p, m := ours(h); return p == "1" && m == "0" })
	h.Await(jobTime, "its program is told", func() bool { return h.Said("two", "it failed: 1") > 0 })
	h.Run("pegasus attach two")
	computing(h, "two")
	h.Run("xl sysrq two c") // it crashes
	awaitState(h, "two", "off")
	h.Await(seen, "two has gone", func() bool { return h.Run("xl list | wc -l") == "2" })
	h.Await(seen, "nothing is left of them", func() bool { p, m := ours(h); return p == "1" && m == "0" })
	h.Await(seen, "nor does the daemon have anything of them", func() bool { // which cleans up behind those that have gone
		left := h.Run("ls /run/pegasus/hubs /run/pegasus/workers; ls -l /proc/$(cat /tmp/pegasusd.pid)/fd | grep -c -E 'gntdev|evtchn'; true")
		return strings.HasSuffix(left, "0") && !strings.Contains(left, ".sock")
	})
}
