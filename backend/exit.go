package backend

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openProcess returns a pidfd, nonblocking so that awaitExit uses no thread.
func openProcess(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid)), nil
}

// dupProcess returns a nonblocking duplicate of a pidfd, for awaitExit. The caller owns it.
func dupProcess(f *os.File) (*os.File, error) {
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

// awaitExit blocks until the process of a pidfd has ended and returns nil, or returns ctx's error.
func awaitExit(ctx context.Context, pidfd *os.File) error {
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

func hasExited(pidfd *os.File) (is bool) {
	withFD(pidfd, func(fd int) error { is = exited(uintptr(fd)); return nil })
	return is
}

// kill sends SIGKILL to the process of a pidfd.
func kill(pidfd *os.File) error {
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
