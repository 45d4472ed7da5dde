package bell

import (
	"io"
	"syscall"
	"unsafe"
)

// The functions on the path of a ring bypass the Go scheduler for their system calls, which never block:
// after a pause, entering one through the scheduler first wakes the runtime's monitor, which on a single
// processor runs before the caller.

// ring writes a byte, if it fits. The byte is a package variable, so it does not move.
func ring(fd uintptr) {
	syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&aRing)), 1)
}

var aRing byte = 1

// Read reads a message from a socket, and blocks until there is one. The buffer must not be empty.
func Read(c syscall.RawConn, buf []byte) (n int, err error) {
	closed := c.Read(func(fd uintptr) bool {
		got, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
		switch {
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			err = errno
		case got == 0:
			err = io.EOF
		default:
			n = int(got)
		}
		return true
	})
	if closed != nil {
		err = closed
	}
	return n, err
}
