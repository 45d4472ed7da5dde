package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/hypervisor"
)

func open(t *testing.T, d hypervisor.Domain, serve func(context.Context, hypervisor.Connection)) hypervisor.Endpoint {
	t.Helper()
	endpoint, err := Adapter{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}.Open(t.Context(), d, serve, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endpoint.Close() })
	return endpoint
}

func knock(t *testing.T, path string, message []byte) (callbuf.Welcome, []int) {
	t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(message); err != nil {
		t.Fatal(err)
	}
	buf, oob := make([]byte, 512), make([]byte, 512)
	n, on, _, _, err := c.ReadMsgUnix(buf, oob)
	if err != nil {
		t.Fatal(err)
	}
	w, err := callbuf.ParseWelcome(buf[:n])
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:on])
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			t.Fatal(err)
		}
		fds = append(fds, got...)
	}
	return w, fds
}

func TestAdmit(t *testing.T) {
	endpoint := open(t, hypervisor.Domain{Name: "web", Mode: 0o600}, func(_ context.Context, n hypervisor.Connection) {
		defer n.Process().Close()
		if n.PID() != os.Getpid() || n.Features() != 6 {
			t.Errorf("connection is process %d with features %d", n.PID(), n.Features())
		}
		r, w, _ := os.Pipe()
		defer r.Close()
		defer w.Close()
		if err := n.Admit(callbuf.Welcome{Version: callbuf.Version, WorkerPID: 42}, r, w); err != nil {
			t.Error(err)
		}
	})
	w, fds := knock(t, endpoint.Address(), callbuf.Hello{Version: callbuf.Version, Features: 6}.Append(nil))
	if w.Result != 0 || w.WorkerPID != 42 || len(fds) != callbuf.WelcomeFDs {
		t.Fatalf("welcome %+v with %d descriptors", w, len(fds))
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Processes that send nothing, hang up at each step or read no answer hold their own connections for a limited time,
// and another process is let in meanwhile.
func TestKnockersThatHang(t *testing.T) {
	hello := callbuf.Hello{Version: callbuf.Version}.Append(nil)
	endpoint := open(t, hypervisor.Domain{Name: "web", Mode: 0o600}, func(_ context.Context, n hypervisor.Connection) {
		defer n.Process().Close()
		n.Admit(callbuf.Welcome{Version: callbuf.Version, WorkerPID: 42}, os.Stdin, os.Stdin)
	})
	var silent []*net.UnixConn
	for range maxKnocking / 8 {
		for name, behave := range map[string]func(*net.UnixConn){
			"says nothing":     func(*net.UnixConn) {},
			"hangs up":         func(c *net.UnixConn) { c.Close() },
			"says no more":     func(c *net.UnixConn) { c.CloseWrite() },
			"reads nothing":    func(c *net.UnixConn) { c.CloseRead(); c.Write(hello) },
			"trickles":         func(c *net.UnixConn) { c.Write(hello[:1]); c.Write(hello[1:]) },
			"hangs up on that": func(c *net.UnixConn) { c.Write(hello); c.Close() },
		} {
			c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: endpoint.Address(), Net: "unixpacket"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if behave(c); name == "says nothing" {
				silent = append(silent, c)
			}
		}
	}
	w, fds := knock(t, endpoint.Address(), hello)
	for _, fd := range fds {
		unix.Close(fd)
	}
	if w.WorkerPID != 42 {
		t.Errorf("beside them: %+v", w)
	}
	for _, c := range silent {
		c.SetReadDeadline(time.Now().Add(10 * helloTime))
		if n, err := c.Read(make([]byte, 1)); n > 0 || os.IsTimeout(err) {
			t.Fatalf("one that says nothing is waited for without an end: %v", err)
		}
	}
}

func TestStrangeHello(t *testing.T) {
	for name, message := range map[string][]byte{
		"short":   {1},
		"long":    make([]byte, 4096),
		"magic":   make([]byte, callbuf.HelloBytes),
		"version": callbuf.Hello{Version: 99}.Append(nil),
	} {
		t.Run(name, func(t *testing.T) {
			endpoint := open(t, hypervisor.Domain{Name: "web", Mode: 0o600}, func(context.Context, hypervisor.Connection) {
				t.Error("was let in")
			})
			w, fds := knock(t, endpoint.Address(), message)
			if w.Result != resultSystemDriverMismatch || w.Message == "" || len(fds) != 0 {
				t.Errorf("answer %+v with %d descriptors", w, len(fds))
			}
		})
	}
}

func TestSocketBelongsToItsOwner(t *testing.T) {
	d := hypervisor.Domain{Name: "web", Mode: 0o640}
	if os.Getuid() == 0 {
		d.Owner, d.Group = "12", "34"
	}
	endpoint := open(t, d, nil)
	var st unix.Stat_t
	if err := unix.Stat(endpoint.Address(), &st); err != nil {
		t.Fatal(err)
	}
	if fs.FileMode(st.Mode&0o777) != 0o640 {
		t.Errorf("mode %o", st.Mode&0o777)
	}
	if os.Getuid() == 0 && (st.Uid != 12 || st.Gid != 34) {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	if entries, _ := os.ReadDir(filepath.Dir(endpoint.Address())); len(entries) != 1 {
		t.Errorf("the directory holds %v", entries)
	}
	if info, err := os.Stat(filepath.Dir(endpoint.Address())); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("not everybody may look for the socket: %v, %v", info.Mode(), err)
	}
	endpoint.Close()
	if _, err := os.Stat(endpoint.Address()); !os.IsNotExist(err) {
		t.Errorf("the socket outlives its endpoint: %v", err)
	}
}

func TestUnknownOwnerIsNamed(t *testing.T) {
	_, err := Adapter{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}.Open(t.Context(),
		hypervisor.Domain{Name: "web", Owner: "nobody-of-that-name", Mode: 0o600}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "nobody-of-that-name") {
		t.Fatalf("error %v", err)
	}
}

// A path of the maximum length works; a longer one is refused with a message.
func TestLongPath(t *testing.T) {
	base, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	const name = "web"
	dir := filepath.Join(base, strings.Repeat("d", maxPath-len(base)-len("/"+"/"+name+".sock")))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	a := Adapter{Dir: dir, Log: slog.New(slog.DiscardHandler)}
	endpoint, err := a.Open(t.Context(), hypervisor.Domain{Name: name, Mode: 0o600}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	endpoint.Close()
	if _, err := a.Open(t.Context(), hypervisor.Domain{Name: name + "s", Mode: 0o600}, nil, nil); err == nil || !strings.Contains(err.Error(), "108 bytes") {
		t.Errorf("a byte more: %v", err)
	}
}

// adapter returns an Adapter of a directory with a short enough path.
func adapter(t *testing.T) Adapter {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Adapter{Dir: dir, Log: slog.New(slog.DiscardHandler)}
}

// opens opens a domain's endpoint. The endpoint's guests receive the given worker PID.
func (a Adapter) opens(t *testing.T, name string, pid uint32) hypervisor.Endpoint {
	t.Helper()
	endpoint, err := a.Open(t.Context(), hypervisor.Domain{Name: name, Mode: 0o600}, func(_ context.Context, n hypervisor.Connection) {
		defer n.Process().Close()
		n.Admit(callbuf.Welcome{Version: callbuf.Version, WorkerPID: pid}, os.Stdin, os.Stdin)
	}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { endpoint.Leave() })
	return endpoint
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

// A domain's directory keeps its inode over daemons, and a reference to it, such as a container's mount, leads to
// the socket of the latest daemon, as does the older path.
func TestDirectoryStays(t *testing.T) {
	a := adapter(t)
	link := filepath.Join(a.Dir, "web.sock")
	stale, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: link, Net: "unixpacket"}) // an older release's
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	endpoint := a.opens(t, "web", 1)
	if err := os.Chmod(filepath.Join(a.Dir, "web"), 0o711); err != nil { // an operator's choice
		t.Fatal(err)
	}
	first, mount := inode(t, filepath.Join(a.Dir, "web")), openDir(t, filepath.Join(a.Dir, "web"))
	for n := uint32(2); n < 5; n++ {
		endpoint.Leave()
		if _, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: mount + "/sock", Net: "unixpacket"}); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("without a daemon: %v", err)
		}
		endpoint = a.opens(t, "web", n)
		for _, path := range []string{mount + "/sock", link, endpoint.Address()} {
			w, fds := knock(t, path, callbuf.Hello{Version: callbuf.Version}.Append(nil))
			for _, fd := range fds {
				unix.Close(fd)
			}
			if w.WorkerPID != n {
				t.Errorf("%s leads to daemon %d, want %d", path, w.WorkerPID, n)
			}
		}
	}
	if now := inode(t, filepath.Join(a.Dir, "web")); now != first {
		t.Errorf("the directory was inode %d and is %d", first, now)
	}
	if target, err := os.Readlink(link); err != nil || target != "web/sock" {
		t.Errorf("the link leads to %q, %v", target, err)
	}
	endpoint.Close()
	if entries, _ := os.ReadDir(a.Dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// Owner, group and mode of a socket change in place, by its identity: what a container puts in its place, and what a
// link there leads to, keep theirs.
func TestGuard(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("run the tests as root: this one gives a socket to another user")
	}
	a := adapter(t)
	endpoint := a.opens(t, "web", 1)
	mount := openDir(t, filepath.Join(a.Dir, "web")) + "/sock"
	before := inode(t, mount)
	look := func() (uid, gid, mode uint32) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Lstat(mount, &st); err != nil {
			t.Fatal(err)
		}
		return st.Uid, st.Gid, st.Mode & 0o7777
	}
	for _, c := range []struct {
		to             hypervisor.Domain
		uid, gid, mode uint32
	}{
		{hypervisor.Domain{Name: "web", Owner: "1234", Group: "4321", Mode: 0o660}, 1234, 4321, 0o660},
		{hypervisor.Domain{Name: "web", Group: "4321", Mode: 0o666}, 0, 4321, 0o666},
		{hypervisor.Domain{Name: "web", Owner: "no-such-user", Mode: 0o600}, 0, 4321, 0o666},
		{hypervisor.Domain{Name: "web", Mode: 0o600}, 0, 0, 0o600},
	} {
		err := endpoint.Guard(c.to)
		if uid, gid, mode := look(); uid != c.uid || gid != c.gid || mode != c.mode || (err != nil) != (c.to.Owner == "no-such-user") {
			t.Errorf("%+v: %d:%d %o, %v; want %d:%d %o", c.to, uid, gid, mode, err, c.uid, c.gid, c.mode)
		}
	}
	if now := inode(t, mount); now != before {
		t.Errorf("the socket was inode %d and is %d", before, now)
	}
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"a link":         func() error { return os.Symlink(precious, endpoint.Address()) },
		"another's link": func() error { return os.Link(precious, endpoint.Address()) },
		"nothing":        func() error { return nil },
	} {
		os.Remove(endpoint.Address())
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if err := endpoint.Guard(hypervisor.Domain{Name: "web", Owner: "1234", Mode: 0o666}); err == nil {
			t.Errorf("%s in the socket's place: no error", name)
		}
		if info, err := os.Stat(precious); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s in the socket's place: %v, %v", name, info, err)
		}
	}
}

