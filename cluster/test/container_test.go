package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"pegasus/internal/testkit"
)

// hardened is a container by the restricted pod security standard: not root, no capabilities, a read-only root.
func hardened(s *oci.Spec) {
	s.Root.Readonly = true
	s.Process.User = oci.User{UID: 1000, GID: 1000}
	s.Process.Capabilities = &oci.LinuxCapabilities{}
}

// bundleNumber makes names of containers.
var bundleNumber atomic.Int64

// container returns a container of runc with the edits of the CDI devices, not yet started, in a root file system of
// its own. Runc removes it when it ends.
func (n *node) container(ids []string, change func(*oci.Spec), command ...string) *exec.Cmd {
	t := n.t
	t.Helper()
	bundle := n.bundle()
	n.makeRoot(filepath.Join(bundle, "rootfs"))
	spec := &oci.Spec{
		Version: "1.0.2", Hostname: "pod",
		Root: &oci.Root{Path: "rootfs"},
		Process: &oci.Process{Args: command, Cwd: "/", Env: []string{"PATH=/bin"}, NoNewPrivileges: true,
			Capabilities: &oci.LinuxCapabilities{Bounding: podCapabilities, Effective: podCapabilities, Permitted: podCapabilities}},
		Mounts: []oci.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755"}},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777"}},
		},
		Linux: &oci.Linux{
			CgroupsPath: "/" + filepath.Base(bundle),
			Namespaces:  []oci.LinuxNamespace{{Type: oci.PIDNamespace}, {Type: oci.MountNamespace}, {Type: oci.IPCNamespace}, {Type: oci.UTSNamespace}, {Type: oci.NetworkNamespace}},
		},
	}
	if change != nil {
		change(spec)
	}
	n.inject(spec, ids)
	return n.runc(spec, bundle)
}

// runc returns the command that runs a container.
func (n *node) runc(spec *oci.Spec, bundle string) *exec.Cmd {
	t, name := n.t, filepath.Base(bundle)
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "runc", "--root", n.path("runc"), "run", "--bundle", bundle, name)
	cmd.Cancel = func() error { // the end of runc alone would leave the container
		return exec.Command("runc", "--root", n.path("runc"), "kill", name, "KILL").Run()
	}
	cmd.WaitDelay = testkit.Soon // for its output, which a process that is left would keep open
	t.Cleanup(func() {
		cancel()
		if cmd.Process != nil {
			cmd.Wait()
		}
	})
	return cmd
}

// bundle returns the folder of another container, whose name is the container's.
func (n *node) bundle() string {
	return n.path("bundles", fmt.Sprintf("%s-%d", filepath.Base(n.dir), bundleNumber.Add(1)))
}

// podCapabilities are a subset of those that runtimes give to root in a container.
var podCapabilities = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_SETUID", "CAP_SETGID", "CAP_MKNOD", "CAP_KILL", "CAP_NET_RAW"}

// inject applies the CDI edits, as a runtime does.
func (n *node) inject(spec *oci.Spec, ids []string) {
	n.t.Helper()
	if len(ids) == 0 {
		return
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(n.path("cdi")), cdi.WithAutoRefresh(false))
	if err != nil {
		n.t.Fatal(err)
	}
	if missing, err := cache.InjectDevices(spec, ids...); err != nil {
		n.t.Fatalf("CDI devices %q: %v; %v", missing, err, cache.GetErrors())
	}
}

// makeRoot makes a root file system as a small image has it: a shell, the C library, and benchmark programs.
func (n *node) makeRoot(root string) {
	t := n.t
	t.Helper()
	const libs = "usr/lib/x86_64-linux-gnu"
	for _, dir := range []string{"bin", "dev", "proc", "tmp", libs, "usr/lib64"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		"/bin/busybox":                      "bin/busybox",
		"/lib64/ld-linux-x86-64.so.2":       "usr/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6":   libs + "/libc.so.6",
		"/lib/x86_64-linux-gnu/libm.so.6":   libs + "/libm.so.6",
		testkit.Built(t, "bench/vectoradd"): "bin/vectoradd",
		testkit.Built(t, "bench/matmul"):    "bin/matmul",
		testkit.Built(t, "bench/busy"):      "bin/busy",
	} {
		if err := copyFile(from, filepath.Join(root, to)); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"lib": "usr/lib", "lib64": "usr/lib64", "bin/sh": "busybox"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}

// run runs a container to its end and returns its output.
func (n *node) run(ids []string, change func(*oci.Spec), command ...string) (string, error) {
	n.t.Helper()
	cmd := n.container(ids, change, command...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// right is the line of a program whose result is that of the processor.
var right = regexp.MustCompile(`(?m)^result +right$`)

// mustCompute runs a program in a container that computes and checks its result.
func (n *node) mustCompute(ids []string, change func(*oci.Spec)) {
	n.t.Helper()
	out, err := n.run(ids, change, "/bin/vectoradd", "--iterations", "2")
	if err != nil || !right.MatchString(out) {
		n.t.Errorf("%v; the container's output:\n%s", err, out)
	}
}

// start starts a container and ends it with the test.
func (n *node) start(ids []string, change func(*oci.Spec), command ...string) (cmd *exec.Cmd, out *bytes.Buffer) {
	n.t.Helper()
	cmd = n.container(ids, change, command...)
	out = new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return cmd, out
}
