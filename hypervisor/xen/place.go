package xen

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A place is a file by which it is known that a domU has a hub: who locks it is, and the file says
// which domain it serves. The kernel says whose the lock is, and takes it back when that process ends.

// errTaken is of a domU that has a hub.
var errTaken = errors.New("the domU has a hub already")

// TakePlace makes this process the hub at a place. The file is to stay open.
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

// stillThere says whether a file that is locked has its name still: it is removed if nobody seems to
// have it.
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

// holder is the process that holds a place; 0: none does.
func holder(path string) int {
	_, pid := occupant(path)
	return pid
}

// occupant is the process that holds a place, and the domain that it serves, "" if it hasn't said yet.
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

// tell sends a signal to the process that holds a place. It is asked twice who that is: one that ended meanwhile has
// given its number back.
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
