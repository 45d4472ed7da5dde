//go:build soak

package test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"pegasus/hypervisor/kvm"
	"pegasus/internal/testkit"
	"pegasus/test/vm"
)

// bootTime bounds the boot of a machine without hardware virtualisation, on a busy host.
const bootTime = 5 * time.Minute

// launcher is a container as the container compute of a virt-launcher pod: libvirt and QEMU, without root and
// capabilities, with the mounts of a claim.
type launcher struct {
	n    *node
	name string // of the container
	dir  string // mounted at /machine
}

// launch starts a launcher with libvirt.
func (n *node) launch(ids []string) *launcher {
	t := n.t
	t.Helper()
	bundle := n.bundle()
	l := &launcher{n: n, name: filepath.Base(bundle), dir: n.path("machine-" + filepath.Base(bundle))}
	root := filepath.Join(bundle, "rootfs")
	for _, dir := range []string{"usr", "etc", "dev", "proc", "sys", "run", "tmp", "var", "machine"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(l.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/:/bin/sh\nqemu:x:107:107::/var/home:/bin/sh\n", "group": "root:x:0:\nqemu:x:107:\n",
		"libvirtd.conf": "auth_unix_rw = \"none\"\n", "qemu.conf": "stdio_handler = \"file\"\n",
	} {
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(l.dir, qemuUser, qemuUser); err != nil {
		t.Fatal(err)
	}
	bind := func(from, to string, options ...string) oci.Mount {
		return oci.Mount{Destination: to, Type: "bind", Source: from, Options: append([]string{"rbind", "nosuid"}, options...)}
	}
	tmpfs := func(at string, options ...string) oci.Mount {
		return oci.Mount{Destination: at, Type: "tmpfs", Source: "tmpfs", Options: append([]string{"nosuid"}, options...)}
	}
	mine := []string{fmt.Sprint("uid=", qemuUser), fmt.Sprint("gid=", qemuUser), "mode=0755"}
	spec := &oci.Spec{
		Version: "1.0.2", Hostname: "virt-launcher", Root: &oci.Root{Path: "rootfs", Readonly: true},
		Process: &oci.Process{Cwd: "/machine", NoNewPrivileges: true, User: oci.User{UID: qemuUser, GID: qemuUser}, Capabilities: &oci.LinuxCapabilities{},
			Args: []string{"/bin/sh", "-ec", `mkdir -p $HOME $XDG_CONFIG_HOME/libvirt $XDG_RUNTIME_DIR /var/run/kubevirt-private/1
cp /machine/*.conf $XDG_CONFIG_HOME/libvirt
libvirtd & # the shell reaps the processes that libvirt leaves, as virt-launcher-monitor does
wait $!`},
			Env: []string{"PATH=/usr/sbin:/usr/bin", "HOME=/var/home", "XDG_RUNTIME_DIR=/run/user", "XDG_CONFIG_HOME=/var/home/config", "LIBVIRT_DEFAULT_URI=qemu:///session"}},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
			tmpfs("/dev", "strictatime", "mode=755"), tmpfs("/dev/shm", "noexec", "nodev", "mode=1777"),
			tmpfs("/run", mine...), tmpfs("/tmp", mine...), tmpfs("/var", mine...),
			bind("/usr", "/usr", "ro"), bind("/etc", "/etc", "ro"), bind(l.dir+"/passwd", "/etc/passwd", "ro"), bind(l.dir+"/group", "/etc/group", "ro"),
			bind(l.dir, "/machine"),
		},
		Linux: &oci.Linux{CgroupsPath: "/" + l.name, Namespaces: []oci.LinuxNamespace{{Type: oci.PIDNamespace}, {Type: oci.MountNamespace},
			{Type: oci.IPCNamespace}, {Type: oci.UTSNamespace}, {Type: oci.NetworkNamespace}}},
	}
	n.inject(spec, ids)
	n.begin("launcher.log", n.runc(spec, bundle))
	testkit.Within(t, bootTime, "libvirt answers in its container", func() bool { _, err := l.run("virsh", "list"); return err == nil })
	return l
}

// command returns a command that runs in the container, as the user of QEMU.
func (l *launcher) command(args ...string) *exec.Cmd {
	return exec.Command("runc", append([]string{"--root", l.n.path("runc"), "exec", l.name}, args...)...)
}

func (l *launcher) run(args ...string) (string, error) {
	out, err := l.command(args...).CombinedOutput()
	return string(out), err
}

func (l *launcher) mustRun(args ...string) string {
	l.n.t.Helper()
	out, err := l.run(args...)
	if err != nil {
		l.n.t.Fatalf("%q: %v\n%s", args, err, out)
	}
	return out
}

// printed returns the output of the machine's job.
func (l *launcher) printed() string {
	text, _ := os.ReadFile(filepath.Join(l.dir, "output"))
	return strings.ReplaceAll(string(text), "\r", "")
}

// lacking are the parts of KubeVirt's definition that this test replaces: hardware virtualisation and the host's
// processor, the pod's network and disk, and the console.
var lacking = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`<domain type="kvm"`), `<domain type="qemu"`},
	{regexp.MustCompile(`<cpu mode="host-model">`), `<cpu mode="maximum">`},
	{regexp.MustCompile(`(?s)\t\t<interface .*?</interface>\n`), ``},
	{regexp.MustCompile(`(?s)\t\t<disk .*?</disk>\n`), ``},
	{regexp.MustCompile(`(?s)\t\t<serial .*?</serial>\n\t\t<console.*?</console>\n`), `<serial type='file'><source path='/machine/output' append='on'/><target port='0'/></serial>
<serial type='file'><source path='/machine/messages' append='on'/><target port='1'/></serial>
`},
	{regexp.MustCompile(`hvm</type>`), `hvm</type><kernel>/machine/vmlinuz</kernel><initrd>/machine/initrd</initrd><cmdline>console=ttyS1 quiet panic=-1</cmdline>`},
}

