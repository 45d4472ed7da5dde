package xen

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A lock file marks that a domU has a hub: the hub holds its lock, and the file has the domain that it
// serves. The kernel identifies the lock's holder, and releases the lock when that process ends.

// errTaken reports that a domU has a hub already.
var errTaken = errors.New("the domU has a hub already")

// LockHub makes this process the hub of a lock file. The caller keeps the file open.
func LockHub(path, domain string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock); err != nil {
		err = fmt.Errorf("%s: %w", path, errTaken)
	} else if err = stillLinked(f); err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(domain), 0)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// stillLinked returns an error if a locked file has lost its name: a lock file without a holder is removed.
func stillLinked(f *os.File) error {
	ours, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(f.Name())
	if err == nil && !os.SameFile(ours, there) {
		err = fmt.Errorf("%s: it was removed just now", f.Name())
	}
	return err
}

// holder returns the process that holds a lock file; 0: none.
func holder(path string) int {
	_, pid := lockHolder(path)
	return pid
}

// lockHolder returns the process that holds a lock file, and the domain that it serves, "" if that isn't written yet.
func lockHolder(path string) (domain string, pid int) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", 0
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	if unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock) != nil || lock.Type == unix.F_UNLCK {
		return "", 0
	}
	b := make([]byte, 256)
	n, _ := f.Read(b)
	return string(b[:n]), int(lock.Pid)
}

// signalHolder sends a signal to the process that holds a lock file. It checks the holder again after opening the pidfd: if the
// process ended meanwhile its number may be reused.
func signalHolder(path string, pid int, s unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if holder(path) != pid {
		return nil
	}
	return unix.PidfdSendSignal(fd, s, nil, 0)
}
