package xen

import (
	"strings"
	"testing"
	"time"
)

// testDevices: a domU shares memory with Dom0, and each wakes the other.
func testDevices(t *testing.T, h *Host) {
	h.Create("shares", "/bin/probe grant")
	var line string
	h.Await(60*time.Second, "it grants pages", func() bool {
		_, rest, _ := strings.Cut(h.Console("shares"), "granted: ")
		var whole bool
		line, _, whole = strings.Cut(rest, " .")
		return whole
	})
	id := h.Run("xl domid shares")
	out := h.Run("/bin/probe hand " + id + " " + line)
	for _, want := range []string{`it sees "from the guest" and "from the hub"`, "futex: bad address", `there is "from the worker"`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q isn't said by two processes of Dom0:\n%s", want, out)
		}
	}
	if out := h.Run("/bin/probe map " + id + " " + line); !strings.Contains(out, `there is "from the guest"`) || !strings.Contains(out, "20 answers") {
		t.Errorf("Dom0 says:\n%s", out)
	} else {
		t.Log(out)
	}
	h.Await(20*time.Second, "it ends", func() bool { return !strings.Contains(h.Run("xl list"), "shares") })
	if out := h.Console("shares"); !strings.Contains(out, "answered all") || !strings.Contains(out, "job ended: 0") {
		t.Errorf("the domU says:\n%s", out)
	}
}
