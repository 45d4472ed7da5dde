//go:build soak

package xen

import (
	"strings"
	"testing"
	"time"
)

// A domU that uses the processor's help for virtual machines is served as others are: its pages are granted, its
// events come, and when it has gone nothing is left. QEMU emulates what AMD's processors have.
func TestSoakPVH(t *testing.T) {
	h := Start(t, "conring_size=1M")
	startDaemon(t, h, stageConfig)
	h.Run("pegasus attach helped")
	empty := h.Run("sleep 1; probe left")
	h.Create("helped", withAgent+`
try
busy 10 & busy=$!
sleep 3
kill -9 $(agent)
wait $busy
try
echo "all done"
sleep 3600
`, `type="pvh"`, "memory=192")
	h.Await(4*time.Minute, "it computes", func() bool { return strings.Contains(h.Console("helped"), "all done") })
	out := h.Console("helped")
	t.Log(out)
	if strings.Count(out, `"right"`) != 3 || !strings.Contains(out, "busy ended: 0") || !strings.Contains(out, "going on with the session of the agent before") {
		t.Error("not all that it computed is right")
	}
	h.Run("xl pause helped; sleep 1; xl unpause helped; xl destroy helped")
	h.Await(leftTime, "nothing is left", func() bool { return h.Run("probe left") == empty })
}
