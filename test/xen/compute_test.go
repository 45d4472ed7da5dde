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

// withAgent is the beginning of a domU's job: it starts an agent, and another one whenever the agent dies, as systemd does.
const withAgent = `
pegasus-guest install >/dev/null
probe keep pegasus-guest agent &
served() { while ! pegasus-guest doctor | grep -q "^ok *host"; do sleep 0.2; done; }
agent() { for p in $(pidof pegasus-guest); do grep -q agent /proc/$p/cmdline && echo $p; done; }
try() { /bench/vectoradd --size 65536 --iterations 2 --quiet --json; }
busy() { /bench/busy --seconds $1 --queue 4 --quiet --json; echo "busy ended: $?"; }
served
`

// testComputes: programs of a domU compute on Dom0's accelerator, whatever happens to the agent and the hub.
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
`, "memory=192")
	defer stopHub(t, h, "computes")
	startHub(t, h, "computes")
	says := func(what string, n int) func() bool {
		return func() bool { return h.Said("computes", what) == n }
	}
	h.Await(jobTime, "programs compute", says("kill the hub", 1))
	computing(h, "computes")
	h.Run("kill -9 $(cat /tmp/hub-computes.pid)")
	h.Await(jobTime, "its hub's end ends the program", says("busy ended", 2))
	startHub(t, h, "computes")
	h.Await(jobTime, "all is done", says("job ended", 1))
	out := h.Console("computes")
	for _, want := range []string{"going on with the session of the agent before", "busy ended: 0", "DEINITIALIZED (4)"} {
		if !strings.Contains(out, want) {
			t.Errorf("nobody says %q", want)
		}
	}
	if n := strings.Count(out, `"right"`); n != 5 {
		t.Errorf("%d of 5 programs computed what is right", n)
	}
	h.Await(seen, "nothing is left of it", func() bool { return h.Run("xl list | wc -l") == "2" })
	if t.Failed() {
		t.Log(out)
	}
}
