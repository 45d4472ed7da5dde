package main

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// word returns the address of a word of memory that doesn't move.
func word(mem []byte) uintptr { return uintptr(unsafe.Pointer(&mem[0])) }

// forever holds the timeout that the kernel reads.
var forever unix.Timespec

func timeout(d time.Duration) uintptr {
	forever = unix.NsecToTimespec(int64(d))
	return uintptr(unsafe.Pointer(&forever))
}
