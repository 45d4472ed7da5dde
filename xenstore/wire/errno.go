package wire

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Errno returns the error of a name, as errors are sent by name ("ENOENT"): the syscall.Errno, or a Name for a name
// unknown to this system.
func Errno(name string) error {
	if e, ok := errnos[name]; ok {
		return e
	}
	return Name(name)
}

// Name is an error that this system has no number for.
type Name string

func (n Name) Error() string { return "the server says " + string(n) }

// errnos has the names of this system, and oxenstored's own one.
var errnos = func() map[string]syscall.Errno {
	all := map[string]syscall.Errno{"EQUOTA": syscall.EDQUOT}
	for e := syscall.Errno(1); e < 256; e++ {
		if name := unix.ErrnoName(e); name != "" {
			all[name] = e
		}
	}
	return all
}()

// known contains the errors that xs_wire.h lists. A server sends others as EINVAL.
var known = map[syscall.Errno]bool{
	syscall.EINVAL: true, syscall.EACCES: true, syscall.EEXIST: true, syscall.EISDIR: true,
	syscall.ENOENT: true, syscall.ENOMEM: true, syscall.ENOSPC: true, syscall.EIO: true,
	syscall.ENOTEMPTY: true, syscall.ENOSYS: true, syscall.EROFS: true, syscall.EBUSY: true,
	syscall.EAGAIN: true, syscall.EISCONN: true, syscall.E2BIG: true, syscall.EPERM: true,
}

// ErrnoName returns the name by which a server sends an error.
func ErrnoName(e syscall.Errno) string {
	if !known[e] {
		e = syscall.EINVAL
	}
	return unix.ErrnoName(e)
}
