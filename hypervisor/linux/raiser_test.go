package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pegasus/hypervisor"
	"pegasus/hypervisor/weightjournal"
)

// group creates a cgroup, with the given processes.
func (k kernel) group(path, file string, weight int, pids ...int) {
	k.t.Helper()
	k.write(path+"/"+file, fmt.Sprintln(weight))
	procs := ""
	for _, pid := range pids {
		procs += fmt.Sprintln(pid)
	}
	k.write(path+"/cgroup.procs", procs)
}

func (k kernel) has(path string, want int) {
	k.t.Helper()
	text, _ := os.ReadFile(filepath.Join(k.dir, path))
	if got := strings.TrimSpace(string(text)); got != strconv.Itoa(want) {
		k.t.Errorf("%s has %s, not %d", path, got, want)
	}
}

func (k kernel) raiser(c *CPUs) *Raiser { return c.Raiser(filepath.Join(k.dir, "raised")) }

func (k kernel) records() int {
	all, _ := filepath.Glob(filepath.Join(k.dir, "raised/*"))
	return len(all)
}

func vm(domain string, pid int) hypervisor.Guests {
	return hypervisor.Guests{Domain: domain, Processes: []int{pid}, VM: true}
}

// The groups that machines have to themselves: as libvirt creates them, with systemd and without, of both versions,
// and as systemd-run does.
func TestMachineGroups(t *testing.T) {
	k := kernel{t, t.TempDir()}
	const scope = "machine.slice/machine-qemu\\x2d1\\x2dv2.scope"
	k.group("cgroup/machine.slice", "cpu.weight", 100)
	k.group("cgroup/"+scope, "cpu.weight", 200)
	k.group("cgroup/"+scope+"/libvirt", "cpu.weight", 100)
	k.group("cgroup/"+scope+"/libvirt/emulator", "cpu.weight", 100, 1)
	k.process(1, 0, "0::/"+scope+"/libvirt/emulator\n")
	k.group("cgroup/machine.slice/other.scope", "cpu.weight", 300)
	k.write("cgroup/machine.slice/other.scope/cpu.stat", "usage_usec 1000\n")
	k.group("cgroup/machine.slice/resting.scope", "cpu.weight", 400)
	k.write("cgroup/machine.slice/resting.scope/cpu.stat", "usage_usec 1000\n")
	k.group("cgroup/cpu/machine/qemu-1-v1.libvirt-qemu", "cpu.shares", 2048)
	k.group("cgroup/cpu/machine/qemu-1-v1.libvirt-qemu/emulator", "cpu.shares", 1024, 2)
	k.process(2, 0, "3:cpu,cpuacct:/machine/qemu-1-v1.libvirt-qemu/emulator\n0::/\n")
	k.group("cgroup/run.scope", "cpu.weight", 50, 3)
	k.process(3, 0, "0::/run.scope\n")
	k.group("cgroup/user.slice", "cpu.weight", 50, 4, 40)
	k.process(4, 0, "0::/user.slice\n")
	k.group("cgroup/given.scope", "cpu.weight", 50, 5)
	os.Chmod(filepath.Join(k.dir, "cgroup/given.scope/cpu.weight"), 0o666)
	k.process(5, 0, "0::/given.scope\n")
	k.process(6, 0, "0::/\n")
	k.process(7, 0, "0::/run.scope\n") // of the one process that its record has, while another one is in there
	k.write("cgroup/idle.scope/cgroup.procs", "8\n")
	k.process(8, 0, "0::/idle.scope\n") // without the controller

	r := k.raiser(k.cpus(1))
	all := []hypervisor.Guests{vm("v2", 1), vm("v1", 2), vm("run", 3), vm("user", 4), vm("given", 5), vm("root", 6), vm("second", 7), vm("none", 8), guests(3)[0]}
	at := func(path string) string { return filepath.Join(k.dir, "cgroup", path) }
	want := []hypervisor.Group{
		{Domain: "v2", Parent: at("machine.slice"), Weight: 200, Has: 200, Least: 1, Most: 10000},
		{Domain: "v1", Parent: at("cpu/machine"), Weight: 2048, Has: 2048, Least: 2, Most: 1 << 18},
		{Domain: "run", Parent: at(""), Weight: 50, Has: 50, Least: 1, Most: 10000},
	}
	got := r.Groups(all)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v\nnot\n%+v", got, want)
	}
	k.write("cgroup/machine.slice/other.scope/cpu.stat", "usage_usec 900000000\n")
	if got := r.Groups(all); got[0].Others != 300 {
		t.Errorf("of its neighbours the one that computes weighs 300: %+v", got[0])
	}
}

