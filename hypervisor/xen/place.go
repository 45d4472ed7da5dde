package xen

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A place is a file that marks that a domU has a hub: the hub holds its lock, and the file has the domain that it
// serves. The kernel identifies the lock's holder, and releases the lock when that process ends.

// errTaken reports that a domU has a hub already.
var errTaken = errors.New("the domU has a hub already")

// TakePlace makes this process the hub at a place. The caller keeps the file open.
func TakePlace(path, domain string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &lock); err != nil {
		err = fmt.Errorf("%s: %w", path, errTaken)
	} else if err = stillThere(f); err == nil {
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

// stillThere returns an error if a locked file has lost its name: a place without a holder is removed.
func stillThere(f *os.File) error {
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

// holder returns the process that holds a place; 0: none.
func holder(path string) int {
	_, pid := occupant(path)
	return pid
}

// occupant returns the process that holds a place, and the domain that it serves, "" if that isn't written yet.
func occupant(path string) (domain string, pid int) {
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

// tell sends a signal to the process that holds a place. It checks the holder again after opening the pidfd: if the
// process ended meanwhile its number may be reused.
func tell(path string, pid int, s unix.Signal) error {
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
