// Package local lets processes of this host be guests: each domain has a unix
// socket, and whoever may connect there is that domain.
//
// The backend calls it by the hypervisor contract. Who may connect is decided by
// the socket's owner, group and mode; who did is what SO_PEERCRED says.
package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
)

// Adapter keeps the sockets of all domains in Dir.
type Adapter struct {
	Dir string
	Log *slog.Logger
}

// maxPath is how long the kernel lets a socket's path be, in bytes.
const maxPath = 107

// maxKnocking bounds the processes of one domain that wait for an answer.
const maxKnocking = 64

// Open implements hypervisor.Adapter.
func (a Adapter) Open(ctx context.Context, d hypervisor.Domain, serve func(context.Context, hypervisor.Newcomer), away func(error)) (hypervisor.Door, error) {
	path := filepath.Join(a.Dir, d.Name+".sock")
	l, err := listen(path, d)
	if err != nil {
		return nil, fmt.Errorf("socket of domain %q: %w", d.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	door := &door{path: path, l: l, cancel: cancel, serve: serve, away: away, log: a.Log.With("domain", d.Name)}
	door.all.Go(func() { door.accept(ctx) })
	return door, nil
}

// listen makes the socket under a name of its own and moves it into place, so
// that nobody ever finds it with the wrong owner or mode.
func listen(path string, d hypervisor.Domain) (*net.UnixListener, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("%s: its path has %d bytes, a socket's may have %d: use a shorter runtime directory or name", path, len(path), maxPath)
	}
	making := filepath.Join(filepath.Dir(path), "."+d.Name) // no longer than path
	os.Remove(making)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: making, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = own(making, d)
	if err == nil {
		err = os.Rename(making, path)
	}
	if err != nil {
		l.Close()
		os.Remove(making)
		return nil, err
	}
	return l, nil
}

func own(path string, d hypervisor.Domain) error {
	if err := os.Chmod(path, 0); err != nil {
		return err
	}
	uid, err := lookup(d.Owner, func(name string) (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
	if err != nil {
		return fmt.Errorf("socket_owner %q: %w", d.Owner, err)
	}
	gid, err := lookup(d.Group, func(name string) (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
	if err != nil {
		return fmt.Errorf("socket_group %q: %w", d.Group, err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		return err
	}
	return os.Chmod(path, d.Mode.Perm())
}

// lookup turns a name or number into an id; -1, which chown takes as "leave
// it", for none.
func lookup(name string, find func(string) (string, error)) (int, error) {
	if name == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	text, err := find(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// door is one domain's socket.
type door struct {
	path   string
	l      *net.UnixListener
	cancel context.CancelFunc
	serve  func(context.Context, hypervisor.Newcomer)
	away   func(error)
	all    sync.WaitGroup
	log    *slog.Logger
}

func (d *door) Address() string { return d.path }

func (d *door) Close() error {
	d.cancel()
	err := d.l.Close()
	os.Remove(d.path)
	return err
}

func (d *door) Wait() { d.all.Wait() }

func (d *door) accept(ctx context.Context) {
	slots := make(chan struct{}, maxKnocking)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := d.l.AcceptUnix()
		if err != nil {
			<-slots
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			d.log.Warn("accept a guest", "err", err)
			pause(ctx, 100*time.Millisecond)
			continue
		}
		d.all.Go(func() {
			defer func() { <-slots }()
			d.welcome(ctx, c)
		})
	}
}

func (d *door) welcome(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	n, err := meet(c)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errSilent) {
			d.away(err)
		}
		return
	}
	if !speaksForAnother(n.hello) {
		d.serve(ctx, n)
	} else if l, err := newLender(n); err != nil {
		d.away(err)
	} else {
		d.serve(ctx, l)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// control runs f on the connection's descriptor.
func control(c *net.UnixConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// peer asks the kernel who connected, and opens a pidfd of exactly that process.
func peer(c *net.UnixConn) (pid, uid int, process *os.File, err error) {
	err = control(c, func(fd int) error {
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			return fmt.Errorf("peer credentials: %w", err)
		}
		if cred.Pid <= 0 {
			return errors.New("the peer is in no process namespace of ours")
		}
		pid, uid = int(cred.Pid), int(cred.Uid)
		process, err = openProcess(fd, pid)
		return err
	})
	return pid, uid, process, err
}

// openProcess prefers SO_PEERPIDFD (Linux 6.5), which can't be fooled by a
// reused pid.
func openProcess(fd, pid int) (*os.File, error) {
	p, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		if p, err = unix.PidfdOpen(pid, 0); err != nil {
			return nil, fmt.Errorf("open process %d: %w", pid, err)
		}
	}
	unix.CloseOnExec(p)
	return os.NewFile(uintptr(p), fmt.Sprintf("pidfd:%d", pid)), nil
}
