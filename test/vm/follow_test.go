package vm

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pegasus/policies"
	"pegasus/vcpu"
)

const following = `
[[accelerator]]
name   = "soft0"
type   = "soft"
memory = "256MiB"
cores  = 1
policy = "xc"
cpu_follows_gpu = true
[default_domain]
arena = "16MiB"
[[domain]]
name = "one"
[[domain]]
name = "three"
`

// shares is the CPU weight of a machine's libvirt cgroup, with its file.
type shares struct {
	t    *testing.T
	file string
}

func sharesOf(t *testing.T, name string) shares {
	t.Helper()
	for _, file := range []string{"/sys/fs/cgroup/cpu/machine/qemu-*-" + name + ".libvirt-qemu/cpu.shares", "/sys/fs/cgroup/machine/qemu-*-" + name + ".libvirt-qemu/cpu.weight"} {
		if all, _ := filepath.Glob(file); len(all) == 1 {
			return shares{t, all[0]}
		}
	}
	t.Fatalf("libvirt made no group for %s", name)
	return shares{}
}

func (s shares) get() int {
	s.t.Helper()
	text, err := os.ReadFile(s.file)
	n, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || err2 != nil {
		s.t.Fatal(err, err2)
	}
	return n
}

// Policies see the vCPUs of machines, by their threads, with the weights that libvirt
// set, although their groups' weights follow the accelerator. When the daemon dies the groups
// have the set weights again within a second, and a weight that an operator sets stays.
func TestCPUsOfMachines(t *testing.T) {
	h := startHost(t, following)
	l := startLibvirtWith(h, `"cpu", "cpuacct"`)
	l.useInDaemon()
	const job = "/bench/busy --seconds 3600 --steps 20000 --queue 4 --no-check --quiet\n"
	for _, name := range []string{"one", "three"} {
		l.machine("cpu-"+name, job)
	}
	for _, name := range []string{"one", "three"} {
		l.run("virsh", "start", "cpu-"+name)
	}
	l.run("virsh", "schedinfo", "cpu-three", "--live", "--set", "cpu_shares=3072")
	one, three := sharesOf(t, "cpu-one"), sharesOf(t, "cpu-three")
	plain := one.get()
	eventually(t, bootTime, "both compute", func() bool { return h.domain("cpu-one").GPU > 0 && h.domain("cpu-three").GPU > 0 })
	raised := func() bool {
		for range 1000 {
			if one.get() == 4*plain {
				return true
			}
			time.Sleep(time.Millisecond)
		}
		return false
	}
	eventually(t, soon, "a window raises", raised)
	for range 50 {
		if d := h.domain("cpu-three"); d.CPUWeight != 768 && d.CPUWeight != 0 || h.domain("cpu-one").CPUWeight != 256 {
			t.Fatalf("they weigh %d and %d", h.domain("cpu-one").CPUWeight, d.CPUWeight)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if d := h.domain("cpu-three"); d.VCPUs != 1 || d.VCPURan == 0 || d.Entitled < 0.74 || d.Entitled > 0.76 {
		t.Errorf("what is known of it: %+v", d)
	}
	if why, err := exec.Command(built(t, "bin/pegasus"), "why", "--runtime-dir", h.dir, "cpu-three").Output(); err != nil || !strings.Contains(string(why), "% waiting for its vCPUs, ") {
		t.Errorf("why it is as it is: %v\n%s", err, why)
	}

	h.stop()
	if one.get() != plain || three.get() != 3072 {
		t.Errorf("after the daemon they have %d and %d", one.get(), three.get())
	}
	h.start()
	eventually(t, soon, "a window raises again", raised)
	h.daemon.Process.Kill()
	h.daemon.Wait()
	died := time.Now()
	eventually(t, soon, "both have what was set", func() bool { return one.get() == plain && three.get() == 3072 })
	t.Logf("put back after %v", time.Since(died))
	l.run("virsh", "schedinfo", "cpu-three", "--live", "--set", "cpu_shares=1000")
	h.start()
	eventually(t, soon, "a window raises for the next daemon", raised)
	eventually(t, soon, "what was set meanwhile counts", func() bool { return h.domain("cpu-three").CPUWeight == 250 })

	if out, err := exec.Command(built(t, "bin/pegasus"), "policy", "--runtime-dir", h.dir, "cosched").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(built(t, "bin/pegasus"), "trace", "--runtime-dir", h.dir, "--seconds", "2").Output()
	if err != nil {
		t.Fatal(err)
	}
	samples, ran := 0, map[vcpu.ID]bool{}
	for line := range strings.Lines(string(out)) {
		var r policies.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Event == nil || r.Event.Kind != policies.Observe {
			continue
		}
		samples++
		for _, d := range r.Event.Sample.Domains {
			if len(d.VCPUs) != 1 || d.VCPUs[0].ID != 0 {
				t.Fatalf("a machine with one vCPU has %+v", d.VCPUs)
			}
			ran[d.ID] = ran[d.ID] || d.VCPUs[0].State == vcpu.Running
		}
	}
	if samples < 10 || len(ran) != 2 {
		t.Errorf("%d samples of %d machines", samples, len(ran))
	}
}