// openDir returns a path that refers to a directory by its inode.
func openDir(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd())
}

// The next daemon's socket replaces anything that a container wrote in its place, and the target of a planted link
// stays unchanged.
func TestSpoiledDirectory(t *testing.T) {
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(socket string) error{
		"a directory": func(s string) error { return os.MkdirAll(filepath.Join(s, "full", "of"), 0o755) },
		"a link":      func(s string) error { return os.Symlink(precious, s) },
		"a file":      func(s string) error { return os.WriteFile(s, []byte("x"), 0o644) },
		"nothing":     func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			a := adapter(t)
			endpoint := a.opens(t, "web", 1)
			endpoint.Leave()
			if err := os.Remove(endpoint.Address()); err != nil {
				t.Fatal(err)
			}
			if err := spoil(endpoint.Address()); err != nil {
				t.Fatal(err)
			}
			_, fds := knock(t, a.opens(t, "web", 2).Address(), callbuf.Hello{Version: callbuf.Version}.Append(nil))
			for _, fd := range fds {
				unix.Close(fd)
			}
			if info, err := os.Stat(precious); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}

// Sweep removes the paths of ended domains, unfinished sockets of a killed daemon, and sockets of an older
// release.
func TestSweep(t *testing.T) {
	a := adapter(t)
	for _, name := range []string{"stays", "goes", "full"} {
		a.opens(t, name, 1).Leave()
	}
	for _, path := range []string{"full/precious", ".making", "old.sock"} {
		if err := os.WriteFile(filepath.Join(a.Dir, path), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Sweep(func(name string) bool { return name == "stays" }); err == nil {
		t.Error("a directory with somebody's file in it was removed")
	}
	var left []string
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"full", "stays", "stays.sock"}; !slices.Equal(left, want) {
		t.Errorf("left: %v, want %v", left, want)
	}
}

// A failed Open leaves nothing behind and names the remedy.
func TestNoDescriptors(t *testing.T) {
	a := adapter(t)
	f, err := os.Open(a.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := was
	few.Cur = uint64(f.Fd()) + 1
	f.Close()
	g, err := os.Open(a.Dir) // takes the last
	if err == nil {
		defer g.Close()
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err = a.Open(t.Context(), hypervisor.Domain{Name: "web", Mode: 0o600}, nil, nil)
	if err2 := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err2 != nil {
		t.Fatal(err2)
	}
	if err == nil || !strings.Contains(err.Error(), "LimitNOFILE") {
		t.Errorf("error %v", err)
	}
	if entries, _ := os.ReadDir(a.Dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}
