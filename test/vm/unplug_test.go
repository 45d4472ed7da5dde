package vm

import (
	"os"
	"strings"
	"testing"
)

// The region is plugged into a running libvirt machine, and the machine's agent, which was there before, serves without
// a restart. The region is unplugged again, but not under a program; and plugged in again.
func TestPlug(t *testing.T) {
	t.Parallel()
	h := startHost(t, twoMachines)
	l := startLibvirt(h)
	dir := h.path("machine-one")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := Machine{Image: h.image, Dir: dir, Job: waitForSocket + withButton + `
for i in 1 2; do
	until pegasus-guest doctor >/tmp/doctor; do sleep 0.2; done
	/bench/vectoradd --json
	/bench/busy --seconds 3600 --queue 2 --no-check --quiet --json & busy=$!
	pressed
	kill $busy
	wait $busy && echo "went on"
	while ls -d /sys/bus/pci/devices/*/resource2_wc; do sleep 0.2; done
	sleep 1
	PEGASUS_LOG=error /bench/vectoradd --quiet || echo "without a region"
done
`}.Definition("one")
	if err != nil {
		t.Fatal(err)
	}
	text = strings.Replace(text, "q35", "pc", 1)
	text = strings.Replace(text, "</emulator>", "</emulator><controller type='virtio-serial' index='0'/>", 1)
	file := h.path("definition.xml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	l.run("virsh", "define", file)
	before := l.dump("one")
	r := l.running("one")
	l.run("virsh", "start", "one")
	eventually(t, bootTime, "the agent says why it serves nobody", func() bool { return strings.Contains(r.Output(), "programs aren't served") })
	for i := range 2 {
		l.attach("one", "has its region now", "--device", "ivshmem", "--live", "--memory", "64MiB")
		eventually(t, bootTime, "a program is right", func() bool { return strings.Count(r.Output(), `"right"`) > i })
		used := h.domain("one").GPU
		eventually(t, bootTime, "another computes", func() bool { d := h.domain("one"); return d.Processes == 1 && d.GPU > used })
		detach := []string{built(t, "bin/pegasus"), "detach", "one", "--live", "--regions", h.regions, "--runtime-dir", h.dir}
		if out, err := l.command(detach...).CombinedOutput(); err == nil || !strings.Contains(string(out), "end them first") {
			t.Errorf("unplugged under a program: %v, %s", err, out)
		}
		eventually(t, bootTime, "the program goes on until it is told to end", func() bool {
			l.run("virsh", "shutdown", "one", "--mode", "acpi")
			return strings.Count(r.Output(), "went on") > i
		})
		eventually(t, soon, "the program has ended", func() bool { return h.domain("one").Processes == 0 })
		l.run(detach...)
		if _, err := os.Stat(h.regions + "-one"); err == nil {
			t.Error("its memory is left")
		}
		eventually(t, soon, "its hub has ended", func() bool { return len(h.hubs()) == 0 })
		eventually(t, bootTime, "programs are told that there is no region", func() bool {
			return strings.Count(r.Output(), "without a region") > i
		})
		if after := l.dump("one"); after != before {
			t.Errorf("detached:\n%s\nwas:\n%s", after, before)
		}
	}
	eventually(t, bootTime, "the job ends", func() bool { return strings.Contains(r.Output(), "job ended: 0") })
	if out := r.Output(); !strings.Contains(out, "the host wakes us") || !strings.Contains(out, "the region was unplugged") {
		t.Error("no port, or the agent didn't see that the region was unplugged")
	}
}

// A machine's region is unplugged under a program that computes: the program ends, and the agent goes on,
// also if it was away at the unplugging.
func TestUnplugUnderProgram(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]string{"an agent": "", "no agent": "kill -9 $agent; (sleep 3; pegasus-guest agent) &\n"} {
		t.Run(name, func(t *testing.T) {
			h := startHost(t, twoMachines)
			m := h.bootMachine("one", Machine{Kind: Variant{Machine: "pc"}, Shared: true, Monitor: true, Job: waitForShared + `
/bench/busy --seconds 3600 --queue 2 --no-check --quiet & p=$!
sleep 3
` + before + `
echo computing
wait $p && echo "went on" || echo "lost its worker"
PEGASUS_LOG=error /bench/vectoradd --quiet || echo "without a region"
`})
			eventually(t, bootTime, "a program computes", func() bool { return strings.Contains(m.Output(), "computing") && h.domain("one").GPU > 0 })
			q, err := m.monitor()
			if err != nil {
				t.Fatal(err)
			}
			defer q.conn.Close()
			if _, err := q.do("device_del", map[string]any{"id": "shared"}); err != nil {
				t.Fatal(err)
			}
			out := m.finish()
			for _, want := range []string{"lost its worker", "without a region"} {
				if !strings.Contains(out, want) {
					t.Errorf("no %q:\n%s", want, out)
				}
			}
		})
	}
}
