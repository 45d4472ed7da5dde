package test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"pegasus/backend/client"
	"pegasus/backend/control"
	"pegasus/internal/testkit"
)

// unpack writes the layer of an image to a folder.
func unpack(t *testing.T, image, root string) {
	t.Helper()
	var manifest []struct{ Layers []string }
	each(t, image, nil, func(name string, r io.Reader) {
		if name == "manifest.json" {
			if err := json.NewDecoder(r).Decode(&manifest); err != nil {
				t.Fatal(err)
			}
		}
	})
	layer := filepath.Join(t.TempDir(), "layer")
	each(t, image, nil, func(name string, r io.Reader) {
		if name == manifest[0].Layers[0] {
			text, err := io.ReadAll(r)
			if err == nil {
				err = os.WriteFile(layer, text, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	unzip := func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }
	each(t, layer, unzip, func(name string, r io.Reader) {
		path := filepath.Join(root, name)
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil && !strings.HasSuffix(name, "/") {
			err = os.WriteFile(path, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// each calls f for the entries of a tar archive.
func each(t *testing.T, path string, unzip func(io.Reader) (io.Reader, error), f func(name string, r io.Reader)) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var r io.Reader = file
	if unzip != nil {
		if r, err = unzip(r); err != nil {
			t.Fatal(err)
		}
	}
	for a := tar.NewReader(r); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		f(h.Name, a)
	}
}

// capabilities are all of Linux' up to 31, by their numbers.
var capabilities = strings.Fields(`CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_KILL CAP_SETGID CAP_SETUID
	CAP_SETPCAP CAP_LINUX_IMMUTABLE CAP_NET_BIND_SERVICE CAP_NET_BROADCAST CAP_NET_ADMIN CAP_NET_RAW CAP_IPC_LOCK CAP_IPC_OWNER CAP_SYS_MODULE
	CAP_SYS_RAWIO CAP_SYS_CHROOT CAP_SYS_PTRACE CAP_SYS_PACCT CAP_SYS_ADMIN CAP_SYS_BOOT CAP_SYS_NICE CAP_SYS_RESOURCE CAP_SYS_TIME
	CAP_SYS_TTY_CONFIG CAP_MKNOD CAP_LEASE CAP_AUDIT_WRITE CAP_AUDIT_CONTROL CAP_SETFCAP`)

// privilegedCapabilities returns the capabilities of a privileged container: those that this process may give.
func privilegedCapabilities(t testing.TB) (names []string) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "CapEff:\t")
	mask := uint64(0)
	if _, err := fmt.Sscanf(rest, "%x", &mask); err != nil {
		t.Fatal(err)
	}
	for i, name := range capabilities {
		if mask>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return names
}

// service returns a container of an unpacked image with the host's processes, as the DaemonSet has it.
func (n *node) service(root string, privileged bool, mounts []string, command ...string) *exec.Cmd {
	n.t.Helper()
	bundle := n.bundle()
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		n.t.Fatal(err)
	}
	spec := &oci.Spec{
		Version: "1.0.2", Root: &oci.Root{Path: root, Readonly: true},
		Process: &oci.Process{Args: command, Cwd: "/", Env: []string{"NODE_NAME=" + nodeName}, NoNewPrivileges: !privileged, Capabilities: &oci.LinuxCapabilities{},
			User: oci.User{AdditionalGids: []uint32{qemuUser}}},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777"}},
		},
		Linux: &oci.Linux{CgroupsPath: "/" + filepath.Base(bundle), Namespaces: []oci.LinuxNamespace{{Type: oci.MountNamespace}, {Type: oci.UTSNamespace}}},
	}
	if privileged {
		all := privilegedCapabilities(n.t)
		spec.Process.Capabilities = &oci.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
		spec.Linux.Resources = &oci.LinuxResources{Devices: []oci.LinuxDeviceCgroup{{Allow: true, Access: "rwm"}}}
	}
	for _, m := range mounts {
		from, to, ok := strings.Cut(m, ":")
		if !ok {
			to = from
		}
		spec.Mounts = append(spec.Mounts, oci.Mount{Destination: to, Source: from, Type: "bind", Options: []string{"rbind", "rw"}})
	}
	return n.runc(spec, bundle)
}

// The image, in containers as the DaemonSet describes them: the libraries are installed on the node, the daemon runs
// privileged, and the driver without capabilities. Pods compute, also after daemon and driver have
// been replaced.
func TestImage(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.Command(testkit.Built(t, "cluster/pegasus-image"), "-build", os.Getenv("PEGASUS_BUILD"), "-o", image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n := bareNode(t, oneAccelerator)
	config := n.useRegions(oneAccelerator)
	root := n.path("image")
	unpack(t, image, root)
	for _, dir := range []string{"lib", "run", "cdi", "kubelet/plugins", "kubelet/plugins_registry", "etc"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.write("etc/pegasus.toml", config)
	if out, err := n.service(root, false, []string{n.path("lib") + ":/libraries"}, "/usr/bin/pegasus-dra", "--install-libraries", "/libraries", "--libraries", "/usr/lib/pegasus").CombinedOutput(); err != nil {
		t.Fatalf("install the libraries: %v: %s", err, out)
	}
	daemon := func() *exec.Cmd {
		return n.begin("daemon.log", n.service(root, true, []string{n.path("run"), n.path("etc") + ":/etc/pegasus", "/sys/fs/cgroup", "/dev/shm"},
			"/usr/bin/pegasusd", "--config", "/etc/pegasus/pegasus.toml", "--runtime-dir", n.path("run")))
	}
	driver := func() *exec.Cmd {
		return n.begin("driver.log", n.service(root, false, []string{n.path("run"), n.path("cdi"), n.path("kubelet/plugins"), n.path("kubelet/plugins_registry"), n.path("kubeconfig"), "/dev/shm"},
			"/usr/bin/pegasus-dra", "--kubeconfig", n.path("kubeconfig"), "--kubelet", n.path("kubelet"), "--runtime-dir", n.path("run"), "--libraries", n.path("lib"),
			"--cdi", n.path("cdi"), "--interval", "100ms", "--region-memory", "64Mi"))
	}
	first, second := daemon(), driver()
	s := newScheduler(n)
	virtual := s.placed(machine("64", "16Mi"))
	n.mustPrepare(virtual)
	if info, err := os.Lstat(n.region(virtual)); err != nil || info.Mode() != 0o660 || info.Sys().(*syscall.Stat_t).Gid != qemuUser {
		t.Errorf("the region of a driver without capabilities: %v, %v", info, err)
	}
	testkit.Eventually(t, "the region has a hub", func() bool { return n.hub(virtual) != 0 })
	n.unprepare(virtual)
	claim := s.placed(request{})
	n.mustCompute(n.mustPrepare(claim), hardened)
	name := "k8s-" + string(claim.UID)
	calls := n.domains()[name].Calls
	pod, out := n.start(n.mustPrepare(claim), nil, "/bin/busy", "--seconds", "3600", "--quiet")
	testkit.Eventually(t, "the pod computes", func() bool { return n.domains()[name].Processes == 1 && n.domains()[name].Calls > calls+10 })
	n.remove(second)
	second = driver()
	calls = n.domains()[name].Calls
	testkit.Eventually(t, "the pod goes on without its driver", func() bool { return n.domains()[name].Calls > calls })
	n.remove(first)
	first = daemon()
	testkit.Eventually(t, "the next daemon serves", func() bool { return n.adopted() >= 0 })
	// With cgroups of version 1, the workers are in the cgroups of the daemon's container for all controllers but cpu and
	// memory, and runc ends them with it.
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		testkit.Eventually(t, "the next daemon adopts the pod's worker", func() bool { return n.adopted() == 1 })
		if pod.ProcessState != nil || out.Len() > 0 {
			t.Errorf("the pod: %v: %s", pod.ProcessState, out)
		}
	}
	n.mustCompute(n.mustPrepare(claim), hardened)
	n.unprepare(claim)
	n.mustBeEmpty()
	n.remove(second)
	n.remove(first)
}

// adopted returns the number of workers that the daemon has taken over, -1 without a daemon.
func (n *node) adopted() int {
	c, err := client.Dial(n.path("run", control.SocketName))
	if err != nil {
		return -1
	}
	defer c.Close()
	s, err := c.Status(n.t.Context())
	if err != nil {
		return -1
	}
	return s.Adopted
}

// remove ends a container as a kubelet does: SIGTERM to its first process, and SIGKILL to the processes of its cgroup
// that are left.
func (n *node) remove(cmd *exec.Cmd) {
	n.t.Helper()
	name := cmd.Args[len(cmd.Args)-1]
	exec.Command("runc", "--root", n.path("runc"), "kill", name, "TERM").Run()
	cmd.Wait()
	exec.Command("runc", "--root", n.path("runc"), "delete", "--force", name).Run()
}
