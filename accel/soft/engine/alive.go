package engine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A worker lives as long as it holds a lock on the byte of the page's file that
// bears its slot's number. The lock belongs to an open file description of its
// own, which the kernel closes when the process ends, however it ends, even if its
// parent never notices; asking for it needs neither /proc nor a pid, which both
// a confined worker may not have.

// newDescription opens the page's file anew.
func (p *Page) newDescription() (int, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", p.fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open engine page again: %w", err)
	}
	return fd, nil
}

// lockSlot takes slot i's lock, if no living process has it.
func lockSlot(fd, i int) bool {
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i), Len: 1}) == nil
}

// alive says whether slot i belongs to a living process.
func (p *Page) alive(i int) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(i), Len: 1}
	if err := unix.FcntlFlock(uintptr(p.fd), unix.F_OFD_GETLK, &l); err != nil {
		return true // not to be told: better wait than have two holders
	}
	return l.Type != unix.F_UNLCK
}
