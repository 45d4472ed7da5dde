package agent

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Shelf is where an agent leaves open files for the next one: systemd keeps them, from one start of
// a service to the next; sd_pid_notify_with_fds(3). Without systemd nobody does.
type Shelf struct {
	kept map[string]*os.File // what the agent before has left
}

// kept is what the names of such files begin with.
const kept = "kept-"

// Holds says whether there is somebody to keep files.
func (*Shelf) Holds() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// Leave has a file kept. The agent keeps its own, too.
func (s *Shelf) Leave(name string, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) {
		// What can't be polled isn't to be polled for its end.
		err = notifyWith("FDSTORE=1\nFDPOLL=0\nFDNAME="+kept+name, unix.UnixRights(int(fd)))
	})
	return err
}

// Take is what an agent before has left; nil: nothing. It can be taken once.
func (s *Shelf) Take(name string) *os.File {
	f := s.kept[name]
	delete(s.kept, name)
	return f
}

// Drop has a file be kept no more.
func (s *Shelf) Drop(name string) error {
	if f := s.Take(name); f != nil {
		f.Close()
	}
	return notifyWith("FDSTOREREMOVE=1\nFDNAME="+kept+name, nil)
}

// firstInherited is the descriptor from which on systemd's are; sd_listen_fds(3).
const firstInherited = 3

// inherit takes what systemd gives to this process: what an agent before has left, and sockets.
func inherit() (s *Shelf, sockets []*os.File) {
	s = &Shelf{kept: make(map[string]*os.File)}
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return s, nil
	}
	count, _ := strconv.Atoi(os.Getenv("LISTEN_FDS"))
	names := strings.Split(os.Getenv("LISTEN_FDNAMES"), ":")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // not for what we start
	}
	for i := range count {
		fd := firstInherited + i
		unix.CloseOnExec(fd)
		if i >= len(names) || !strings.HasPrefix(names[i], kept) {
			sockets = append(sockets, os.NewFile(uintptr(fd), "socket"))
			continue
		}
		unix.SetNonblock(fd, true) // as it was, whoever has kept it
		s.kept[strings.TrimPrefix(names[i], kept)] = os.NewFile(uintptr(fd), names[i])
	}
	return s, sockets
}

// notify tells systemd how we are; sd_notify(3). Who else started us doesn't ask.
func notify(state string) { notifyWith(state, nil) }

// notifyTime is how long systemd may take to receive a message while others wait before it. A message that it doesn't
// receive is lost.
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
