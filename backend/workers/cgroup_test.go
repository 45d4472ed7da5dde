package workers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"pegasus/backend/control"
)

// Empty groups are swept away, and their daemon makes them again when needed.
func TestCgroupSweep(t *testing.T) {
	own, err := findCgroup(memoryController, groupsOf(t.TempDir()))
	if err != nil {
		_, v2 := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
		if _, v1 := os.Stat(filepath.Join(cgroups, "memory")); v1 == nil || v2 == nil {
			t.Fatal(err)
		}
		return // a host without cgroups has none to sweep
	}
	t.Cleanup(func() { own.close() })
	used, _ := findCgroup(memoryController, groupsOf(t.TempDir()))
	t.Cleanup(func() { used.close() })
	left, _ := findCgroup(memoryController, groupsOf(t.TempDir()))
	t.Cleanup(func() { left.close() })
	if err := os.Mkdir(left.groupOf("web"), 0o755); err != nil {
		t.Fatal(err)
	}
	former := left.dir // with nested groups, of an earlier release
	if err := os.MkdirAll(filepath.Join(former, "domain-web"), 0o755); err != nil {
		t.Fatal(err)
	}
	enter := func(g cgroup) {
		t.Helper()
		cmd := exec.Command("cat")
		if _, err := cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		if err := g.enter("web", cmd.Process.Pid, Limits{Memory: 1 << 30}); err != nil {
			t.Error(err)
		}
	}
	enter(used)
	for range 10 { // the sweep of another daemon on this host may remove the empty group
		if err := mkdir(own.spares()); err != nil {
			t.Fatal(err)
		}
		own.sweep()
		if _, err := os.Stat(own.spares()); err == nil {
			break
		}
	}
	for _, c := range []struct {
		dir  string
		want bool
	}{{own.spares(), true}, {used.groupOf("web"), true}, {left.groupOf("web"), false}, {left.spares(), false}, {former, false}} {
		if _, err := os.Stat(c.dir); (err == nil) != c.want {
			t.Errorf("%s: %v", c.dir, err)
		}
	}
	enter(left)
}

// The groups of two daemons have different names, and sweeps find them.
func TestGroupsOfDaemons(t *testing.T) {
	if got := groupsOf(control.SystemDir); got != "pegasus" {
		t.Errorf("groups of the host's daemon: %s, want pegasus", got)
	}
	owner := make(map[string]string)
	for i := range 20_000 {
		dir := fmt.Sprintf("/run/user/%d/pegasus", i)
		name := groupsOf(dir)
		if other, taken := owner[name]; taken {
			t.Fatalf("groups of %s and of %s: both %s", dir, other, name)
		}
		owner[name] = dir
		for _, of := range []string{"", ".spare", ".domain-web"} {
			if found := cgroupName.FindStringSubmatch(name + of); found == nil || found[1] != name {
				t.Fatalf("group %s: found as %q, want %s", name+of, found, name)
			}
		}
	}
}

// The limits as written to the files of both versions of cgroups.
func TestCgroupFiles(t *testing.T) {
	all := []Limits{{Memory: 1 << 30, Credits: 256}, {Memory: 5, Credits: 65535, CPU: 10}, {Credits: 1, CPU: 250}}
	for _, c := range []struct {
		g    cgroup
		want []map[string]string
	}{
		{cgroup{controller: memoryController, v2: true}, []map[string]string{{"memory.max": "1073741824"}, {"memory.max": "5"}, {"memory.max": "0"}}},
		{cgroup{controller: memoryController}, []map[string]string{{"memory.limit_in_bytes": "1073741824"}, {"memory.limit_in_bytes": "5"}, {"memory.limit_in_bytes": "0"}}},
		{cgroup{controller: cpuController, v2: true}, []map[string]string{
			{"cpu.weight": "100", "cpu.max": "max 10000"}, {"cpu.weight": "10000", "cpu.max": "1000 10000"}, {"cpu.weight": "1", "cpu.max": "25000 10000"}}},
		{cgroup{controller: cpuController}, []map[string]string{
			{"cpu.shares": "1024", "cpu.cfs_quota_us": "-1"}, {"cpu.shares": "262140", "cpu.cfs_quota_us": "1000", "cpu.cfs_period_us": "10000"}, {"cpu.shares": "4", "cpu.cfs_quota_us": "25000"}}},
	} {
		c.g.dir = t.TempDir()
		dir := c.g.groupOf("web")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i, l := range all {
			if err := c.g.limit("web", l); err != nil {
				t.Fatal(err)
			}
			for file, want := range c.want[i] {
				if got, err := os.ReadFile(filepath.Join(dir, file)); string(got) != want {
					t.Errorf("%+v: %s is %q, %v; want %q", l, file, got, err, want)
				}
			}
		}
	}
}

// No domain's group has the name of a kernel file.
func TestGroupNames(t *testing.T) {
	g := cgroup{dir: "/sys/fs/cgroup/pegasus"}
	for _, name := range []string{"cgroup.procs", "memory.max", "cpu.shares", "tasks"} {
		if dir := g.groupOf(name); dir != "/sys/fs/cgroup/pegasus.domain-"+name {
			t.Errorf("group of %s: %s", name, dir)
		}
	}
}
