package xen

import (
	"strings"
	"testing"
)

// testDevices: a domU shares memory with Dom0, and each wakes the other.
func testDevices(t *testing.T, h *Host, name string) {
	t.Helper()
	var line string
	h.Await(jobTime, "it grants pages", func() bool {
		_, rest, _ := strings.Cut(h.Console(name), "granted: ")
		var whole bool
		line, _, whole = strings.Cut(rest, " .")
		return whole
	})
	id := h.Run("xl domid " + name)
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
	h.Await(seen, "it is done", func() bool { return h.Said(name, "job ended: 0") > 0 })
	if out := h.Console(name); !strings.Contains(out, "answered all") {
		t.Errorf("the domU says:\n%s", out)
	}
}
