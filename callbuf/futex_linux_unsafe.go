package callbuf

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	futexWait       = 0
	futexWake       = 1
	futexWaitBitset = 9
	futexWakeBitset = 10
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

// FutexWaitAs is FutexWait for a sleeper of some kinds, a set of bits.
func FutexWaitAs(w *atomic.Uint32, old uint32, timeout time.Duration, kinds uint32) {
	var now unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	ts := unix.NsecToTimespec(now.Nano() + int64(max(timeout, 0))) // this operation takes a point in time
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWaitBitset, uintptr(old), uintptr(unsafe.Pointer(&ts)), 0, uintptr(kinds))
}

// FutexWakeOf wakes up to n sleepers on w of these kinds, the earliest first, and returns how many. A sleeper of
// FutexWait is of all kinds.
func FutexWakeOf(w *atomic.Uint32, n int, kinds uint32) (woken int) {
	r, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(w)), futexWakeBitset, uintptr(n), 0, 0, uintptr(kinds))
	if errno != 0 {
		return 0
	}
	return int(r)
}

// Yield lets other threads of this processor run, if there are any.
func Yield() { unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
