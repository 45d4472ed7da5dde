package ioctl

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Signals to a thread, such as those of the Go runtime, interrupt no system call within Uninterrupted, and others after
// it.
func TestUninterrupted(t *testing.T) {
	wait := func() error { // for 20 ms, beside a signal each millisecond
		var done atomic.Bool
		defer done.Store(true)
		thread := unix.Gettid()
		go func() {
			for !done.Load() {
				unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
				time.Sleep(time.Millisecond)
			}
		}()
		_, err := unix.Ppoll(nil, &unix.Timespec{Nsec: 20e6}, nil)
		return err
	}
	if err := Uninterrupted(wait); err != nil {
		t.Errorf("a system call within: %v", err)
	}
	err := Uninterrupted(func() error { return unix.ENOENT })
	if err != unix.ENOENT {
		t.Errorf("got %v, want the function's error", err)
	}
	if err := Uninterrupted(func() error { return nil }); err != nil {
		t.Error(err)
	}
	for range 10 { // the goroutine may change threads before it waits
		if err = wait(); err == unix.EINTR {
			return
		}
	}
	t.Errorf("a system call without it: %v, want EINTR", err)
}
