package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A machine is reverted to a snapshot, while its hub and its workers run. The memory that they share with the machine
// doesn't match their state any more: programs from the snapshot get an error, new ones are served.
func TestRevert(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Monitor: true, Job: waitForAgent + `
/bench/busy --seconds 3600 --queue 2 --no-check --quiet && echo "went on" || echo "lost its worker"
/bench/vectoradd --json
while :; do
	/bench/busy --seconds 3600 --queue 2 --no-check --quiet || echo "lost another"
	sleep 0.1
done
`})
	eventually(t, bootTime, "a program computes", func() bool { return h.domain("one").GPU > 0 })
	q, err := m.monitor()
	if err != nil {
		t.Fatal(err)
	}
	defer q.conn.Close()
	if err := q.addStore(h.path("store")); err != nil {
		t.Fatal(err)
	}
	if err := q.snapshot("save"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		used := h.domain("one").GPU
		eventually(t, bootTime, "a program computes", func() bool { return h.domain("one").GPU > used })
		if err := q.snapshot("load"); err != nil {
			t.Fatal(err)
		}
		eventually(t, bootTime, "new programs compute after the old one's error", func() bool {
			out := m.Output()
			return strings.Count(out, "lost its worker") == i+1 && strings.Count(out, `"right"`) == i+1 && h.domain("one").Processes == 1
		})
	}
	if out := m.Output(); strings.Contains(out, "went on") {
		t.Errorf("a program went on without its worker:\n%s", out)
	}
}

// A machine is saved and restored with its region in the stream. Accelerators aren't saved: a program that
// computed gets an error afterwards, which stays, and new programs are served.
func TestSave(t *testing.T) { t.Parallel(); save(t, "nvdimm") }

func save(t *testing.T, device string) {
	h := startHost(t, twoMachines)
	l := startLibvirt(h)
	l.device = device
	r := l.machine("one", `
for i in 1 2 3; do
	/bench/busy --seconds 3600 --queue 2 --no-check --quiet && echo "went on" || echo "lost its worker"
	/bench/vectoradd --json
done
`)
	saved := h.path("saved")
	l.run("virsh", "start", "one")
	for i, step := range []struct{ save, restore []string }{
		{[]string{"virsh", "save", "one", saved}, []string{"virsh", "restore", saved}},
		{[]string{"virsh", "managedsave", "one"}, []string{"virsh", "start", "one"}},
		{[]string{"virsh", "save", "one", saved, "--paused"}, []string{"virsh", "restore", saved, "--running"}},
	} {
		used := h.domain("one").GPU
		eventually(t, bootTime, "a program computes", func() bool { return h.domain("one").GPU > used })
		l.run(step.save...)
		if _, err := os.Stat(filepath.Join(h.regions, "one")); err == nil {
			t.Error("the region of a machine that was saved is left")
		}
		eventually(t, soon, "nothing is left of a machine that was saved", func() bool {
			d := h.domain("one")
			return d.Processes == 0 && d.Memory == 0
		})
		l.run(step.restore...)
		eventually(t, bootTime, "new programs compute after the old one's error", func() bool {
			return strings.Count(r.Output(), "lost its worker") == i+1 && strings.Count(r.Output(), `"right"`) == i+1
		})
	}
	eventually(t, bootTime, "the job ends", func() bool { return strings.Contains(r.Output(), "job ended: 0") })
}
