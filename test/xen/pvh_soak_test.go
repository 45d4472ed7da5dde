//go:build soak

package xen

import (
	"strings"
	"testing"
)

// A domU with hardware virtualization is served as others are: it can grant pages, receives its
// events, can be saved and restored, and leaves nothing behind. QEMU emulates AMD's virtualization extension.
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
busy 120 & busy=$!
sleep 2
echo "save it"
wait $busy
served
try
echo "all done"
sleep 3600
`, `type="pvh"`, "memory=192")
	says := func(what string) func() bool {
		return func() bool { return h.Said("helped", what) > 0 }
	}
	h.Await(jobTime, "it computes", says("save it"))
	h.Run("rm /tmp/helped/initrd; xl save helped /tmp/save && xl restore /tmp/save && rm /tmp/save")
	h.Await(jobTime, "it computes where it is restored", says("all done"))
	out := h.Console("helped")
	t.Log(out)
	if strings.Count(out, `"right"`) != 4 || !strings.Contains(out, "busy ended: 0") || !strings.Contains(out, "CUDA_ERROR_UNKNOWN") || !strings.Contains(out, "going on with the session of the agent before") {
		t.Error("not all that it computed is right")
	}
	h.Run("xl pause helped; sleep 1; xl unpause helped; xl destroy helped")
	h.Await(leftTime, "nothing is left", func() bool { return h.Run("probe left") == empty })
}
