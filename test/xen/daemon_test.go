package xen

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
)

// daemonConfig is for a Dom0 of little memory, in which a kernel takes many times as long as on its host.
const daemonConfig = `[daemon]
worker_pool = 0
[[accelerator]]
name = "soft0"
memory = "64MiB"
kernel_timeout = "2m"
`

// seen bounds the time until the daemon reports a change that it observes on its own, with the emulated machine
// at its busiest.
const seen = 3 * time.Minute

// startDaemon starts one in Dom0, and ends it with the test.
func startDaemon(t *testing.T, h *Host, config string) {
	t.Helper()
	h.Write("/tmp/pegasus.toml", config)
	h.Run("pegasusd --config /tmp/pegasus.toml >>/tmp/pegasusd.log 2>&1 & echo $! >/tmp/pegasusd.pid")
	t.Cleanup(func() {
		if t.Failed() { // a failed test's log has the daemon's goroutines
			h.Try("kill -QUIT $(cat /tmp/pegasusd.pid); sleep 1")
		}
		h.Try("kill $(cat /tmp/pegasusd.pid); wait $(cat /tmp/pegasusd.pid)") // the next one isn't to find it
		if t.Failed() {
			out, _ := h.Try("cat /tmp/pegasusd.log")
			t.Logf("the daemon says:\n%s", out)
		}
	})
	h.Await(seen, "the daemon answers", func() bool {
		_, status := h.Try("pegasus domains")
		return status == 0
	})
}

// domainOf returns the daemon's record of a domain, if it has one.
func domainOf(h *Host, name string) (d control.Domain, ok bool) {
	h.t.Helper()
	out := h.Run("pegasus domains --json")
	var all []control.Domain
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		h.t.Fatalf("%v:\n%s", err, out)
	}
	for _, d := range all {
		if d.Name == name {
			return d, true
		}
	}
	return d, false
}

// machineState returns the state of a domain's machine in the daemon's record: "" if it has none.
func machineState(h *Host, name string) string {
	h.t.Helper()
	d, _ := domainOf(h, name)
	if d.Machine == nil {
		return ""
	}
	return d.Machine.State
}

// awaitState waits until the daemon has seen what a domU does.
func awaitState(h *Host, name, want string) {
	h.t.Helper()
	began := time.Now()
	var is string
	for is = machineState(h, name); is != want; is = machineState(h, name) {
		if time.Sleep(100 * time.Millisecond); time.Since(began) > seen {
			h.t.Fatalf("%s is %q for the daemon, not %q, after %v", name, is, want, seen)
		}
	}
	h.t.Logf("%s is seen to be %q after %v", name, want, time.Since(began).Round(10*time.Millisecond))
}

// testDaemon: a daemon in Dom0 lists its domUs by name, with their states, and sets their weights.
func testDaemon(t *testing.T, h *Host) {
	startDaemon(t, h, daemonConfig)
	if out := h.Run("pegasus attach web --credits 512"); !strings.Contains(out, "There is none now") {
		t.Errorf("attach says:\n%s", out)
	}
	awaitState(h, "web", "off")
	h.Create("web", "sleep 3600")
	gone := false
	defer func() {
		if !gone {
			h.Try("xl destroy web; xl destroy shop")
		}
	}()
	awaitState(h, "web", "running")
	web, _ := domainOf(h, "web")
	id := strings.TrimSpace(h.Run("xl domid web"))
	if is := strconv.Itoa(web.Machine.Xen); is != id || web.Machine.Host != "xen" || web.Credits != 512 || web.CPUWeight != 256 || web.CPUCap != 0 {
		t.Errorf("web, domain %s, is %+v, %+v", id, web, web.Machine)
	}
	h.Await(seen, "its vCPU is seen to run", func() bool {
		web, _ := domainOf(h, "web")
		return web.VCPUs == 1 && web.VCPURan > 0
	})
	if out := h.Run("pegasus attach web --dry-run; pegasus attach web --credits 300; pegasus doctor; pegasus why web"); !strings.Contains(out, "nothing changes") || !strings.Contains(out, "300 credits") {
		t.Errorf("they say:\n%s", out)
	} else {
		t.Log(out)
	}

	h.Run("pegasus set web weight=512 cap=50")
	if out := h.Run("xl sched-credit -d web"); !strings.Contains(out, " 512   50") {
		t.Errorf("xl says:\n%s", out)
	}
	h.Run("pegasus set web slice=5ms")
	if out := h.Run("xl sched-credit -s -p Pool-0"); !strings.Contains(out, "tslice=5ms") {
		t.Errorf("xl says:\n%s", out)
	}
	h.Run("pegasus set web slice=30ms; xl sched-credit -d web -w 333 -c 0")
	if web, _ = domainOf(h, "web"); web.CPUWeight != 333 || web.CPUCap != 0 || web.Credits != 300 {
		t.Errorf("web has weight %d, cap %d and %d credits", web.CPUWeight, web.CPUCap, web.Credits)
	}
	for set, want := range map[string]string{"weight=70000": "weight = 70000: must be from 1 to 65535", "cap=101": "cap = 101: must be from 1 to 100", "weight=x": "whole number", "slice=2s": "to 1s"} {
		if out, status := h.Try("pegasus set web " + set + " 2>&1"); status == 0 || !strings.Contains(out, want) {
			t.Errorf("set %s says %d:\n%s", set, status, out)
		}
	}

	h.Run("xl pause web")
	awaitState(h, "web", "paused")
	h.Run("xl unpause web")
	awaitState(h, "web", "running")
	h.Run("xl rename web shop")
	awaitState(h, "web", "off")
	h.Run("pegasus attach shop")
	awaitState(h, "shop", "running")
	h.Run("pegasus detach shop")
	awaitState(h, "shop", "")
	h.Run("xl rename shop web")
	awaitState(h, "web", "running")
	h.Run("xl destroy web")
	gone = true
	awaitState(h, "web", "off")
	h.Run("pegasus detach web")
	awaitState(h, "web", "")
	h.Await(seen, "it has gone", func() bool { return !strings.Contains(h.Run("xl list"), fmt.Sprintf(" %s ", id)) })
	if out := h.Run("cat /tmp/pegasusd.log"); strings.Contains(out, "libvirt") {
		t.Errorf("the daemon speaks of libvirt:\n%s", out)
	}
}
