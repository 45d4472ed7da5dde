package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// MaxSocketPath is the kernel's limit on a socket's path, in bytes.
const MaxSocketPath = 107

// Listener is a daemon's control socket, with a link to it in the runtime directory, where the command expects it, if
// the socket is elsewhere.
type Listener struct {
	*net.UnixListener
	link string // empty if there is none
}

// Listen makes the control socket of a runtime directory, at path or, if that is empty, in the directory. It replaces a
// socket without a listener, which a killed daemon leaves behind, and no other file.
func Listen(dir, path string) (*Listener, error) {
	home := filepath.Join(dir, SocketName)
	if _, err := os.Readlink(home); err == nil { // left by a previous daemon; the directory is this daemon's
		os.Remove(home)
	}
	if path == "" {
		path = home
	}
	if len(path) > MaxSocketPath {
		return nil, fmt.Errorf("%s: its path has %d bytes, a socket's may have %d", path, len(path), MaxSocketPath)
	}
	if err := vacate(path); err != nil {
		return nil, err
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l := &Listener{UnixListener: socket}
	if !sameFile(path, home) {
		err := vacate(home)
		if err == nil {
			err = os.Symlink(path, home)
		}
		if err != nil {
			l.Close()
			return nil, err
		}
		l.link = home
	}
	return l, nil
}

// Close closes the socket and removes it and its link.
func (l *Listener) Close() error {
	err := l.UnixListener.Close()
	if err == nil && l.link != "" {
		os.Remove(l.link)
	}
	return err
}

// vacate removes the socket at a path if it has no listener.
func vacate(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there already and is no socket: move it away, or give another path", path)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("%s is in use: another process listens there", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	default:
		return fmt.Errorf("%s may be in use: %w", path, err)
	}
}

func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}
