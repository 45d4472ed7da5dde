package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// keep runs a command as systemd does a service of Type=notify with Restart=on-failure: it keeps the files
// that the command leaves, and gives them to the next.
func keep(command []string) error {
	const path = "/tmp/notify"
	os.Remove(path)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	s := &store{files: make(map[string]*os.File)}
	go s.listen(l)
	for {
		cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$0" "$@"`}, command...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		names := s.all(cmd)
		cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+path, fmt.Sprintf("LISTEN_FDS=%d", len(names)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
		if err := cmd.Run(); err == nil {
			return nil
		}
	}
}

type store struct {
	mu    sync.Mutex
	files map[string]*os.File
}

func (s *store) all(cmd *exec.Cmd) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.files {
		names = append(names, name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	return names
}

func (s *store) listen(l *net.UnixConn) {
	for {
		said, oob := make([]byte, 4096), make([]byte, 256)
		n, oobn, _, _, err := l.ReadMsgUnix(said, oob)
		if err != nil {
			return
		}
		text := string(said[:n])
		_, name, _ := strings.Cut(text, "FDNAME=")
		name, _, _ = strings.Cut(name, "\n")
		s.mu.Lock()
		if strings.Contains(text, "FDSTOREREMOVE=1") && s.files[name] != nil {
			s.files[name].Close()
			delete(s.files, name)
		}
		messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range fds {
				s.files[name] = os.NewFile(uintptr(fd), name)
			}
		}
		s.mu.Unlock()
	}
}
