package vm

import (
	"strings"
	"testing"
)

// One user's programs are many more than a hub serves, and come while nobody serves them: the
// daemon is away. Another user's program goes on, and programs are served as soon as the crowd is gone.
func TestCrowd(t *testing.T) {
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Files: h.foe(), Job: waitForAgent + `
/bench/busy --seconds 17 --queue 2 --quiet --json >/tmp/busy && echo "went on" &
busy=$!
while [ $(ls /run/pegasus-guest/region | grep -c -e -1) != 1 ]; do sleep 0.1; done
sleep 3 # the daemon is killed
su -s /bin/sh -c 'foe crowd 5' nobody
echo "the crowd is gone"
wait $busy
cat /tmp/busy
/bench/vectoradd --quiet --json
`})
	eventually(t, bootTime, "a program computes", func() bool { return h.domain("one").GPU > 0 })
	h.daemon.Process.Kill()
	h.daemon.Wait()
	eventually(t, bootTime, "the crowd is gone", func() bool { return strings.Contains(m.Output(), "the crowd is gone") })
	h.start()
	out := m.finish()
	if strings.Count(out, `"right"`) != 2 || !strings.Contains(out, "went on") {
		t.Errorf("another user's program suffered, or none is served afterwards:\n%s", out)
	}
	if log := h.log(); strings.Contains(log, "more processes than a hub serves") {
		t.Error("the hub ended the session")
	}
}
