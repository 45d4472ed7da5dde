package xenstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Link is what packets travel on. Each Write is one packet or several whole ones;
// Close ends a Read that waits.
type Link struct {
	io.ReadWriteCloser
	// Device says that it is the kernel's device, which does some things by itself: it
	// takes one packet a Write, of 4096 bytes with its header, and no other before it has
	// answered; answers by the Write's error when that fails; and has watches of its own in the server, all of which
	// RESET_WATCHES would remove.
	Device bool
}

// Dialer makes a connection.
type Dialer func(context.Context) (Link, error)

// Where servers and kernels put them.
const (
	SocketPath    = "/var/run/xenstored/socket"
	DevicePath    = "/dev/xen/xenbus"
	OldDevicePath = "/proc/xen/xenbus"
)

// Socket dials the server's unix socket.
func Socket(path string) Dialer {
	return func(ctx context.Context) (Link, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		return Link{ReadWriteCloser: c}, err
	}
}

// Device opens the kernel's way to the server.
func Device(path string) Dialer {
	return func(context.Context) (Link, error) {
		// Without waiting, so that Go waits for it together with all else, and Close ends that.
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return Link{}, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return Link{ReadWriteCloser: os.NewFile(uintptr(fd), path), Device: true}, nil
	}
}

// Local finds the server of this machine as Xen's own programs do: XENSTORED_PATH, a
// socket or a device, goes before all; then come the server's socket (in the directory
// XENSTORED_RUNDIR, if that is set) and the devices.
func Local() Dialer {
	return func(ctx context.Context) (Link, error) {
		if path := os.Getenv("XENSTORED_PATH"); path != "" {
			return either(path)(ctx)
		}
		socket := SocketPath
		if dir := os.Getenv("XENSTORED_RUNDIR"); dir != "" {
			socket = filepath.Join(dir, "socket")
		}
		var all []error
		for _, dial := range []Dialer{Socket(socket), Device(DevicePath), Device(OldDevicePath)} {
			link, err := dial(ctx)
			if err == nil {
				return link, nil
			}
			all = append(all, err)
		}
		return Link{}, fmt.Errorf("this machine has no XenStore, or not for us (set XENSTORED_PATH if it is elsewhere): %w", errors.Join(all...))
	}
}

// either dials a path that is a socket or a device.
func either(path string) Dialer {
	info, err := os.Stat(path)
	if err == nil && info.Mode()&fs.ModeSocket == 0 {
		return Device(path)
	}
	return Socket(path)
}
