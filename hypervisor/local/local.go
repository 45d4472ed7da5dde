// Package local lets processes of this host be guests: each domain has a unix socket, and a process that may connect
// there is a guest of that domain.
//
// A domain's socket is NAME/sock. The directory NAME lives as long as the domain, over restarts of the daemon, so
// that a container's mount of the directory reaches the socket of every later daemon. NAME.sock is a link to the
// socket, for programs with the older path.
//
// Callers: the backend, by the hypervisor contract.
//
// Trust boundary: the socket's owner, group and mode control access; SO_PEERCRED identifies the process. A container
// may be able to write into the directory that it mounts, so the adapter creates sockets beside the directories and
// renames them into place.
package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/hypervisor"
)

// Adapter keeps the directories and sockets of all domains in Dir.
type Adapter struct {
	Dir string
	Log *slog.Logger
}

// maxPath is the kernel's limit of a socket's path, in bytes.
const maxPath = 107

// maxKnocking bounds the processes of one domain that wait for an answer.
const maxKnocking = 64

const (
	socketName = "sock"
	linkSuffix = ".sock"
)

// Socket returns the path of a domain's socket below the directory of all domains.
func Socket(dir, domain string) string { return filepath.Join(dir, domain, socketName) }

// Open implements hypervisor.Adapter.
func (a Adapter) Open(ctx context.Context, d hypervisor.Domain, serve func(context.Context, hypervisor.Connection), away func(error)) (hypervisor.Endpoint, error) {
	p := a.place(d.Name)
	l, id, err := p.listen(d)
	if errors.Is(err, unix.EMFILE) {
		err = fmt.Errorf("%w; raise the daemon's RLIMIT_NOFILE (LimitNOFILE= of its unit)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("socket of domain %q: %w", d.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	endpoint := &endpoint{place: p, l: l, id: id, guard: d, cancel: cancel, serve: serve, away: away, log: a.Log.With("domain", d.Name)}
	endpoint.all.Go(func() { endpoint.accept(ctx) })
	return endpoint, nil
}

// Sweep implements hypervisor.Adapter.
func (a Adapter) Sweep(keep func(domain string) bool) error {
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		name := e.Name()
		switch {
		case e.IsDir() && !keep(name):
			all = append(all, a.place(name).clear())
		case !e.IsDir() && strings.HasPrefix(name, "."), // a killed daemon was creating this
			!e.IsDir() && strings.HasSuffix(name, linkSuffix) && !keep(strings.TrimSuffix(name, linkSuffix)):
			all = append(all, os.Remove(filepath.Join(a.Dir, name)))
		}
	}
	return errors.Join(all...)
}

// place is the paths of one domain.
type place struct {
	dir    string // the domain's directory, which containers mount
	socket string // in dir
	link   string // the older path of socket
	making string // a new socket or link before its rename to one of the above; no longer than these
}

func (a Adapter) place(name string) place {
	dir := filepath.Join(a.Dir, name)
	return place{dir, Socket(a.Dir, name), dir + linkSuffix, filepath.Join(a.Dir, "."+name)}
}

// listen creates the socket under a temporary name and renames it into place, so that
// no process finds it with the wrong owner or mode. An existing directory stays.
func (p place) listen(d hypervisor.Domain) (*net.UnixListener, identity, error) {
	var id identity
	if len(p.socket) > maxPath {
		return nil, id, fmt.Errorf("%s: its path has %d bytes, a socket's may have %d: use a shorter runtime directory or name", p.socket, len(p.socket), maxPath)
	}
	fresh, err := makeDir(p.dir)
	if err != nil {
		return nil, id, err
	}
	os.Remove(p.making)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: p.making, Net: "unixpacket"})
	if err == nil {
		l.SetUnlinkOnClose(false)
		if id, err = identify(unix.AT_FDCWD, p.making); err == nil {
			err = p.install(d)
		}
		if err != nil {
			l.Close()
			os.Remove(p.making)
			os.Remove(p.socket)
		}
	}
	if err != nil && fresh {
		os.Remove(p.dir)
	}
	if err != nil {
		return nil, id, err
	}
	return l, id, nil
}

// identity distinguishes a socket from every other file, whatever its name.
type identity struct{ device, inode uint64 }

