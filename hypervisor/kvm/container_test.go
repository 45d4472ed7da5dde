package kvm

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pegasus/callbuf/bell"
)

// containerRegion makes a region for a container.
func containerRegion(t *testing.T, group int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pk") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	region := filepath.Join(dir, "regions", "k8s-web")
	if err := MakeContainerRegion(region, minRegion, group); err != nil {
		t.Fatal(err)
	}
	return region
}

// A region for a container is made once, with a folder in which the container can't create files, and nothing is left
// of it.
func TestContainerRegion(t *testing.T) {
	region := containerRegion(t, os.Getgid())
	if err := os.WriteFile(making(region), nil, 0o600); err != nil { // of a program that was killed
		t.Fatal(err)
	}
	first, err := os.Stat(region)
	if err != nil {
		t.Fatal(err)
	}
	if err := MakeContainerRegion(region, minRegion, os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if again, err := os.Stat(region); err != nil || !os.SameFile(first, again) || again.Mode() != 0o660 {
		t.Errorf("made again: %v, %v", again, err)
	}
	if info, err := os.Stat(PortPath(region)); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder of the port: %v, %v", info, err)
	}
	if all, err := ContainerRegions(filepath.Dir(region)); err != nil || len(all) != 1 || all[0] != region {
		t.Errorf("regions: %q, %v", all, err)
	}
	for _, wrong := range []func() error{
		func() error { return os.Truncate(region, minRegion/2) }, // by its machine
		func() error { os.Remove(region); return os.Symlink("/etc/passwd", region) },
		func() error { os.Remove(region); return os.Mkdir(region, 0o755) },
	} {
		if err := wrong(); err != nil {
			t.Fatal(err)
		}
		if err := MakeContainerRegion(region, minRegion, -1); err == nil || !strings.Contains(err.Error(), "it is no file of 16777216 bytes") {
			t.Errorf("got %v", err)
		}
	}
	for range 2 {
		if err := RemoveContainerRegion(region); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Dir(region) + "/*"); err != nil || len(left) != 1 { // the folder of ports
		t.Errorf("left: %q, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Dir(region) + "/*/*"); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// The hub serves the port in the folder, to members of the region's group alone; another hub, and one that finds the
// socket removed, serve it anew.
func TestServedPort(t *testing.T) {
	const group = 4711
	if os.Geteuid() != 0 {
		t.Fatal("needs root, to give the region to another group")
	}
	region := containerRegion(t, group)
	m, err := Open(region)
	if err != nil {
		t.Fatal(err)
	}
	open, reopen := m.Port()
	if !reopen {
		t.Error("an end of file does not end the connection")
	}
	if c, err := open(); err == nil || !strings.Contains(err.Error(), "no machine has connected") {
		t.Fatalf("without a machine: %v, %v", c, err)
	}
	path, serves := servedPort(region)
	info, err := os.Lstat(path)
	if err != nil || !serves || info.Mode() != os.ModeSocket|0o660 || info.Sys().(*syscall.Stat_t).Gid != group {
		t.Fatalf("socket: %v, %v", info, err)
	}
	talk := func(open func() (bell.Conn, error)) {
		t.Helper()
		theirs, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		ours, err := open()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		theirs.Write([]byte{1})
		if n, err := ours.(*net.UnixConn).Read(make([]byte, 8)); n != 1 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	talk(open)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); err == nil {
		t.Fatal("a connection of nobody")
	}
	talk(open)
	m.Close()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is left")
	}
	if _, err := open(); err == nil {
		t.Error("it is served after its end")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil { // as of a hub that was killed
		t.Fatal(err)
	}
	next, err := Open(region)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	open, _ = next.Port()
	open()
	talk(open)
}
