package xenstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Link transports packets. Each Write is one packet or several whole ones; Close ends a Read that blocks.
type Link struct {
	io.ReadWriteCloser
	// Device marks the kernel's device, which acts by itself in part: it accepts one packet a Write, of 4096 bytes
	// with its header, and no other before it has answered; reports a failed request by the Write's error; and has
	// watches of its own in the server, all of which RESET_WATCHES would remove. A Write, and Close with it, may
	// block within the kernel until the server answers.
	Device bool
}

// Dialer opens a connection.
type Dialer func(context.Context) (Link, error)

// The paths used by servers and kernels.
const (
	SocketPath    = "/var/run/xenstored/socket"
	DevicePath    = "/dev/xen/xenbus"
	OldDevicePath = "/proc/xen/xenbus"
)

// Socket dials the server's unix socket. While the server's backlog, of one or two connections, is full, it retries.
func Socket(path string) Dialer {
	return func(ctx context.Context) (Link, error) {
		var d net.Dialer
		var busy error
		for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
			c, err := d.DialContext(ctx, "unix", path)
			switch {
			case err == nil:
				return Link{ReadWriteCloser: c}, nil
			case errors.Is(err, syscall.EAGAIN):
				busy = err
			case busy != nil: // ctx has ended as a rule, before the dialer reached the socket
				return Link{}, fmt.Errorf("%w: %w", err, busy)
			default:
				return Link{}, err
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return Link{}, fmt.Errorf("%w: %w", ctx.Err(), busy)
			}
		}
	}
}

// Device opens the kernel's device.
func Device(path string) Dialer {
	return func(context.Context) (Link, error) {
		// Non-blocking, so that Go's poller waits for it, and Close ends that.
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return Link{}, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		return Link{ReadWriteCloser: os.NewFile(uintptr(fd), path), Device: true}, nil
	}
}

// Local finds the server of this machine much as Xen's own programs do: XENSTORED_PATH, a socket or a device, has
// precedence; then come the server's socket (in the directory XENSTORED_RUNDIR, if that is set) and the devices.
//
// Unlike these programs it doesn't use the devices where the server has its socket, even while the server is down: a
// client that dials again reaches it when it is back. Dom0 has the devices, too, but they only forward to that same
// server; and while it is down a watch waits within the kernel for its answer, uninterruptibly, even by SIGKILL. So a
// device is opened only if no socket file exists, and either this isn't Dom0 (control_d in /proc/xen/capabilities) or
// Xen's tools have recorded that XenStore is in a domain of its own. Where another program has started such a domain,
// XENSTORED_PATH has to be set.
func Local() Dialer { return local("/") }

// local does the work of Local for the machine at root.
func local(root string) Dialer {
	return func(ctx context.Context) (Link, error) {
		if path := os.Getenv("XENSTORED_PATH"); path != "" {
			return either(path)(ctx)
		}
		socket := filepath.Join(root, SocketPath)
		if dir := os.Getenv("XENSTORED_RUNDIR"); dir != "" {
			socket = filepath.Join(dir, "socket")
		}
		link, err := Socket(socket)(ctx)
		switch {
		case err == nil:
			return link, nil
		case !errors.Is(err, fs.ErrNotExist): // a socket exists, so a server did or will
			return Link{}, fmt.Errorf("XenStore's server doesn't take us: %w", err)
		case serves(root):
			return Link{}, fmt.Errorf("XenStore's server isn't there (set XENSTORED_PATH to %s if it is in a domain of its own): %w", DevicePath, err)
		}
		all := []error{err}
		for _, path := range []string{DevicePath, OldDevicePath} {
			link, err := Device(filepath.Join(root, path))(ctx)
			if err == nil {
				return link, nil
			}
			all = append(all, err)
		}
		return Link{}, fmt.Errorf("this machine has no XenStore, or not for us (set XENSTORED_PATH if it is elsewhere): %w", errors.Join(all...))
	}
}

// serves reports whether the server is a program of the machine at root, now or once started. Xen's tools, when they
// start it in a domain of its own, write that domain's number in place of the program's.
func serves(root string) bool {
	able, _ := os.ReadFile(filepath.Join(root, "proc/xen/capabilities"))
	who, _ := os.ReadFile(filepath.Join(root, "var/run/xen/xenstored.pid"))
	return bytes.Contains(able, []byte("control_d")) && !bytes.HasPrefix(who, []byte("domid:"))
}

// either dials a path that is a socket or a device.
func either(path string) Dialer {
	info, err := os.Stat(path)
	if err == nil && info.Mode()&fs.ModeSocket == 0 {
		return Device(path)
	}
	return Socket(path)
}