// correct is the beginning of a job: a program that computes and checks its result. A busy host answers late.
const correct = "until /bench/vectoradd --iterations 2; do sleep 0.2; done\n"

// boot starts the machine of a definition that a hook returned.
func (l *launcher) boot(definition, job string) {
	n := l.n
	n.t.Helper()
	for _, c := range lacking {
		if !c.from.MatchString(definition) {
			n.t.Fatalf("the definition has no %s:\n%s", c.from, definition)
		}
		definition = c.from.ReplaceAllString(definition, c.to)
	}
	image, err := vm.Build(filepath.Dir(testkit.Built(n.t, "bin")), vm.CloudKernel)
	if err != nil {
		n.t.Fatalf("%v; `make deps` installs what is missing", err)
	}
	if _, err := (vm.Machine{Image: image, Dir: l.dir, Job: job}).Initrd(); err != nil {
		n.t.Fatal(err)
	}
	if err := copyFile(image.Kernel, filepath.Join(l.dir, "vmlinuz")); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.dir, "domain.xml"), []byte(definition), 0o644); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if n.t.Failed() {
			messages, _ := os.ReadFile(filepath.Join(l.dir, "messages"))
			n.t.Logf("the machine printed:\n%s\nand said:\n%s", l.printed(), messages)
		}
	})
	l.mustRun("virsh", "define", "/machine/domain.xml")
	l.mustRun("virsh", "start", "default_web")
}

