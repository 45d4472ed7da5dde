package privcmd

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ioctl calls ioctl without the Go runtime's changes to file and poller.
func ioctl(f *os.File, request uintptr, argument *[6]uint64) (result uintptr, err error) {
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

// addressOf returns the address of memory outside Go's heap, which doesn't move.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&mem[0]))) }
