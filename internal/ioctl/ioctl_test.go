package ioctl_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/internal/ioctl"
)

// A call returns the kernel's value or error, and leaves the file non-blocking.
func TestCall(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.WriteString("four"); err != nil {
		t.Fatal(err)
	}
	var n int32
	if _, err := ioctl.Call(r, unix.TIOCINQ, &n); err != nil || n != 4 {
		t.Errorf("TIOCINQ: got %d, %v; want 4", n, err)
	}
	if _, err := ioctl.Call(r, unix.TCGETS, &unix.Termios{}); !errors.Is(err, unix.ENOTTY) {
		t.Errorf("TCGETS of a pipe: got %v, want ENOTTY", err)
	}
	c, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	c.Control(func(fd uintptr) {
		if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
			t.Errorf("flags after the calls: %#x, %v; want O_NONBLOCK", flags, err)
		}
	})
	r.Close()
	if _, err := ioctl.Call(r, unix.TIOCINQ, &n); err == nil {
		t.Error("a call on a closed file succeeds")
	}
}
