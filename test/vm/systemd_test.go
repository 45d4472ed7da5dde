package vm

import (
	"path/filepath"
	"strings"
	"testing"

	"pegasus/test/image"
)

// systemdDisk makes a disk with the host's systemd. Its init lays that over the files in the
// machine's memory, installs Pegasus, as an operator does before the next boot, and starts systemd. The job
// starts last.
func systemdDisk(build string) (string, error) {
	const dir = "/lib/systemd"
	c := image.NewContents()
	for _, program := range []string{dir + "/systemd", "/bin/systemctl"} {
		c.Add(program, program)
	}
	if err := c.AddNeeds(); err != nil {
		return "", err
	}
	targets, err := filepath.Glob(dir + "/system/*.target")
	if err != nil {
		return "", err
	}
	for _, t := range targets {
		c.Add(t, t)
	}
	c.Texts["/init"] = `#!/bin/busybox sh
cp -a /mnt/. /
pegasus-guest install || exit
exec /lib/systemd/systemd
`
	c.Texts["/etc/systemd/system/default.target"] = "[Unit]\nRequires=multi-user.target\nWants=job.service\nAfter=multi-user.target\n"
	c.Texts["/etc/systemd/system/job.service"] = `[Service]
Type=idle
Environment=PATH=/usr/local/bin:/bin:/sbin
ExecStart=/bin/sh -c 'sh /job >/dev/ttyS0 2>&1; echo "job ended: $?" >/dev/ttyS0; poweroff -f'
`
	return c.Disk(filepath.Join(build, "vm"), "systemd")
}

// In a machine with systemd, the installation works from the boot on: programs find
// the agent's socket, and a new agent when one dies. All of it can be removed while it runs.
func TestSystemd(t *testing.T) {
	t.Parallel()
	disk, err := systemdDisk(buildDir(t))
	if err != nil {
		t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	h := startHost(t, twoMachines)
	m := h.bootMachine("one", Machine{Disk: disk, Job: `
set -e
/bench/vectoradd --quiet --json
systemctl is-active pegasus-guest.socket pegasus-guest.service
systemctl show -p StatusText pegasus-guest
pid() { systemctl show -p MainPID --value pegasus-guest; }
first=$(pid)
kill -9 $first
/bench/vectoradd --quiet --json
[ $(pid) != $first ] && echo "another agent"
systemctl stop pegasus-guest.service
/bench/vectoradd --quiet --json && echo "the socket started it"
pegasus-guest install
rm /etc/cdi/pegasus.yaml
pegasus-guest install
/bench/vectoradd --quiet --json
pegasus-guest install --uninstall
systemctl is-active pegasus-guest.socket || echo "nothing is left to be active"
grep pegasus /proc/mounts || echo "nor mounted"
`})
	out := m.finish()
	if n := strings.Count(out, `"right"`); n != 4 {
		t.Errorf("%d of 4 programs computed what is right:\n%s", n, out)
	}
	for _, want := range []string{"active\nactive\n", "StatusText=Serving CUDA programs", "another agent", "the socket started it",
		"is there      /etc/systemd/system/pegasus-guest.socket", "ran           systemctl start pegasus-guest.socket pegasus-guest.service",
		"ran           systemctl restart pegasus-guest.service",
		"removed       /etc/systemd/system/pegasus-guest.service", "nothing is left to be active", "nor mounted"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s", want, out)
		}
	}
}
