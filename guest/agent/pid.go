package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pidOf returns the process ID of a connection's peer, 0 if the kernel doesn't report it.
func pidOf(c *net.UnixConn) (pid uint32) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = uint32(cred.Pid)
		}
	})
	return pid
}

// openProcess returns a pidfd of a process, and the time at which it started.
func openProcess(pid uint32) (f *os.File, started uint64, err error) {
	fd, err := unix.PidfdOpen(int(pid), unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, 0, fmt.Errorf("process %d: %w", pid, err)
	}
	f = os.NewFile(uintptr(fd), "process")
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err == nil {
		started, err = parseStart(string(b))
	}
	if err == nil && hasEnded(f) { // the stat file may have been another process's
		err = fmt.Errorf("process %d: %w", pid, unix.ESRCH)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, started, nil
}

// parseStart parses a process's start time from its stat file, in clock ticks since boot.
func parseStart(stat string) (uint64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]) // the name before may contain any character
	const start = 22 - 3                                                // the first field is the third
	if len(fields) <= start {
		return 0, errors.New("a process's stat without its start")
	}
	return strconv.ParseUint(fields[start], 10, 64)
}

func ended(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}

func hasEnded(process *os.File) (yes bool) {
	raw, err := process.SyscallConn()
	if err != nil {
		return true
	}
	raw.Control(func(fd uintptr) { yes = ended(fd) })
	return yes
}

// awaitEnd blocks until a process has ended, or its file was closed, without occupying a thread.
func awaitEnd(process *os.File) {
	if raw, err := process.SyscallConn(); err == nil {
		raw.Read(ended)
	}
}
