//go:build soak

package xen

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var foretold = regexp.MustCompile(`it was foretold who runs .* times=(\d+) right=(\d+)`)

// TestSoakXenOthers: what others do with what the daemon needs of Xen takes nothing away from it. Its own picture of the
// CPUs that was begun before a policy looked at them leaves their trace on when it ends; who switches Xen's tracing
// off for all does so for two seconds; and a XenStore that is started anew, and knows no domU, ends nobody's programs.
func TestSoakXenOthers(t *testing.T) {
	h := crowd(t, queues)
	h.Run("xl sched-credit -p one -s -t 200")
	before := 0
	// forecasts is how often it was foretold who runs, and is known whether that was right, while something happens and
	// then for a while.
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
	silent := func() int { return strings.Count(h.Run("cat /tmp/pegasusd.log"), "nothing is noted any more") }
	calm := forecasts("true")
	h.Run("pegasus trace --cpus --seconds 4 --out /tmp/first >/dev/null 2>&1 & sleep 1")
	if n := forecasts("while pidof pegasus >/dev/null; do sleep 1; done"); n < calm*7/10 || silent() != 0 {
		t.Errorf("beside a picture that ended it was foretold who runs %d times, without %d, and the trace stood still %d times", n, calm, silent())
	}
	if n := forecasts("probe silence"); n < calm/2 || silent() != 1 {
		t.Errorf("where tracing was switched off it was foretold who runs %d times, else %d, and that was seen %d times", n, calm, silent())
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