// A machine by KubeVirt's definition, under a real libvirt without root, computes by its claim's share beside a pod, and
// goes on while daemon, driver and hub are killed. It reaches nothing of the host beyond its region. When its claim is
// gone, nothing is left but the machine, which can't compute any more, and the pod goes on.
func TestMachine(t *testing.T) {
	n := machineNode(t)
	s := newScheduler(n)
	steps := n.stepsPerMs(s)
	claim, pod := s.placed(machine("256", "128Mi")), s.placed(capacity("768", "64Mi"))
	ids := n.mustPrepare(claim)
	l := n.launch(ids)
	busy := fmt.Sprintf("busy --seconds 3600 --queue 50 --steps %d --no-check --quiet", 5*steps)
	l.boot(n.hooked(ids, kvm.NVDIMM), vm.WaitForAgent+correct+"while :; do /bench/"+busy+"; echo ended; sleep 0.1; done\n")
	testkit.Within(t, bootTime, "the machine's program computes what is right", func() bool { return right.MatchString(l.printed()) })

	n.start(n.mustPrepare(pod), hardened, append([]string{"/bin/busy"}, strings.Fields(busy)[1:]...)...)
	used := func() (machine, all float64) {
		domains := n.domains()
		a, b := float64(domains["k8s-"+string(claim.UID)].Compute), float64(domains["k8s-"+string(pod.UID)].Compute)
		return a, a + b
	}
	computes := func(what string) {
		t.Helper()
		before, _ := used()
		testkit.Within(t, bootTime, what, func() bool { now, _ := used(); return now > before+2e8 })
	}
	computes("the machine computes beside the pod")
	machine0, all0 := used()
	testkit.Within(t, bootTime, "eight seconds of engine time were used", func() bool { _, now := used(); return now > all0+8e9 })
	machine1, all1 := used()
	share := (machine1 - machine0) / (all1 - all0)
	t.Logf("256 of 1024 credits: %.2f %% of the time", 100*share)
	if math.Abs(share-0.25) > 0.01 {
		t.Errorf("the machine got %.2f %% of the time, want 25 %%", 100*share)
	}

	n.stopDaemon(syscall.SIGKILL)
	n.startDaemon()
	n.stopDriver(syscall.SIGKILL)
	n.startDriver()
	n.mustPrepare(claim)
	computes("the machine computes under another daemon")
	syscall.Kill(n.hub(claim), syscall.SIGKILL) // the machine's programs end, and the next are served by another
	computes("the machine computes with another hub")
	l.attack()
	computes("the machine computes after the attack of its container")

	n.unprepare(claim)
	if _, err := os.Lstat(n.region(claim)); err == nil {
		t.Error("the region is left")
	}
	ends := func() int { return strings.Count(l.printed(), "ended") }
	testkit.Within(t, bootTime, "the machine's programs end", func() bool { return ends() > 2 })
	if state := l.mustRun("virsh", "domstate", "default_web"); !strings.Contains(state, "running") {
		t.Errorf("the machine is %s", state)
	}
	_, before := used()
	testkit.Eventually(t, "the pod goes on", func() bool { _, now := used(); return now > before+1e8 })
	n.unprepare(pod)
	n.mustBeEmpty()
}

// A machine whose region is a PCI device computes, too.
func TestMachineWithPCIDevice(t *testing.T) {
	n := machineNode(t)
	claim := newScheduler(n).placed(machine("256", "128Mi"))
	ids := n.mustPrepare(claim)
	l := n.launch(ids)
	l.boot(n.hooked(ids, kvm.IVSHMEM), vm.WaitForShared+correct+"pegasus-guest doctor\n")
	testkit.Within(t, bootTime, "the machine has switched itself off", func() bool { return strings.Contains(l.printed(), "job ended: ") })
	if out := l.printed(); !right.MatchString(out) || !strings.Contains(out, "job ended: 0") {
		t.Errorf("the machine printed:\n%s", out)
	}
	n.unprepare(claim)
	n.mustBeEmpty()
}

// attack tries, as the user of QEMU in the launcher, to replace the region, and to lay files where the hub opens some.
func (l *launcher) attack() {
	t := l.n.t
	t.Helper()
	const region = kvm.ContainerRegion
	ports := filepath.Dir(kvm.PortPath(region))
	for about, command := range map[string]string{
		"remove the region":                 "rm -f " + region,
		"replace the region":                "ln -sf /etc/passwd " + region,
		"move the region":                   "mv " + region + " " + region + "2",
		"make the region open to all":       "chmod 666 " + region,
		"give the region away":              "chgrp 0 " + region,
		"remove its second name":            "rm -f /dev/shm/pegasus-machine",
		"make a region":                     "touch /dev/shm/pegasus/another",
		"make a file in the port's folder":  "touch " + ports + "/x",
		"make a link in the port's folder":  "ln -s /etc/passwd " + ports + "/x",
		"remove the port":                   "rm -f " + ports + "/machine",
		"replace the port":                  "ln -sf /run/pegasus/control.sock " + ports + "/machine",
		"mount the port's folder writable":  "mount -o remount,rw,bind " + ports,
		"reach the folder above":            "ls " + ports + "/../../" + filepath.Base(l.n.regions),
		"connect to the domain as a client": "test -e /run/pegasus-domain",
	} {
		if out, err := l.run("/bin/sh", "-c", command); err == nil {
			t.Errorf("%s: succeeded:\n%s", about, out)
		}
	}
}
