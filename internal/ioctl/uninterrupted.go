package ioctl

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Uninterrupted calls f with all signals blocked on its thread, and returns its error. The kernel's mmap of pages that
// another domain of Xen has granted returns EINTR if a signal is pending, such as those by which the Go runtime preempts
// goroutines. To call mmap again would be too late for a mapping at fixed addresses: the failed call may have unmapped
// them.
func Uninterrupted(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, before unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, &before); err != nil {
		return err
	}
	defer unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
	return f()
}
