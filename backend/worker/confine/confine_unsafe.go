// Package confine takes from a worker process the privileges that it does not need once all its files are open: memory
// beyond a bound, files, another user's rights, and all system calls except those of a serving worker. It has no state
// of its own: the kernel keeps the limits.
//
// Callers: backend/worker, once in each worker process, before the worker reports that it serves.
//
// Trust boundary: the code that runs afterwards executes a hostile guest's input, and may be under the guest's control.
package confine

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Apply confines this process for good, and makes it run as a user and a group; 0 keeps the present one. A driver needs
// more: it opens devices and files, maps them, also as code, and its memory use cannot be predicted.
func Apply(uid, gid int, driver bool) error {
	_ = time.Now().Local().Format(time.RFC3339) // loads the time zone while its file is readable
	private, err := privateMemory()
	if err != nil {
		return fmt.Errorf("confine the worker: %w", err)
	}
	debug.SetMemoryLimit(maxPrivate * 3 / 4) // from there on garbage is collected more often
	limits := []struct {
		which int
		most  uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_NOFILE, maxOpenFiles}, {unix.RLIMIT_DATA, private + maxPrivate}}
	if driver {
		limits = limits[:2]
	}
	for _, l := range limits {
		if err := lower(l.which, l.most); err != nil {
			return fmt.Errorf("confine the worker: limit %d: %w", l.which, err)
		}
	}
	if err := become(uid, gid); err != nil {
		return fmt.Errorf("confine the worker: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("confine the worker: %w", err)
	}
	if err := filter(driver); err != nil {
		return fmt.Errorf("confine the worker: system call filter: %w", err)
	}
	return nil
}

// maxOpenFiles leaves room for the memfds of device memory.
const maxOpenFiles = 4096

// maxPrivate bounds a worker's memory except the shared device memory, arena and rings, which have limits of their own.
// A worker that exceeds it ends.
const maxPrivate = 4 << 30

// privateMemory returns the bytes that already count against that limit: few, but with the race detector all that it
// reserves.
func privateMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(text), "VmData:")
	var kib uint64
	if _, err := fmt.Sscan(after, &kib); err != nil {
		return 0, fmt.Errorf("private memory: %w", err)
	}
	return kib << 10, nil
}

func lower(which int, most uint64) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(which, &l); err != nil {
		return err
	}
	most = min(most, l.Max)
	return unix.Setrlimit(which, &unix.Rlimit{Cur: most, Max: most})
}

// become changes the user and group of all threads.
func become(uid, gid int) error {
	if gid != 0 {
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("give up groups: %w", err)
		}
		if err := syscall.Setgid(gid); err != nil {
			return fmt.Errorf("become group %d: %w", gid, err)
		}
	}
	if uid == 0 {
		return nil
	}
	if err := syscall.Setuid(uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return nil
}

// architectures are the audit values of the architectures that filter supports.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// filter restricts all threads to the system calls of a serving worker. Other calls fail with EPERM and are logged by
// the kernel's audit.
func filter(driver bool) error {
	arch, known := architectures[runtime.GOARCH]
	if !known {
		return nil
	}
	// no_new_privs belongs to a thread: the thread that sets it must install the filter, which then applies it to the
	// other threads.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := seccompProgram(arch, driver, os.Getpid())
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	for _, flags := range []uintptr{unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_LOG, unix.SECCOMP_FILTER_FLAG_TSYNC} {
		_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&p)))
		if errno == 0 {
			return nil
		}
		if errno != unix.EINVAL { // EINVAL: a kernel that cannot log
			return errno
		}
	}
	return unix.EINVAL
}
