package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/backend/control"
)

// In a runtime directory of another user no command finds a daemon or a domain of the host.
func TestStrangersDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one gives a directory to another user")
	}
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.MkdirAll(filepath.Join(dir, "domains", "web"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, network := range map[string]string{control.SocketName: "unix", "domains/web/sock": "unixpacket"} {
		l, err := net.ListenUnix(network, &net.UnixAddr{Name: filepath.Join(dir, name), Net: network})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	if usableSocket(dir, "web") == "" {
		t.Error("a directory of root has no domain")
	}
	if err := os.Chown(dir, 65534, -1); err != nil {
		t.Fatal(err)
	}
	if path := usableSocket(dir, "web"); path != "" {
		t.Errorf("another user's directory has the domain %s", path)
	}
	library := filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(library, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PEGASUS_LIBCUDA", library)
	if _, _, err := dial(dir); !errors.As(err, new(*control.Stranger)) {
		t.Errorf("dial: got %v, want a refusal", err)
	}
	for _, args := range [][]string{
		{"domains"}, {"accelerators"}, {"why"}, {"events"}, {"stop"}, {"reload"}, {"policy", "fifo"}, {"set", "web", "credits=1"},
		{"run", "--domain", "web", "--", "true"},
	} {
		var said strings.Builder
		args = append([]string{args[0], "--runtime-dir", dir}, args[1:]...)
		if status := run(args, &streams{strings.NewReader(""), io.Discard, &said}); status == 0 || !strings.Contains(said.String(), "65534") {
			t.Errorf("pegasus %v: status %d, %q", args, status, said.String())
		}
	}
}

// A process that is stopped while it starts the private daemon blocks others for a bounded time; they report
// its name.
func TestStoppedStarter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "start.lock")
	unlock, err := lock(path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := lock(path, 50*time.Millisecond)
		failed <- err
	}()
	select {
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), "is it stopped?") {
			t.Errorf("beside one that is stopped: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it waits without an end")
	}
	time.AfterFunc(50*time.Millisecond, unlock)
	again, err := lock(path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
