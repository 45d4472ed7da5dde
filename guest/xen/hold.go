package xen

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// HoldCommand is the command of pegasus-guest that calls Hold.
const HoldCommand = "hold"

// hold has a process of its own keep a file open as long as the domU runs.
//
// Linux isn't ready for the end of an event channel's file after the domU was restored or migrated: it takes
// the channel's number for one of the domain that it is now, and stops itself (BUG in evtchn_unbind_from_user), or
// closes another's channel. So the file isn't closed, also when the agent ends.
func hold(f *os.File) {
	self, err := os.Executable()
	if err == nil {
		cmd := exec.Command(self, HoldCommand)
		cmd.ExtraFiles = []*os.File{f}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err = cmd.Start(); err == nil {
			go cmd.Wait()
			return
		}
	}
	// As long as this process lives, then.
	if raw, err := f.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	}
}

// Hold keeps the descriptors that it has been given, until it is killed.
func Hold() {
	signal.Ignore()
	for {
		unix.Pause()
	}
}
