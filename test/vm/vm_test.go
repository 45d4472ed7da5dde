package vm

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

// CUDA programs of any user in a virtual machine compute on the host's accelerator;
// several at once, with memory that both sides see at one address, and nothing
// of them is left afterwards.
func TestPrograms(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.boot("one", `
set -e
PEGASUS_LOG=info /bench/vectoradd --json
su -s /bin/sh -c '/bench/blackscholes --size 65536 --json' nobody
/bench/srad --quiet --json
for i in 1 2 3; do (/bench/reduction --quiet --json || echo failed) & all="$all $!"; done
wait $all
pegasus-guest doctor
echo left: $(stays)
`)
	out := m.finish()
	if n := len(regexp.MustCompile(`"result": *"right"`).FindAllString(out, -1)); n != 6 || strings.Contains(out, "failed") {
		t.Errorf("%d of 6 programs computed what is right:\n%s", n, out)
	}
	if strings.Contains(out, "not shared") || !strings.Contains(out, "arena at 0x") {
		t.Errorf("its pinned memory isn't at one address on both sides:\n%s", out)
	}
	if !strings.Contains(out, "left: \n") && !strings.Contains(out, "left:\n") {
		t.Errorf("call buffers are left of programs that ended:\n%s", out)
	}
	if d := h.domain("one"); d.GPU == 0 || d.Calls == 0 {
		t.Errorf("the domain used nothing: %+v", d)
	}
	eventually(t, soon, "no process and no memory are left", func() bool {
		d := h.domain("one")
		return d.Processes == 0 && d.Memory == 0
	})
}

// A machine that loses its power leaves nothing behind, and another goes on.
func TestPower(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	const job = "/bench/busy --seconds 3600 --queue 4 --no-check --quiet\n"
	h.boot("one", job)
	three := h.boot("three", job)
	eventually(t, bootTime, "both compute", func() bool { return h.domain("one").GPU > 0 && h.domain("three").GPU > 0 })
	three.Kill()
	three.Wait()
	three.remove()
	eventually(t, soon, "nothing is left of a machine without power", func() bool {
		d := h.domain("three")
		return d.Processes == 0 && d.Memory == 0
	})
	used := h.domain("one").GPU
	eventually(t, soon, "the other machine computes", func() bool { return h.domain("one").GPU > used })
}

// A machine's programs go on while the daemon is away, and find the next one. When the
// hub dies, those that run get an error, and the next are served by another hub.
func TestDeaths(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.boot("one", `
/bench/busy --seconds 6 --queue 2 --no-check --quiet --json && echo "went on"
echo "kill the hub"
/bench/busy --seconds 60 --queue 2 --no-check --quiet >/dev/null 2>&1 || echo "lost its worker"
/bench/vectoradd --quiet --json
`)
	running := func() bool { return h.domain("one").Processes == 1 }
	used := int64(0)
	computes := func() bool { d := h.domain("one"); return d.Processes == 1 && d.GPU > used }
	eventually(t, bootTime, "a program computes", computes)
	h.daemon.Process.Kill()
	h.daemon.Wait()
	time.Sleep(time.Second)
	h.start()
	eventually(t, soon, "the new daemon knows the machine's worker", running)
	eventually(t, bootTime, "the program went on", func() bool { return strings.Contains(m.Output(), "kill the hub") })
	used = h.domain("one").GPU
	eventually(t, soon, "the next program computes", computes)
	h.killHub(m)
	out := m.finish()
	for _, want := range []string{"went on", "lost its worker", `"right"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
}
