package vm

import (
	"strings"
	"testing"
)

// One user's programs are many more than a hub serves, and start while the daemon is away, so that no
// worker serves them. Another user's program goes on, and programs are served as soon as the crowd is gone.
func TestCrowd(t *testing.T) {
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Files: h.foe(), Monitor: true, Job: waitForAgent + withButton + `
/bench/busy --seconds 3600 --queue 2 --quiet --json >/tmp/busy && echo "went on" &
busy=$!
while [ $(ls /run/pegasus-guest/region | grep -c -e -1) != 1 ]; do sleep 0.1; done
pressed # the daemon is away
echo "the crowd comes"
su -s /bin/sh -c 'foe crowd 5' nobody
echo "the crowd is gone"
pressed # it is back
kill $(pidof busy)
wait $busy
cat /tmp/busy
/bench/vectoradd --quiet --json
`})
	eventually(t, bootTime, "a program computes", func() bool { return h.domain("one").GPU > 0 })
	q, err := m.monitor()
	if err != nil {
		t.Fatal(err)
	}
	defer q.conn.Close()
	press := func(until string) {
		t.Helper()
		eventually(t, bootTime, until, func() bool {
			if _, err := q.do("system_powerdown", nil); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(m.Output(), until)
		})
	}
	h.daemon.Process.Kill()
	h.daemon.Wait()
	press("the crowd comes")
	eventually(t, bootTime, "the crowd is gone", func() bool { return strings.Contains(m.Output(), "the crowd is gone") })
	h.start()
	press("went on")
	out := m.finish()
	if strings.Count(out, `"right"`) != 2 || !strings.Contains(out, "went on") {
		t.Errorf("another user's program suffered, or none is served afterwards:\n%s", out)
	}
	if log := h.log(); strings.Contains(log, "more processes than a hub serves") {
		t.Error("the hub ended the session")
	}
}
