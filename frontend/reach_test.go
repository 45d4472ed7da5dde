package frontend

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The error for a socket that cannot be connected to has the cause: a missing daemon only where there is none.
func TestUnreachable(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one connects as another user")
	}
	dir, err := os.MkdirTemp("", "pg") // short: socket paths are at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, network := range map[string]string{"closed": "unixpacket", "stream": "unix"} {
		l, err := net.ListenUnix(network, &net.UnixAddr{Name: at(name), Net: network})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	if err := os.Chmod(at("closed"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, want string
		other      bool // as another user
	}{
		{at("closed"), "permission denied: socket_owner, socket_group and socket_mode of the domain", true},
		{at("file/sock"), "want the path of a domain's socket", false},
		{at("stream"), "want the path of a domain's socket", false},
		{"/tmp/" + strings.Repeat("x", 200), "of at most 107 bytes", false},
		{at("file"), "want the path of a domain's socket", false},
		{dir, "want the path of a domain's socket", false},
	} {
		uid := os.Geteuid()
		if c.other {
			uid = 4242
		}
		if err := dialAs(uid, c.path); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "no pegasusd") {
			t.Errorf("%.40s: got error %v, want %q", c.path, err, c.want)
		}
	}
	if err := unreachable(at("none"), unix.ENOENT); !strings.Contains(err.Error(), "no pegasusd at "+at("none")) {
		t.Errorf("a missing socket: %v", err)
	}
}

// dialAs is dialDaemon as another user, in a thread of its own, which ends with it.
func dialAs(uid int, path string) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			failed <- e
			return
		}
		_, err := dialDaemon(path)
		failed <- err
	}()
	return <-failed
}
