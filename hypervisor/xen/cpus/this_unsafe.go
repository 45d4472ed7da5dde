package cpus

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// thisCPU returns the CPU that the caller runs on; -1: unknown. Dom0's CPUs are its vCPUs, by the same numbers. The
// kernel writes to the pointer's target before the call returns.
func thisCPU() int {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return -1
	}
	return int(cpu)
}
