package xen

import (
	"strings"
	"testing"
	"time"
)

// testMoved: an agent of a domU that is saved and restored tells the new domain's Dom0 of itself, and Linux survives its end.
func testMoved(t *testing.T, h *Host) {
	h.Create("moves", `
pegasus-guest install >/dev/null
pegasus-guest agent & agent=$!
while ! pegasus-guest doctor | grep -q "XenStore   it answers"; do sleep 0.2; done
was=$(pegasus-guest doctor | grep "this is domain")
echo "agent is there"
while [ "$(pegasus-guest doctor | grep 'this is domain')" = "$was" ]; do sleep 0.2; done
while ! pidof pegasus-guest | grep -q " "; do sleep 0.2; done
echo "moved"
kill -9 $agent
wait $agent
pegasus-guest agent & agent=$!
while ! pegasus-guest doctor | grep -q "granted to Dom0"; do sleep 0.2; done
kill $agent
wait $agent && echo "the next one ended: $?"
dmesg | grep -E "BUG|WARNING"
`, "memory=192")
	id := h.Run("xl domid moves")
	node := func(name string) string {
		out, _ := h.Try("xenstore-read /local/domain/" + id + "/data/pegasus/" + name)
		return out
	}
	h.Await(60*time.Second, "the agent publishes", func() bool { return node("state") == "ready" })
	control := node("control")
	h.Await(60*time.Second, "the agent answers", func() bool { return strings.Contains(h.Console("moves"), "agent is there") })
	h.Run("xl save moves /tmp/moves.save && xl restore /tmp/moves.save && rm /tmp/moves.save")
	id = h.Run("xl domid moves")
	h.Await(60*time.Second, "it publishes anew", func() bool { return node("state") == "ready" })
	if node("control") == control {
		t.Errorf("after it was restored, its control area is %s still", control)
	}
	h.Await(60*time.Second, "it ends", func() bool { return strings.Contains(h.Console("moves"), "job ended") })
	out := h.Console("moves")
	if !strings.Contains(out, "the next one ended: 0") || strings.Contains(out, "BUG") || strings.Contains(out, "WARNING") {
		t.Errorf("the domU says:\n%s", out)
	}
}
