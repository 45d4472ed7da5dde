package client

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/backend/control"
)

// shortDir returns a directory whose sockets' paths are short enough.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func listen(t *testing.T, dir string) *control.Listener {
	t.Helper()
	l, err := control.Listen(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// stranger is a user that is neither root nor the tests' own.
const stranger = 65534

// listenAs listens at path as another user: the kernel keeps the user of the listening thread.
func listenAs(t *testing.T, uid int, path string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one listens as another user")
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and it ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			done <- errno
			return
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func wantStranger(t *testing.T, path string) {
	t.Helper()
	c, err := Dial(path)
	if err == nil {
		c.Close()
	}
	var s *control.Stranger
	if !errors.As(err, &s) || s.UID != stranger {
		t.Errorf("dial %s: got %v, want a refusal of user %d", path, err, stranger)
	}
}

// A listener of another user is rejected as the daemon, whether the directory is writable for every user or a link
// leads there.
func TestDialRefusesAnotherUsersListener(t *testing.T) {
	open, home := shortDir(t), shortDir(t)
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	listenAs(t, stranger, filepath.Join(open, control.SocketName))
	wantStranger(t, filepath.Join(open, control.SocketName))
	if err := os.Symlink(filepath.Join(open, control.SocketName), filepath.Join(home, control.SocketName)); err != nil {
		t.Fatal(err)
	}
	wantStranger(t, filepath.Join(home, control.SocketName))
}

// A directory of another user is rejected, whatever listens there.
func TestDialRefusesAnotherUsersDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one gives a directory to another user")
	}
	dir := shortDir(t)
	listen(t, dir)
	if err := os.Chown(dir, stranger, -1); err != nil {
		t.Fatal(err)
	}
	wantStranger(t, filepath.Join(dir, control.SocketName))
}
