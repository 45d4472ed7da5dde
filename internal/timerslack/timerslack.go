// Package timerslack sets by how much the kernel may delay a thread's timed waits, so that it combines wake-ups.
//
// The Go runtime's monitor thread takes processors from goroutines that block in system calls. While goroutines run, it
// wakes every 20 µs. In a process that is woken often but has little to do, that costs more than the process's own work.
package timerslack

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// relaxed is the monitor's slack. If all the runtime's processors have goroutines that block in system calls,
	// another goroutine waits for so much longer.
	relaxed = time.Millisecond
	// usual is the kernel's default.
	usual = 50 * time.Microsecond
)

// RelaxMonitor gives the runtime's monitor thread a slack of a millisecond. It needs CAP_SYS_NICE. Call it at the start
// of main. Threads that the monitor starts later inherit the slack: see Restore.
func RelaxMonitor() error {
	tid, err := monitor()
	if err != nil {
		return err
	}
	return os.WriteFile(file(tid), []byte(strconv.FormatInt(relaxed.Nanoseconds(), 10)), 0)
}

// Restore gives the calling thread the usual slack. A goroutine that needs exact waits calls it after
// runtime.LockOSThread.
func Restore() error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(usual.Nanoseconds()), 0, 0, 0)
}

func file(tid string) string { return "/proc/" + tid + "/timerslack_ns" }

// monitor returns the thread ID of the monitor: the runtime starts it before any other thread, and the kernel lists
// threads in the order in which they were started.
func monitor() (tid string, err error) {
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return "", err
	}
	defer dir.Close()
	tids, err := dir.Readdirnames(2)
	if err != nil {
		return "", err
	}
	if len(tids) < 2 {
		return "", fmt.Errorf("the runtime's monitor thread: %s has %d threads, want at least 2", dir.Name(), len(tids))
	}
	return tids[1], nil
}