// A weight of ours never counts as the configured one; another program's weight stays.
func TestRaise(t *testing.T) {
	for version, file := range map[string]string{"cgroup/one": "cpu.weight", "cgroup/cpu/one": "cpu.shares"} {
		k := kernel{t, t.TempDir()}
		path := version + "/" + file
		k.group(version, file, 100, 1)
		k.process(1, 0, map[string]string{"cpu.weight": "0::/one\n", "cpu.shares": "1:cpu:/one\n"}[file])
		c := k.cpus(1)
		r, of := k.raiser(c), []hypervisor.Guests{vm("one", 1)}
		plain := c.Weights(of)[0]
		set := func(want int64) {
			t.Helper()
			if all := r.Groups(of); len(all) != 1 || all[0].Weight != want {
				t.Fatalf("%+v, want %d", all, want)
			}
		}
		raise := func(weight int64, changed bool) {
			t.Helper()
			if was, err := r.Raise("one", weight); err != nil || was != changed {
				t.Fatalf("%d: %v, %v", weight, was, err)
			}
		}
		set(100)
		if k.records() != 0 {
			t.Error("something is written down before anything is changed")
		}
		raise(400, false)
		k.has(path, 400)
		set(100)
		if g := r.Groups(of)[0]; g.Has != 400 {
			t.Errorf("raised it is %+v", g)
		}
		if w := c.Weights(of)[0]; w != plain {
			t.Errorf("its weight is %+v, not %+v", w, plain)
		}
		raise(25, false)
		k.has(path, 25)
		if text := r.plain(filepath.Join(k.dir, path), "400"); text != "100" { // read before it was lowered
			t.Errorf("what it had a moment ago passes for set: %s", text)
		}
		if k.records() != 1 {
			t.Errorf("%d records", k.records())
		}
		k.write(path, "300\n") // another program sets that
		raise(100, true)
		k.has(path, 300)
		set(300)
		if k.records() != 0 {
			t.Error("what was set before is written down still")
		}
		raise(1200, false)
		raise(300, false)
		k.has(path, 300)
		raise(1200, false)
		k.write(path, "77\n")
		set(77)
		if w := c.Weights(of)[0]; w.Credits == plain.Credits {
			t.Errorf("its weight is still %+v", w)
		}
		raise(308, false)
		r.Restore()
		k.has(path, 77)
		if k.records() != 0 {
			t.Error("a record is left")
		}
		set(77)
		raise(308, false)
		os.RemoveAll(filepath.Join(k.dir, version)) // the machine is switched off
		if _, err := r.Raise("one", 77); err == nil {
			t.Error("a group that is gone can be raised")
		}
		if all := r.Groups(of); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		r.Restore()
		if k.records() != 0 {
			t.Error("a record is left of a machine that is off")
		}
	}
}

// A weight that a dead daemon left changed is restored; one that another program has set since stays.
func TestPutBack(t *testing.T) {
	k := kernel{t, t.TempDir()}
	const path = "cgroup/one/cpu.weight"
	r := weightjournal.Record{File: filepath.Join(k.dir, path), Set: 100, Ours: []int64{400, 25}}
	if put, err := PutBack(r); put || err != nil {
		t.Errorf("into a machine that is off: %v, %v", put, err)
	}
	for has, want := range map[int]int{400: 100, 25: 100, 300: 300, 100: 100} {
		k.group("cgroup/one", "cpu.weight", has)
		put, err := PutBack(r)
		if err != nil || put != (has != want) {
			t.Errorf("over %d: %v, %v", has, put, err)
		}
		k.has(path, want)
	}
	k.write(path, "0\n")
	if put, err := PutBack(r); put || err != nil {
		t.Errorf("over one that somebody has set idle: %v, %v", put, err)
	}
	k.write(path, "")
	if put, err := PutBack(r); put || err == nil {
		t.Errorf("where nothing can be read: %v, %v", put, err)
	}
}

// The same with the kernel's cgroups.
func TestRaiseInKernel(t *testing.T) {
	if os.Getuid() != 0 {
		t.Fatal("run the tests as root: this one makes a cgroup")
	}
	m := machine{Name: "m", VCPUs: 1, Weight: 512}
	m.start(t)
	c := NewCPUs(discard, nil)
	r := c.Raiser(t.TempDir())
	of := []hypervisor.Guests{m.guests()}
	groups := r.Groups(of)
	if len(groups) != 1 || groups[0].Weight < 200 {
		t.Fatalf("%+v", groups)
	}
	before := c.Weights(of)[0]
	if changed, err := r.Raise("m", 4*groups[0].Weight); err != nil || changed {
		t.Fatal(changed, err)
	}
	if w := c.Weights(of)[0]; w != before {
		t.Errorf("raised it has %+v, not %+v", w, before)
	}
	r.Restore()
	if again := r.Groups(of); len(again) != 1 || again[0] != groups[0] {
		t.Errorf("afterwards %+v, not %+v", again, groups)
	}
}

// BenchmarkRaise measures a change of weight.
func BenchmarkRaise(b *testing.B) {
	dir := filepath.Join("/sys/fs/cgroup/cpu", fmt.Sprintf("pegasus-bench-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		b.Skip(err)
	}
	defer os.Remove(dir)
	r := NewCPUs(discard, nil).Raiser(b.TempDir())
	file := filepath.Join(dir, "cpu.shares")
	if _, _, err := r.weights.See("m", weightjournal.Record{File: file}, groupWeight(file)); err != nil {
		b.Fatal(err)
	}
	if _, err := r.Raise("m", 4096); err != nil {
		b.Fatal(err)
	}
	for i := int64(0); b.Loop(); i++ {
		if _, err := r.Raise("m", 256+4096*(i%2)); err != nil {
			b.Fatal(err)
		}
	}
}
