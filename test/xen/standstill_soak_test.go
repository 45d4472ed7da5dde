//go:build soak

package xen

import (
	"testing"
	"time"
)

// Programs that start and end survive a standstill of their domU: a pause while one of them is just starting, which lasts longer
// than any timeout while the domU's clock goes on; and a save that fails because the target has no room.
func TestSoakXenStandstill(t *testing.T) {
	h := Start(t)
	h.Run(inDom0)
	startDaemon(t, h, stageConfig)
	h.Run("pegasus attach coming")
	h.Create("coming", withAgent+`
while :; do
	try
	echo "tried: $?"
done
`, "memory=192")
	says := func(what string) int { return h.Said("coming", what) }
	more := func(what string) {
		t.Helper()
		was := says("tried: 0")
		h.Await(takenTime, "programs compute: "+what, func() bool { return says("tried: 0") > was+2 })
		if all := says("tried: "); all != says("tried: 0") {
			t.Errorf("%s: a program has failed", what)
		}
	}
	more("at first")
	h.Run(`hub=$(ours "hub .*--domain coming "); kill -STOP $hub; sleep 4; xl pause coming; kill -CONT $hub`)
	stopped := says("tried: ")
	time.Sleep(30 * time.Second)
	if now := says("tried: "); now != stopped {
		t.Errorf("it isn't paused")
	}
	h.Run("xl unpause coming")
	more("paused while one was coming")
	h.Run("! xl save coming /dev/full")
	more("saved in vain")
	if t.Failed() {
		t.Log(h.Console("coming"))
	}
	h.Run("xl destroy coming")
	h.Await(takenTime, "nothing is left of it", func() bool { return h.Run("xl list | wc -l") == "2" })
}
