//go:build soak

package xen

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var foretold = regexp.MustCompile(`forecasts of the vCPUs that run next.* times=(\d+) right=(\d+)`)

// TestSoakXenOthers: other users of Xen's interfaces don't disable the daemon. A picture of the CPUs that began before
// a policy sampled them leaves tracing on when it ends; another tool that switches Xen's tracing off stops it
// for two seconds only; and a restarted XenStore, which has no domUs, ends no program.
func TestSoakXenOthers(t *testing.T) {
	h := crowd(t, queues)
	h.Run("xl sched-credit -p one -s -t 200")
	before := 0
	// forecasts returns the number of predictions of the next vCPU that the trace has confirmed or refuted, while a
	// command runs and for 8 s after it.
	forecasts := func(happens string) int {
		t.Helper()
		plan(h, "policy = \"cosched\"\ntick = \"70ms\"")
		h.Run(happens + "; sleep 8")
		plan(h, `policy = "rr"`)
		all := foretold.FindAllStringSubmatch(h.Run("sleep 1; cat /tmp/pegasusd.log"), -1)
		if len(all) == 0 {
			t.Fatal("nothing was foretold")
		}
		last := all[len(all)-1]
		now, _ := strconv.Atoi(last[1])
		n := now - before
		before = now
		t.Logf("%s: %d times", happens, n)
		return n
	}
	silent := func() int { return strings.Count(h.Run("cat /tmp/pegasusd.log"), "no new records: another program") }
	calm := forecasts("true")
	h.Run("pegasus trace --cpus --seconds 4 --out /tmp/first >/dev/null 2>&1 & sleep 1")
	if n := forecasts("while pidof pegasus >/dev/null; do sleep 1; done"); n < calm*7/10 || silent() != 0 {
		t.Errorf("beside a picture that ended there were %d forecasts, without %d, and the trace stood still %d times", n, calm, silent())
	}
	if n := forecasts("probe silence"); n < calm/2 || silent() != 1 {
		t.Errorf("where tracing was switched off there were %d forecasts, else %d, and that was seen %d times", n, calm, silent())
	}

	used := func() (ns int64) {
		for _, name := range []string{"one", "two"} {
			if d, ok := domainOf(h, name); ok {
				ns += d.GPU
			}
		}
		return ns
	}
	hubs := h.Run("pidof pegasusd | wc -w")
	h.Run("kill -9 $(cat /run/xenstored.pid); sleep 1; rm -f /run/xenstored.pid; xenstored --pid-file /run/xenstored.pid; sleep 12")
	if out, _ := h.Try("xenstore-ls /local/domain 2>&1 | head; cat /tmp/pegasusd.log | grep XenStore"); true {
		t.Log(out)
	}
	was := used()
	h.Run("sleep 4")
	if now := h.Run("pidof pegasusd | wc -w"); now != hubs || used() == was {
		t.Errorf("there were %s processes of the daemon, and are %s; the accelerator was used for %d ns more", hubs, now, used()-was)
	}
}
