package xenstore

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/internal/testkit"
)

// A server's backlog is one or two connections, as xenstored's: further clients wait, too, for as long as their
// contexts allow.
func TestSocketsQueueIsFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listen, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(listen)
	if err := errors.Join(unix.Bind(listen, &unix.SockaddrUnix{Name: path}), unix.Listen(listen, 1)); err != nil {
		t.Fatal(err)
	}
	const count = 20
	var all sync.WaitGroup
	for range count {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			link, err := Socket(path)(ctx)
			if err != nil {
				t.Errorf("one of %d: %v", count, err)
				return
			}
			link.Close()
		})
	}
	for range count {
		fd, _, err := unix.Accept(listen)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		time.Sleep(time.Millisecond)
	}
	all.Wait()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for range 3 { // not all of them find room
		link, bad := Socket(path)(ctx)
		if bad == nil {
			defer link.Close()
		}
		err = bad
	}
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a server that takes nobody: %v", err)
	}
}

// A device leads to the same server as the socket, but a process that sets a watch there while no server answers
// can't be killed: where the server has its socket, now or once started, only that is used.
func TestLocalDevice(t *testing.T) {
	t.Setenv("XENSTORED_PATH", "")
	t.Setenv("XENSTORED_RUNDIR", "")
	bound := func(root string) { // without a listener, as after a server was killed
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(root, SocketPath)})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	const dom0, stub = "proc/xen/capabilities=control_d\n", "var/run/xen/xenstored.pid=domid:1\n"
	for name, try := range map[string]struct {
		files  []string
		bound  bool
		device bool
		err    error
	}{
		"a domU":                             {device: true},
		"a domU with xenfs":                  {files: []string{"proc/xen/capabilities="}, device: true},
		"Dom0, the server was killed":        {files: []string{dom0}, bound: true, err: syscall.ECONNREFUSED},
		"the same without xenfs":             {bound: true, err: syscall.ECONNREFUSED},
		"Dom0, it starts anew":               {files: []string{dom0, "var/run/xen/xenstored.pid=321\n"}, err: fs.ErrNotExist},
		"Dom0, it hasn't been started yet":   {files: []string{dom0}, err: fs.ErrNotExist},
		"Dom0, it is in a domain of its own": {files: []string{dom0, stub}, device: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := short(t)
			for _, file := range append(try.files, "dev/xen/xenbus=", "var/run/xenstored/lock=") {
				path, text, _ := strings.Cut(file, "=")
				path = filepath.Join(root, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if try.bound {
				bound(root)
			}
			link, err := local(root)(t.Context())
			if err == nil {
				defer link.Close()
			}
			if link.Device != try.device || !errors.Is(err, try.err) {
				t.Errorf("device %t, %v; wanted %t, %v", link.Device, err, try.device, try.err)
			}
		})
	}
}

// A client that dials again reaches the server's socket, though there is a device all the time.
func TestLocalAgain(t *testing.T) {
	root := short(t)
	t.Setenv("XENSTORED_PATH", "")
	t.Setenv("XENSTORED_RUNDIR", root)
	device := filepath.Join(root, DevicePath)
	if err := errors.Join(os.MkdirAll(filepath.Dir(device), 0o700), unix.Mkfifo(device, 0o600)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "socket")
	listen := func() *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.SetDeadline(time.Now().Add(time.Minute))
		return l
	}
	comes := func(l *net.UnixListener) { // and loses its server at once
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Fatalf("nobody comes to the server: %v", err)
		}
		l.Close()
		conn.Close()
	}
	l := listen()
	var dials atomic.Int32
	c, err := DialAgain(t.Context(), func(ctx context.Context) (Link, error) {
		dials.Add(1)
		return local(root)(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	comes(l)
	testkit.Eventually(t, "it dials again while there is no listener", func() bool { return dials.Load() >= 2 })
	os.Remove(path)
	comes(listen())
}

// short returns a directory with a name that leaves room for a socket's below it.
func short(t *testing.T) string {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
