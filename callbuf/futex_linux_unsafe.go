package callbuf

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait = 0
	futexWake = 1
)

// FutexWait sleeps while *w is old, at most for timeout. It returns early on
// any wake-up, so the caller checks again. The futex is shared: w lies in memory
// that another process maps too.
func FutexWait(w *atomic.Uint32, old uint32, timeout time.Duration) {
	ts := unix.NsecToTimespec(int64(max(timeout, 0)))
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWait, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// FutexWake wakes up to n sleepers on w.
func FutexWake(w *atomic.Uint32, n int) {
	unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWake, uintptr(n), 0, 0, 0)
}

// Yield lets other threads of this processor run, if there are any.
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
