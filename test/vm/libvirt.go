package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// libvirt is a libvirtd of the test's own, beside any other: it has mounts of its own
// in place of libvirtd's state directories.
type libvirt struct {
	h      *host
	cmd    *exec.Cmd
	mounts int                 // a process that has its mounts
	edit   func(string) string // changes the definitions of its machines
	device string              // the kind of device of their regions; empty: the default
}

const privateLibvirt = `
set -e
for d in /run/libvirt /var/lib/libvirt /etc/libvirt /var/log/libvirt /var/cache/libvirt; do
	mkdir -p $d
	mount -t tmpfs tmpfs $d
done
cp /etc/passwd /etc/group /run/libvirt
echo 'libvirt-qemu:x:64055:64055::/nonexistent:/bin/false' >>/run/libvirt/passwd # what it is built to look for
echo 'libvirt-qemu:x:64055:
kvm:x:64056:
libvirt:x:64057:' >>/run/libvirt/group
mount --bind /run/libvirt/passwd /etc/passwd
mount --bind /run/libvirt/group /etc/group
echo 'auth_unix_rw = "none"
auth_unix_ro = "none"' >/etc/libvirt/libvirtd.conf
echo 'user = "root"
group = "root"
stdio_handler = "file"
cgroup_controllers = [ CONTROLLERS ]
security_driver = "none"' >/etc/libvirt/qemu.conf
mkdir -p /etc/libvirt/hooks/qemu.d
echo '#!/bin/sh' >/etc/libvirt/hooks/qemu.d/pegasus # libvirtd looks once whether there are hooks
chmod 755 /etc/libvirt/hooks/qemu.d/pegasus
exec libvirtd --pid-file /run/libvirt/libvirtd.pid
`

func startLibvirt(h *host) *libvirt {
	h.t.Helper()
	return startLibvirtWith(h, "")
}

// startLibvirtWith starts a libvirtd that puts its machines into cgroups of these controllers.
func startLibvirtWith(h *host, controllers string) *libvirt {
	h.t.Helper()
	log, err := os.Create(h.path("libvirt.log"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	l := &libvirt{h: h, cmd: exec.Command("unshare", "-m", "sh", "-c", strings.Replace(privateLibvirt, "CONTROLLERS", controllers, 1))}
	l.cmd.Env = append(os.Environ(), h.mark())
	l.cmd.Stdout, l.cmd.Stderr = log, log
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that an interrupt of the test doesn't reach it
	if err := l.cmd.Start(); err != nil {
		h.t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	h.t.Cleanup(func() {
		l.cmd.Process.Signal(syscall.SIGTERM)
		l.cmd.Wait()
		if h.t.Failed() {
			text, _ := os.ReadFile(h.path("libvirt.log"))
			h.t.Logf("libvirtd's log:\n%s", text)
		}
	})
	eventually(h.t, soon, "libvirtd answers", func() bool { return l.command("virsh", "list").Run() == nil })
	return l
}

// command returns a command in this libvirtd's mount namespace, with its configuration.
func (l *libvirt) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-m", "-r", "-t", strconv.Itoa(l.cmd.Process.Pid)}, args...)...)
}

func (l *libvirt) run(args ...string) {
	l.h.t.Helper()
	if out, err := l.command(args...).CombinedOutput(); err != nil {
		l.h.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// machine defines and attaches a machine without starting it.
func (l *libvirt) machine(name, job string) *Running {
	l.h.t.Helper()
	wait := waitForAgent
	if l.device == "ivshmem" {
		wait = waitForShared
	}
	return l.machineOf(name, Machine{Job: wait + job})
}

// machineOf is machine for another kind.
func (l *libvirt) machineOf(name string, kind Machine) *Running {
	h := l.h
	h.t.Helper()
	dir := h.path("machine-" + name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	kind.Image, kind.Dir = h.image, dir
	text, err := kind.Definition(name)
	if err != nil {
		h.t.Fatal(err)
	}
	if l.edit != nil {
		text = l.edit(text)
	}
	file := filepath.Join(dir, "definition.xml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	l.run("virsh", "define", file)
	args := []string{built(h.t, "bin/pegasus"), "attach", name, "--memory", "128MiB", "--regions", h.regions}
	if l.device != "" {
		args = append(args, "--device", l.device)
	}
	l.run(args...)
	return l.running(name)
}

// running returns the handle of a defined machine, with its output.
func (l *libvirt) running(name string) *Running {
	h := l.h
	r := &Running{dir: h.path("machine-" + name)}
	h.t.Cleanup(func() {
		l.command("virsh", "destroy", name).Run()
		if h.t.Failed() {
			h.t.Logf("%s printed:\n%s\nand said:\n%s", name, r.Output(), r.Messages())
		}
	})
	return r
}