// identify returns the identity of the socket at a path, or of a descriptor if the path is empty.
func identify(fd int, path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(fd, path, &st, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return identity{}, fmt.Errorf("stat the socket: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return identity{}, errNoSocket
	}
	return identity{st.Dev, st.Ino}, nil
}

var errNoSocket = errors.New("the file is no socket")

// makeDir creates a domain's directory, which every user may enter: the socket's mode decides about
// connections. It reports whether the directory is new.
func makeDir(path string) (fresh bool, err error) {
	err = os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		info, err := os.Lstat(path)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%s is in the way, and is no directory: move it away", path)
		}
		return false, err
	}
	if err != nil {
		return false, err
	}
	return true, os.Chmod(path, 0o755) // independent of the umask
}

// install sets the socket's owner and mode, renames it into place, and creates the link.
func (p place) install(d hypervisor.Domain) error {
	if err := own(p.making, d, 0); err != nil {
		return err
	}
	err := os.Rename(p.making, p.socket)
	if info, is := os.Lstat(p.socket); err != nil && is == nil && info.IsDir() { // made by a container with a writable mount
		err = errors.Join(os.RemoveAll(p.socket), os.Rename(p.making, p.socket))
	}
	if err != nil {
		return err
	}
	target := filepath.Join(filepath.Base(p.dir), socketName)
	if is, err := os.Readlink(p.link); err == nil && is == target {
		return nil
	}
	if err := os.Symlink(target, p.making); err != nil {
		return err
	}
	return os.Rename(p.making, p.link)
}

// clear removes link, socket and directory. A directory with other files in it stays.
func (p place) clear() error {
	return errors.Join(remove(p.link), remove(p.socket), remove(p.dir))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// own sets a socket's owner, group and mode; until all are set, the socket has the mode meanwhile.
func own(path string, d hypervisor.Domain, meanwhile fs.FileMode) error {
	if err := os.Chmod(path, meanwhile.Perm()); err != nil {
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

// lookup returns the id of a name or number; -1, with which chown makes no change, for none.
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

// endpoint is one domain's socket, with the goroutines that serve its connections. mu guards guard.
type endpoint struct {
	place  place
	l      *net.UnixListener
	id     identity
	cancel context.CancelFunc
	serve  func(context.Context, hypervisor.Connection)
	away   func(error)
	all    sync.WaitGroup
	log    *slog.Logger

	mu    sync.Mutex
	guard hypervisor.Domain // the current access settings
}

func (e *endpoint) Address() string { return e.place.socket }

// Guard changes the socket itself, so that mounts of it and processes that wait for an answer see no gap. The
// socket is found by its identity: a container may have put another file in its place.
func (e *endpoint) Guard(to hypervisor.Domain) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	fd, err := unix.Open(e.place.socket, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket of domain %q: %w", to.Name, err)
	}
	defer unix.Close(fd)
	if id, err := identify(fd, ""); err != nil || id != e.id {
		return fmt.Errorf("socket of domain %q: another file is in its place, %s; restart the daemon", to.Name, e.place.socket)
	}
	if to.Owner == "" {
		to.Owner = strconv.Itoa(os.Geteuid())
	}
	if to.Group == "" {
		to.Group = strconv.Itoa(os.Getegid())
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	if err := own(path, to, e.guard.Mode&to.Mode); err != nil {
		return errors.Join(fmt.Errorf("socket of domain %q: %w", to.Name, err), os.Chmod(path, e.guard.Mode.Perm()))
	}
	e.guard = to
	return nil
}

func (e *endpoint) Close() error { return errors.Join(e.Leave(), e.place.clear()) }

func (e *endpoint) Leave() error {
	e.cancel()
	return e.l.Close()
}

func (e *endpoint) Wait() { e.all.Wait() }

func (e *endpoint) accept(ctx context.Context) {
	slots := make(chan struct{}, maxKnocking)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		c, err := e.l.AcceptUnix()
		if err != nil {
			<-slots
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return
			}
			e.log.Warn("accept a guest", "err", err)
			pause(ctx, 100*time.Millisecond)
			continue
		}
		e.all.Go(func() {
			defer func() { <-slots }()
			e.welcome(ctx, c)
		})
	}
}

func (e *endpoint) welcome(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	n, err := meet(c)
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errSilent) {
			e.away(err)
		}
		return
	}
	if !speaksForAnother(n.hello) {
		e.serve(ctx, n)
	} else if l, err := newLender(n); err != nil {
		e.away(err)
	} else {
		e.serve(ctx, l)
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

// peer returns the connected process from the kernel, with a pidfd of exactly that process.
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

// openProcess prefers SO_PEERPIDFD (Linux 6.5), which is safe against a reused pid.
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
