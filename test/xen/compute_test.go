package xen

import (
	"strings"
	"testing"
)

// startHub starts the hub of a domU, as the daemon would.
func startHub(t *testing.T, h *Host, name string) {
	t.Helper()
	h.Run("pegasusd hub --domain " + name + " --xen $(xl domid " + name + ") >>/tmp/hub-" + name + ".log 2>&1 & echo $! >/tmp/hub-" + name + ".pid")
}

func stopHub(t *testing.T, h *Host, name string) {
	h.Try("kill $(cat /tmp/hub-" + name + ".pid)")
	if t.Failed() {
		out, _ := h.Try("cat /tmp/hub-" + name + ".log")
		t.Logf("the hub of %s says:\n%s", name, out)
	}
}

// withAgent begins a domU's job: its agent is there, and another one whenever it dies, as with systemd.
const withAgent = `
pegasus-guest install >/dev/null
probe keep pegasus-guest agent &
served() { while ! pegasus-guest doctor | grep -q "^ok *host"; do sleep 0.2; done; }
agent() { for p in $(pidof pegasus-guest); do grep -q agent /proc/$p/cmdline && echo $p; done; }
try() { /bench/vectoradd --size 65536 --iterations 2 --quiet --json; }
busy() { /bench/busy --seconds $1 --queue 4 --quiet --json; echo "busy ended: $?"; }
served
`

// testComputes: programs of a domU compute on Dom0's accelerator, whatever happens to the agent, the hub and
// the domU. The agent of a domU that was saved and restored tells the new domain's Dom0 of itself, and
// Linux survives the agent's end afterwards.
func testComputes(t *testing.T, h *Host) {
	startDaemon(t, h, daemonConfig+"[[domain]]\nname = \"computes\"\narena = \"8MiB\"\n")
	h.Create("computes", withAgent+`
echo 'user:x:1000:1000:user:/:/bin/sh' >>/etc/passwd
su -s /bin/sh -c '/bench/vectoradd --size 65536 --iterations 2 --quiet --json' user
/bench/blackscholes --size 16384 --iterations 2 --quiet --json
busy 4 & busy=$!
sleep 2
kill -9 $(agent)
try
wait $busy
busy 3600 & busy=$!
echo "kill the hub"
wait $busy
served
try
busy 3600 & busy=$!
echo "save it"
wait $busy
served
try
kill -9 $(agent)
try
kill $(agent)
while [ -n "$(agent)" ]; do sleep 0.1; done
echo "all agents have ended"
dmesg | grep -E "BUG|WARNING"
`, "memory=192")
	h.Run("rm /tmp/computes/initrd") // Dom0's memory has to hold the domU's, too
	defer stopHub(t, h, "computes")
	startHub(t, h, "computes")
	says := func(what string, n int) func() bool {
		return func() bool { return strings.Count(h.Console("computes"), what) == n }
	}
	h.Await(jobTime, "programs compute", says("kill the hub", 1))
	computing(h, "computes")
	h.Run("kill -9 $(cat /tmp/hub-computes.pid)")
	h.Await(jobTime, "its hub's end ends the program", says("busy ended", 2))
	startHub(t, h, "computes")
	h.Await(jobTime, "programs compute again", says("save it", 1))
	computing(h, "computes")
	control := h.Run("xenstore-read /local/domain/$(xl domid computes)/data/pegasus/control")
	h.Run("xl save computes /tmp/computes.save && xl restore /tmp/computes.save && rm /tmp/computes.save")
	startHub(t, h, "computes")
	h.Await(jobTime, "being saved ends the program", says("busy ended", 3))
	h.Await(seen, "the agent publishes anew", func() bool {
		now, status := h.Try("xenstore-read /local/domain/$(xl domid computes)/data/pegasus/control")
		return status != 0 || now != control
	})
	h.Await(jobTime, "all is done", says("job ended", 1))
	out := h.Console("computes")
	for _, want := range []string{"going on with the session of the agent before", "busy ended: 0", "all agents have ended", "DEINITIALIZED (4)", "CUDA_ERROR_UNKNOWN (999)"} {
		if !strings.Contains(out, want) {
			t.Errorf("nobody says %q", want)
		}
	}
	if n := strings.Count(out, `"right"`); n != 7 || strings.Contains(out, "BUG") || strings.Contains(out, "WARNING") {
		t.Errorf("%d of 7 programs computed what is right", n)
	}
	h.Await(seen, "nothing is left of it", func() bool { return h.Run("xl list | wc -l") == "2" })
	if t.Failed() {
		t.Log(out)
	}
}
