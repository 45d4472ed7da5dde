package backend

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Groups that nobody is in are swept away, and their daemon doesn't miss them.
func TestCgroupSweep(t *testing.T) {
	const apart = 1 << 20 // no daemon has so many
	own, err := findCgroup(memoryController, apart)
	if err != nil {
		_, v2 := os.Stat(filepath.Join(cgroups, "cgroup.controllers"))
		if _, v1 := os.Stat(filepath.Join(cgroups, "memory")); v1 == nil || v2 == nil {
			t.Fatal(err)
		}
		return // a host without cgroups has none to sweep
	}
	t.Cleanup(func() { own.close() })
	used, _ := findCgroup(memoryController, apart+1)
	t.Cleanup(func() { used.close() })
	left, _ := findCgroup(memoryController, apart+2)
	t.Cleanup(func() { left.close() })
	if err := os.Mkdir(left.groupOf("web"), 0o755); err != nil {
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
		if err := g.enter("web", cmd.Process.Pid, limits{memory: 1 << 30}); err != nil {
			t.Error(err)
		}
	}
	enter(used)
	own.sweep()
	for _, c := range []struct {
		g    cgroup
		want bool
	}{{own, true}, {used, true}, {left, false}} {
		if _, err := os.Stat(c.g.dir); (err == nil) != c.want {
			t.Errorf("%s: %v", c.g.dir, err)
		}
	}
	enter(left)
}
