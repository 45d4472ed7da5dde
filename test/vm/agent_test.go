package vm

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// The machine's agent is killed, and another one starts. Running programs continue, also
// while there is no agent; the next agent serves the programs that start meanwhile, or are just starting; of
// those that end meanwhile nothing is left. A second agent exits with an error.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.boot("one", `
set -e
PEGASUS_LOG=info /bench/busy --seconds 16 --queue 2 --no-check --quiet --json >/tmp/busy 2>&1 && echo "went on" &
busy=$!
/bench/busy --seconds 3600 --queue 2 --no-check --quiet &
victim=$!
while [ $(ls /run/pegasus-guest/region | grep -c -e -1 -e -2) != 2 ]; do sleep 0.1; done
sleep 2
pegasus-guest agent && echo "two agents"
kill -9 $agent
kill -9 $victim
echo "agent killed"
sleep 3
/bench/vectoradd --json &
late=$!
sleep 0.3 # it waits for 5 s at most, and agents take long to begin on a slow machine
pegasus-guest agent &
agent=$!
wait $late
for i in 1 2 3 4; do
	/bench/vectoradd --json & a=$!
	/bench/vectoradd --json & b=$!
	sleep 0.$i
	kill -9 $agent
	wait $agent || true # its lock goes with it, some time after the signal
	pegasus-guest agent & agent=$!
	wait $a
	wait $b
done
wait $busy
cat /tmp/busy
echo left: $(stays)
`)
	eventually(t, bootTime, "the agent is killed", func() bool { return strings.Contains(m.Output(), "agent killed") })
	time.Sleep(time.Second)
	used := h.domain("one").GPU
	eventually(t, soon, "a program computes without an agent", func() bool { return h.domain("one").GPU > used })
	out := m.finish()
	for _, want := range []string{"went on", "the machine's agent has changed"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
	if n := len(regexp.MustCompile(`"result": *"right"`).FindAllString(out, -1)); n != 9 || strings.Contains(out, "two agents") {
		t.Errorf("%d of 9 programs computed what is right:\n%s", n, out)
	}
	if !regexp.MustCompile("(?m)^left: *$").MatchString(out) {
		t.Errorf("call buffers are left of programs that ended:\n%s", out)
	}
	eventually(t, soon, "no process and no memory are left", func() bool {
		d := h.domain("one")
		return d.Processes == 0 && d.Memory == 0
	})
}

// Agent and hub die together: programs get an error, though neither is there to report it, and
// the next agent begins a session with the next hub.
func TestAgentAndHubDie(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.boot("one", `
/bench/busy --seconds 3600 --queue 2 --no-check --quiet && echo "went on" || echo "lost its worker" &
busy=$!
while [ $(ls /run/pegasus-guest/region | grep -c -e -1) != 1 ]; do sleep 0.1; done
sleep 1
kill -9 $agent
echo "agent killed"
wait $busy
pegasus-guest agent &
/bench/vectoradd --json
`)
	eventually(t, bootTime, "the agent is killed", func() bool { return strings.Contains(m.Output(), "agent killed") })
	h.killHub(m)
	if out := m.finish(); !strings.Contains(out, "lost its worker") || !strings.Contains(out, `"right"`) {
		t.Errorf("no error, or no new session:\n%s", out)
	}
}
