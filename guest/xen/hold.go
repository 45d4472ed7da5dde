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

// hold keeps a file open in a process of its own as long as the domU runs.
//
// After the domU was restored or migrated, Linux mishandles the closing of an event channel's file: it applies the
// channel's number to the present domain, and stops itself (BUG in evtchn_unbind_from_user), or closes another channel.
// So the file stays open, also when the agent ends.
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
	// Keeps it at least as long as this process lives.
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
