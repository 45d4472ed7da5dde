//go:build soak

package xen

import (
	"strings"
	"testing"
	"time"
)

// Pegasus's client and Xen's server agree, in Dom0 over the socket and the device, and in a domU.
// With an emulated processor the test takes minutes.
func TestSoakXenStore(t *testing.T) {
	h := Start(t)
	const limit = 10 * time.Minute
	h.Run("(xenstore-conformance --requests 500; echo ended: $?) >/tmp/agreed 2>&1 &")
	var said string
	defer func() {
		if t.Failed() {
			t.Logf("the last that was said:\n%s", said)
		}
	}()
	h.Await(limit, "Dom0 has tried all", func() bool {
		said = h.Run("cat /tmp/agreed")
		return strings.Contains(said, "ended: ")
	})
	agreed(t, "Dom0", said, "ok socket: ", "ok device: ")

	h.Create("agrees", "xenstore-conformance --requests 500")
	h.Await(limit, "a domU has tried all", func() bool {
		said = h.Console("agrees")
		return strings.Contains(said, "ended: ")
	})
	agreed(t, "a domU", said, "ok device: ")
}

// agreed checks that no case has failed, and that each way was tried in some cases.
func agreed(t *testing.T, who, said string, ways ...string) {
	for _, line := range strings.Split(said, "\n") {
		if strings.HasPrefix(line, "FAIL") || strings.HasPrefix(line, "end: ") {
			t.Logf("%s: %s", who, line)
		}
	}
	if !strings.Contains(said, "ended: 0") {
		t.Errorf("%s says:\n%s", who, said)
	}
	for _, way := range ways {
		if strings.Count(said, way) < 30 {
			t.Errorf("%s: %d cases are %q", who, strings.Count(said, way), way)
		}
	}
}
