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

// Link is what packets travel on. Each Write is one packet or several whole ones;
// Close ends a Read that waits.
type Link struct {
	io.ReadWriteCloser
	// Device says that it is the kernel's device, which does some things by itself: it
	// takes one packet a Write, of 4096 bytes with its header, and no other before it has
	// answered; answers by the Write's error when that fails; and has watches of its own in the server, all of which
	// RESET_WATCHES would remove. A Write may be within the kernel until the server answers, whatever is closed, and
	// Close with it.
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

// Socket dials the server's unix socket. While more wait there than the server lets wait, which is one or two, it tries again.
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
			case busy != nil: // and ctx has ended as a rule, before the dialer got as far as the socket
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

// Local finds the server of this machine much as Xen's own programs do: XENSTORED_PATH, a
// socket or a device, goes before all; then come the server's socket (in the directory
// XENSTORED_RUNDIR, if that is set) and the devices.
//
// Unlike these programs it leaves the devices alone where the server has its socket, also while that is away: whoever dials
// again gets to it when it is back. Dom0 has the devices, too, but all they do is pass on to that same server; and while there is none
// a watch waits within the kernel for its answer, which nothing ends, not even SIGKILL. So a device is opened only if there is no socket's
// file, and this isn't Dom0 (control_d in /proc/xen/capabilities) or Xen's tools have written that XenStore is in a domain
// of its own. Where something else has started such a domain, XENSTORED_PATH has to say so.
func Local() Dialer { return local("/") }

// local does that in the machine at root.
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
		case !errors.Is(err, fs.ErrNotExist): // there is a socket, so there is or was a server, and will be
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

// serves says whether the server is a program of the machine at root, or will be when it is started. Whoever starts it in a
// domain of its own writes that domain's number where the program's would be.
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
