package kvm

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf/bell"
)

// acceptTime bounds a wait for a machine's connection, so that a port without a machine is reported, and the end of
// the hub does not wait for long.
const acceptTime = time.Second

// portServer serves the port of a machine in a container. QEMU connects to it, so the hub follows no path that the
// container can write. The kernel admits the group of the region's file alone. One connection is served at a time;
// others wait.
type portServer struct {
	region *os.File

	mu       sync.Mutex
	listener *net.UnixListener
	socket   fs.FileInfo // of the listener
	closed   bool
}

// accept returns the next connection of the machine, or an error after acceptTime.
func (s *portServer) accept(path string) (bell.Conn, error) {
	l, err := s.listen(path)
	if err != nil {
		return nil, fmt.Errorf("serve port %s: %w", path, err)
	}
	if err := l.SetDeadline(time.Now().Add(acceptTime)); err != nil {
		return nil, err
	}
	c, err := l.AcceptUnix()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil, fmt.Errorf("port %s: no machine has connected", path)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// listen returns the listener at a path, another one if its socket was removed.
func (s *portServer) listen(path string) (*net.UnixListener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if s.listener != nil {
		if now, err := os.Lstat(path); err == nil && os.SameFile(now, s.socket) {
			return s.listener, nil
		}
		s.listener.SetUnlinkOnClose(false) // the path is another's
		s.listener.Close()
		s.listener = nil
	}
	if err := remove(path); err != nil { // of a hub that was killed
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := s.admit(path); err != nil {
		l.Close()
		return nil, err
	}
	if s.socket, err = os.Lstat(path); err != nil {
		l.Close()
		return nil, err
	}
	s.listener = l
	return l, nil
}

// admit lets the group of the region's file connect.
func (s *portServer) admit(path string) error {
	var st unix.Stat_t
	err := unix.Fstat(int(s.region.Fd()), &st)
	if err == nil {
		err = os.Lchown(path, -1, int(st.Gid))
	}
	if err == nil {
		err = os.Chmod(path, 0o660)
	}
	return err
}

// close ends the listener, and removes its socket.
func (s *portServer) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.listener != nil {
		s.listener.Close()
	}
}
