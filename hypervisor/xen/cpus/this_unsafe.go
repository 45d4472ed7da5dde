package cpus

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// thisCPU is where the caller runs; -1: that isn't told. Dom0's CPUs are its vCPUs, by the
// same numbers. The kernel writes where the pointer points before the call returns.
func thisCPU() int {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return -1
	}
	return int(cpu)
}
