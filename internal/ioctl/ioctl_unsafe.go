// Package ioctl calls ioctl on open device files, and calls functions that map them without signals. It has no state.
//
// Callers: callbuf, callbuf/grant and hypervisor/xen/privcmd, for Xen's devices.
package ioctl

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call performs a request on a file. Unlike Fd it leaves the blocking mode of the file and its registration with the poller
// unchanged.
func Call[T any](f *os.File, request uintptr, argument *T) (result uintptr, err error) {
	c, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var errno unix.Errno
	err = c.Control(func(fd uintptr) {
		result, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(argument)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return result, err
}
