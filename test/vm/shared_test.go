package vm

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// CUDA programs of any user compute in a machine with a PCI device as its region, with pinned memory at one address
// on both sides; several at once; and nothing is left of them afterwards.
func TestShared(t *testing.T) {
	t.Parallel()
	for _, v := range []Variant{{Machine: "q35"}, {Machine: "pc", Kernel: fullKernel}} {
		t.Run(v.String(), func(t *testing.T) {
			h := startHost(t, twoMachines)
			image, err := Build(buildDir(t), v.kernel())
			if err != nil {
				t.Fatal(err)
			}
			m := h.bootMachine("one", Machine{Image: image, Kind: v, Shared: true, Job: waitForShared + `
set -e
PEGASUS_LOG=info /bench/vectoradd --json
su -s /bin/sh -c '/bench/blackscholes --size 65536 --json' nobody
/bench/srad --quiet --json
for i in 1 2 3; do (/bench/reduction --quiet --json || echo failed) & all="$all $!"; done
wait $all
pegasus-guest doctor
echo left: $(stays)
`})
			out := m.finish()
			if n := len(regexp.MustCompile(`"result": *"right"`).FindAllString(out, -1)); n != 6 || strings.Contains(out, "failed") {
				t.Errorf("%d of 6 programs computed what is right:\n%s", n, out)
			}
			if strings.Contains(out, "not shared") || !strings.Contains(out, "arena at 0x") {
				t.Errorf("its pinned memory isn't at one address on both sides:\n%s", out)
			}
			if !strings.Contains(out, "left: 0\n") {
				t.Errorf("call buffers are left of programs that ended:\n%s", out)
			}
			if d := h.domain("one"); d.GPU == 0 || d.Calls == 0 {
				t.Errorf("the domain used nothing: %+v", d)
			}
			eventually(t, soon, "no process and no memory are left", func() bool {
				d := h.domain("one")
				return d.Processes == 0 && d.Memory == 0
			})
		})
	}
}

// Such a machine is saved and restored with its region in the stream, as others are.
func TestSaveShared(t *testing.T) { t.Parallel(); save(t, "ivshmem") }

// Programs of such a machine go on while its agent and the daemon are away, and when the hub dies they get an error;
// the next agent and the next hub serve new ones, and still account for the memory that was handed out before.
func TestSharedDeaths(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Shared: true, Job: waitForShared + `
/bench/busy --seconds 16 --queue 2 --no-check --quiet --json && echo "went on" &
busy=$!
/bench/busy --seconds 3600 --queue 2 --no-check --quiet &
victim=$!
until [ $(left) = 2 ]; do sleep 0.1; done
sleep 2
kill -9 $agent
kill -9 $victim
echo "agent killed"
sleep 3
/bench/vectoradd --json &
late=$!
sleep 0.3 # it waits for 5 s at most, and agents take long to begin on a slow machine
pegasus-guest agent &
wait $late
/bench/vectoradd --json
until [ $(left) -le 1 ]; do sleep 0.1; done # the one that goes on
wait $busy
echo "kill the hub"
/bench/busy --seconds 60 --queue 2 --no-check --quiet >/dev/null 2>&1 || echo "lost its worker"
/bench/vectoradd --quiet --json
echo left: $(stays)
`})
	used := int64(0)
	computes := func() bool { d := h.domain("one"); return d.Processes > 0 && d.GPU > used }
	eventually(t, bootTime, "the agent is killed", func() bool { return strings.Contains(m.Output(), "agent killed") })
	h.daemon.Process.Kill()
	h.daemon.Wait()
	h.start()
	used = h.domain("one").GPU
	eventually(t, soon, "a program computes without an agent", computes)
	eventually(t, bootTime, "the program went on", func() bool { return strings.Contains(m.Output(), "kill the hub") })
	used = h.domain("one").GPU
	eventually(t, soon, "the next program computes", computes)
	h.killHub(m)
	out := m.finish()
	for _, want := range []string{"went on", "going on with the session", "lost its worker", "left: 0\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, `"right"`); n != 3 {
		t.Errorf("%d of 3 programs computed what is right:\n%s", n, out)
	}
}

// A machine that is reset keeps its memory and its hub; the agent of the new boot begins anew.
func TestResetShared(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Kind: Variant{Machine: "pc"}, Shared: true, Monitor: true, Reboot: true, Job: waitForShared + `
/bench/vectoradd --json
/bench/busy --seconds 3600 --queue 2 --no-check --quiet
`})
	for i := range 2 {
		eventually(t, bootTime, "a program is right", func() bool { return strings.Count(m.Output(), `"right"`) > i })
		used := h.domain("one").GPU
		eventually(t, bootTime, "another computes", func() bool { d := h.domain("one"); return d.Processes == 1 && d.GPU > used })
		if i > 0 {
			break
		}
		q, err := m.monitor()
		if err != nil {
			t.Fatal(err)
		}
		defer q.conn.Close()
		if _, err := q.do("system_reset", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Attaching a running libvirt machine that has no slot for the device fails with that reason, and the machine has the
// device from its next start on, in the default size.
func TestSharedAtNextStart(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	l := startLibvirt(h)
	l.device = "ivshmem"
	r := l.machine("one", `
/bench/vectoradd --json
`)
	pegasus := built(t, "bin/pegasus")
	l.run(pegasus, "detach", "one", "--regions", h.regions)
	l.run("virsh", "start", "one")
	out, err := l.command(pegasus, "attach", "one", "--device", "ivshmem", "--live", "--regions", h.regions).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "from its next start on") {
		t.Errorf("plugged into a q35 machine: %v, %s", err, out)
	}
	t.Logf("%s", out)
	if left, _ := filepath.Glob(h.regions + "-*"); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	l.run("virsh", "destroy", "one")
	l.run("virsh", "start", "one")
	eventually(t, bootTime, "a program is right", func() bool { return strings.Contains(r.Output(), `"right"`) })
	if !strings.Contains(r.Output(), "bytes=536870912") {
		t.Error("another size")
	}
	eventually(t, bootTime, "the job ends", func() bool { return strings.Contains(r.Output(), "job ended: 0") })
	eventually(t, soon, "nothing is left", func() bool {
		left, _ := filepath.Glob(h.regions + "-*")
		return len(left) == 0 && len(h.hubs()) == 0
	})
}
