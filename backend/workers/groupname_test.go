package workers

import (
	"testing"
)

// No domain's group has the name of a kernel file.
func TestGroupNames(t *testing.T) {
	g := cgroup{dir: "/sys/fs/cgroup/pegasus"}
	for _, name := range []string{"cgroup.procs", "memory.max", "cpu.shares", "tasks"} {
		if dir := g.groupOf(name); dir != "/sys/fs/cgroup/pegasus.domain-"+name {
			t.Errorf("group of %s: %s", name, dir)
		}
	}
}
