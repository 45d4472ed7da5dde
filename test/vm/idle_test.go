package vm

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// pausingJob computes again and again after pauses in which all components fall asleep, and goes on doing so
// while the hub is away and with the next hub.
const pausingJob = `
pegasus-guest doctor
for i in 1 2; do sleep 2; /bench/vectoradd --quiet --json; done
echo "kill the hub"
for i in 3 1; do sleep $i; /bench/vectoradd --quiet --json; done
`

// A machine computes after it was idle, by a port that wakes its agent and hub, and without one.
func TestIdle(t *testing.T) {
	if _, err := Build(buildDir(t), cloudKernel); err != nil { // once for both
		t.Fatal(err)
	}
	for _, port := range []bool{true, false} {
		t.Run(map[bool]string{true: "port", false: "no port"}[port], func(t *testing.T) {
			t.Parallel() // they mostly sleep
			h := startHost(t, twoMachines)
			m := h.bootWith("one", pausingJob, port)
			eventually(t, bootTime, "it has computed after pauses", func() bool { return strings.Contains(m.Output(), "kill the hub") })
			h.killHub(m)
			out := m.finish()
			if n := len(regexp.MustCompile(`"result": *"right"`).FindAllString(out, -1)); n != 4 {
				t.Errorf("%d of 4 programs computed what is right:\n%s", n, out)
			}
			said := strings.Contains(out, "the host wakes us") && strings.Contains(out, "/dev/vport")
			if said != port || strings.Contains(h.log(), "has a port that wakes") != port {
				t.Errorf("whether there is a port isn't said:\n%s\n%s", out, h.log())
			}
		})
	}
}

// A machine may start before its host's daemon.
func TestHostComesLate(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	h.stop()
	m := h.boot("one", "sleep 3\n/bench/vectoradd --quiet --json\n")
	eventually(t, bootTime, "the agent looks", func() bool { return strings.Contains(m.Output(), "nothing wakes us") })
	h.start()
	if out := m.finish(); !strings.Contains(out, `"right"`) || !strings.Contains(out, "the host wakes us") {
		t.Errorf("it didn't compute, or nothing woke it:\n%s", out)
	}
}

func (h *host) log() string {
	text, _ := os.ReadFile(h.path("log"))
	return string(text)
}

// bootWith starts a machine with a port or without.
func (h *host) bootWith(name, job string, port bool) *machine {
	h.t.Helper()
	return h.bootMachine(name, Machine{Job: waitForAgent + job, NoPort: !port})
}
