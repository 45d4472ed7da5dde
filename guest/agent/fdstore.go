package agent

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FDStore keeps open files for the next agent, in systemd's file descriptor store; sd_pid_notify_with_fds(3). Without
// systemd it keeps none.
type FDStore struct {
	kept map[string]*os.File // files of the previous agent
}

// kept is the prefix of the files' names.
const kept = "kept-"

// Holds reports whether there is a file descriptor store.
func (*FDStore) Holds() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// Leave stores a file for the next agent. The agent keeps its own descriptor, too.
func (s *FDStore) Leave(name string, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) {
		// Files without poll support must not be polled for their end.
		err = notifyWith("FDSTORE=1\nFDPOLL=0\nFDNAME="+kept+name, unix.UnixRights(int(fd)))
	})
	return err
}

// Take returns a file of the previous agent, once; nil: there is none.
func (s *FDStore) Take(name string) *os.File {
	f := s.kept[name]
	delete(s.kept, name)
	return f
}

// Drop removes a file from the store.
func (s *FDStore) Drop(name string) error {
	if f := s.Take(name); f != nil {
		f.Close()
	}
	return notifyWith("FDSTOREREMOVE=1\nFDNAME="+kept+name, nil)
}

// firstInherited is the first descriptor that systemd passes; sd_listen_fds(3).
const firstInherited = 3

// inherit returns the descriptors that systemd passes to this process: the previous agent's files, and sockets.
func inherit() (s *FDStore, sockets []*os.File) {
	s = &FDStore{kept: make(map[string]*os.File)}
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return s, nil
	}
	count, _ := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // not for child processes
	}
	for i := range count {
		fd := firstInherited + i
		unix.CloseOnExec(fd)
		if i >= len(names) || !strings.HasPrefix(names[i], kept) {
			sockets = append(sockets, os.NewFile(uintptr(fd), "socket"))
			continue
		}
		unix.SetNonblock(fd, true) // restored, whatever flags the store left
		s.kept[strings.TrimPrefix(names[i], kept)] = os.NewFile(uintptr(fd), names[i])
	}
	return s, sockets
}

// notify reports this service's state to systemd; sd_notify(3). Without systemd it has no effect.
func notify(state string) { notifyWith(state, nil) }

// notifyTime is how long systemd may take to receive a message when its queue is full. After that the message is
// dropped.
const notifyTime = time.Second

func notifyWith(state string, rights []byte) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(notifyTime.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	return unix.Sendmsg(fd, []byte(state), rights, &unix.SockaddrUnix{Name: path}, unix.MSG_NOSIGNAL)
}
