//go:build soak

// Package live runs the chart in a real Kubernetes of one node: etcd, API server, controllers, scheduler, kubelet and
// containerd, in namespaces of their own, with pods that compute on a software accelerator. The tests need
// `make cluster-image build/kubernetes`, root, runc and the container network plugins.
//
// Nothing of the cluster can be reached from outside, nothing of the host is changed but its cgroups below one name, and
// all of it ends with the test process.
package live

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// roleVariable is the role of a process of the test binary: the first process makes the namespaces, the second is their
// init process, and the third runs the tests.
const roleVariable = "PEGASUS_LIVE_ROLE"

// cgroupName is the cgroup of all pods, below the root of each hierarchy.
const cgroupName = "pegasus-live"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(outside())
	case "init":
		os.Exit(initProcess())
	}
	code := 1
	if err := enter(); err != nil {
		fmt.Fprintln(os.Stderr, "cannot set up the namespaces:", err)
	} else {
		code = m.Run()
	}
	os.Exit(code)
}

func again(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// outside runs the tests in new namespaces.
func outside() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "a Kubernetes node needs root: run the tests as root")
		return 1
	}
	cmd := again("init")
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS
	err := cmd.Run()
	removeCgroups()
	switch {
	case err == nil:
		return 0
	case cmd.ProcessState == nil:
		fmt.Fprintln(os.Stderr, "cannot make namespaces:", err)
		return 1
	case cmd.ProcessState.ExitCode() > 0:
		return cmd.ProcessState.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "the tests' namespaces ended:", err) // by a signal
	return 1
}

// removeCgroups removes the cgroups of the pods, which are empty once their processes' namespace has ended.
func removeCgroups() {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupName)
	for _, root := range append(roots, "/sys/fs/cgroup/"+cgroupName) {
		var dirs []string
		filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		slices.Reverse(dirs) // the deepest first
		for _, dir := range dirs {
			os.Remove(dir)
		}
	}
}

// initProcess runs the tests and reaps the processes whose parents have ended, such as containers' shims.
func initProcess() int {
	cmd := again("tests")
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == cmd.Process.Pid && status.Signaled():
			return 128 + int(status.Signal())
		case err != nil && !errors.Is(err, syscall.EINTR):
			fmt.Fprintln(os.Stderr, "wait for the tests:", err)
			return 1
		}
	}
}

// nodeAddress is the node's address, and serviceAddress the API server's for pods. Both are the loopback interface's.
const (
	nodeAddress    = "10.77.0.1"
	serviceAddress = "10.96.0.1"
)

// kubeletSysctls are written by the kubelet for the whole machine. Here it writes files.
var kubeletSysctls = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

// enter prepares the namespaces.
func enter() error {
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
	}{
		{"", "/", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"", "/", syscall.MS_REC | syscall.MS_SHARED, ""},
		{"proc", "/proc", 0, ""},
		{"tmpfs", "/run", 0, "mode=755"}, // sockets of others stay theirs
		{"tmpfs", "/var/lib", 0, "mode=755"},
		{"tmpfs", "/var/log", 0, "mode=755"},
		{"tmpfs", "/dev/shm", 0, "mode=1777"},
	} {
		if err := syscall.Mount(cmp.Or(m.kind, "none"), m.at, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	for _, dir := range []string{"/run/lock", "/run/cdi", "/run/containerd", "/var/lib/kubelet", "/var/lib/live", "/var/log/pods", "/var/log/containers", "/var/lib/pegasus"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, name := range kubeletSysctls {
		value, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			continue // a kernel without it; the kubelet complains
		}
		file := "/var/lib/live/" + filepath.Base(name)
		if err := os.WriteFile(file, value, 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(file, "/proc/sys/"+name, "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over /proc/sys/%s: %w", name, err)
		}
	}
	if err := makeCgroups(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(nodeName)); err != nil {
		return err
	}
	for _, args := range []string{"link set lo up", "addr add " + nodeAddress + "/32 dev lo", "addr add " + serviceAddress + "/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", args, err, out)
		}
	}
	return nil
}

// makeCgroups makes the cgroup of all pods. With cgroups of version 1, a cpuset needs values.
func makeCgroups() error {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return os.MkdirAll("/sys/fs/cgroup/"+cgroupName, 0o755)
	}
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		dir := filepath.Dir(h)
		if filepath.Base(dir) == "unified" {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, cgroupName), 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue // not the hierarchy of cpusets
			}
			if err := os.WriteFile(filepath.Join(dir, cgroupName, file), value, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
