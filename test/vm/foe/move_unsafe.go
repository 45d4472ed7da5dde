package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// moveExtents requests the file system to exchange the memory of two of the foe's files: the pages that one worker
// on the host has mapped would then be another worker's. The kernel reads the structure only during the call.
func moveExtents(fd, donor int) error {
	const move = 0xc028660f // EXT4_IOC_MOVE_EXT
	args := struct {
		reserved, donor                uint32
		from, donorFrom, blocks, moved uint64
	}{donor: uint32(donor), blocks: 4}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), move, uintptr(unsafe.Pointer(&args))); errno != 0 {
		return errno
	}
	if args.moved == 0 {
		return errNothing
	}
	return nil
}
