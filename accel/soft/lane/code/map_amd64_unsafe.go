//go:build amd64 && linux

package code

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:noescape
func call(entry uintptr, frame unsafe.Pointer)

// mapTwice returns two mappings of a new memory file, and seals and closes it.
func mapTwice(size int) (writable []byte, executable *byte, err error) {
	fd, err := unix.MemfdCreate("pegasus code", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // a kernel older than 6.3, where every memory file may be executable
		fd, err = unix.MemfdCreate("pegasus code", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, nil, fmt.Errorf("ftruncate: %w", err)
	}
	writable, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("mmap writable: %w", err)
	}
	run, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_SHARED)
	if err != nil {
		_ = unix.Munmap(writable)
		return nil, nil, fmt.Errorf("mmap executable: %w", err)
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_, _ = unix.Munmap(writable), unix.Munmap(run)
		return nil, nil, fmt.Errorf("seal: %w", err)
	}
	return writable, &run[0], nil
}
