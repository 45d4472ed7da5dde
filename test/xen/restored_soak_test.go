//go:build soak

package xen

import (
	"strings"
	"testing"
)

func TestSoakXenRestored(t *testing.T) { try(t, Start(t), []part{{"Restored", testRestored}}) }

// testRestored: the agent of a saved and restored domU publishes itself to Dom0 for the new domain, the domU's programs compute,
// and its Linux survives the agent's end afterwards.
func testRestored(t *testing.T, h *Host) {
	startDaemon(t, h, daemonConfig+"[[domain]]\nname = \"restored\"\narena = \"8MiB\"\n")
	h.Create("restored", withAgent+`
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
	h.Run("rm /tmp/restored/initrd") // Dom0's memory has to hold the domU's, too
	defer stopHub(t, h, "restored")
	startHub(t, h, "restored")
	says := func(what string) func() bool {
		return func() bool { return h.Said("restored", what) > 0 }
	}
	h.Await(jobTime, "programs compute", says("save it"))
	computing(h, "restored")
	control := h.Run("xenstore-read /local/domain/$(xl domid restored)/data/pegasus/control")
	h.Run("xl save restored /tmp/restored.save && xl restore /tmp/restored.save && rm /tmp/restored.save")
	startHub(t, h, "restored")
	h.Await(jobTime, "being saved ends the program", says("busy ended"))
	h.Await(seen, "the agent publishes anew", func() bool {
		now, status := h.Try("xenstore-read /local/domain/$(xl domid restored)/data/pegasus/control")
		return status != 0 || now != control
	})
	h.Await(jobTime, "all is done", says("job ended"))
	out := h.Console("restored")
	for _, want := range []string{"all agents have ended", "CUDA_ERROR_UNKNOWN (999)"} {
		if !strings.Contains(out, want) {
			t.Errorf("nobody says %q", want)
		}
	}
	if n := strings.Count(out, `"right"`); n != 2 || strings.Contains(out, "BUG") || strings.Contains(out, "WARNING") {
		t.Errorf("%d of 2 programs computed what is right", n)
	}
	h.Await(seen, "nothing is left of it", func() bool { return h.Run("xl list | wc -l") == "2" })
	if t.Failed() {
		t.Log(out)
	}
}
