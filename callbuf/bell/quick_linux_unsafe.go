package bell

import (
	"io"
	"syscall"
	"unsafe"
)

// What is on the way of a ring doesn't tell the scheduler of its system calls, which never wait:
// a runtime that hears of one after a pause first wakes its monitor, and where there is one
// processor that runs before us.

// ring writes a byte, if it fits. The byte is a variable of the package: it doesn't move.
func ring(fd uintptr) {
	syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&aRing)), 1)
}

var aRing byte = 1

// Read reads a message from a socket that has one, or waits for one. The buffer isn't empty.
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
