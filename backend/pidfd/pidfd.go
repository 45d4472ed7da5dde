// Package pidfd opens, awaits and kills processes by descriptors, which a later process with the same PID cannot take
// over, and measures their CPU time.
//
// Callers: backend and backend/workers.
//
// Trust boundary: none; the kernel answers.
package pidfd

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Open returns a pidfd, nonblocking so that AwaitExit uses no thread.
func Open(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid)), nil
}

// Dup returns a nonblocking duplicate of a pidfd, for AwaitExit. The caller owns it.
func Dup(f *os.File) (*os.File, error) {
	var fd int
	err := withFD(f, func(from int) (err error) {
		fd, err = unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 0)
		return err
	})
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// AwaitExit blocks until the process of a pidfd has ended and returns nil, or returns ctx's error.
func AwaitExit(ctx context.Context, pidfd *os.File) error {
	stop := context.AfterFunc(ctx, func() { pidfd.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	raw, err := pidfd.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(exited)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

func exited(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}

func HasExited(pidfd *os.File) (is bool) {
	withFD(pidfd, func(fd int) error { is = exited(uintptr(fd)); return nil })
	return is
}

// Kill sends SIGKILL to the process of a pidfd.
func Kill(pidfd *os.File) error {
	return withFD(pidfd, func(fd int) error {
		return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	})
}

// withFD calls do with a file's descriptor without making it blocking, as Fd would.
func withFD(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// SameFile reports whether two descriptors are of the same file.
func SameFile(a, b *os.File) bool {
	var x, y unix.Stat_t
	return withFD(a, func(fd int) error { return unix.Fstat(fd, &x) }) == nil &&
		withFD(b, func(fd int) error { return unix.Fstat(fd, &y) }) == nil &&
		x.Dev == y.Dev && x.Ino == y.Ino
}
