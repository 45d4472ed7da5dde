//go:build soak

package vm

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Libvirt pauses a machine again and again, for longer than the timeouts of daemon, hub and worker:
// neither running programs nor those that are just starting get an error.
func TestSoakPause(t *testing.T) {
	h := startHost(t, twoMachines)
	l := startLibvirt(h)
	r := l.machine("one", `
(/bench/busy --seconds 60 --queue 2 --no-check --quiet && echo "went on") &
busy=$!
i=0
while [ $i -lt 30 ]; do
	/bench/vectoradd --quiet --json & a=$!
	/bench/vectoradd --quiet --json & b=$!
	wait $a || echo failed
	wait $b || echo failed
	i=$((i+1))
done
wait $busy
`)
	l.run("virsh", "start", "one")
	computed := func() int { return strings.Count(r.Output(), `"right"`) }
	eventually(t, bootTime, "programs compute", func() bool { return computed() > 0 })
	for _, s := range []int{0, 35, 25, 12} {
		before := computed()
		eventually(t, bootTime, "programs go on", func() bool { return computed() > before+2 })
		time.Sleep(time.Duration(10*s) * time.Millisecond) // somewhere else on the way
		l.run("virsh", "suspend", "one")
		time.Sleep(time.Duration(s) * time.Second)
		l.run("virsh", "resume", "one")
	}
	eventually(t, 4*bootTime, "the job ends", func() bool { return strings.Contains(r.Output(), "job ended: 0") })
	if out := r.Output(); computed() != 60 || strings.Contains(out, "failed") || !strings.Contains(out, "went on") {
		t.Errorf("%d of 60 programs computed what is right:\n%s", computed(), out)
	}
}

// A machine corrupts the shared memory for SOAKTIME.
func TestSoakScribble(t *testing.T) { scribble(t, soakTime(t), Machine{}) }

// A foe that sends an agent's messages without end is served no faster than other agents.
func TestSoakFlood(t *testing.T) { hostile(t, soakTime(t), Machine{}, "kill -9 $agent\n", "flood") }

// soakTime returns the time that a test may take, from SOAKTIME.
func soakTime(t *testing.T) time.Duration {
	s := os.Getenv("SOAKTIME")
	if s == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
