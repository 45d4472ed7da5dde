package local

import (
	"context"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pegasus/callbuf"
	"pegasus/hypervisor"
)

func open(t *testing.T, d hypervisor.Domain, serve func(context.Context, hypervisor.Newcomer)) hypervisor.Door {
	t.Helper()
	door, err := Adapter{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}.Open(t.Context(), d, serve, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { door.Close() })
	return door
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
	door := open(t, hypervisor.Domain{Name: "web", Mode: 0o600}, func(_ context.Context, n hypervisor.Newcomer) {
		defer n.Process().Close()
		if n.PID() != os.Getpid() || n.Features() != 6 {
			t.Errorf("newcomer is process %d with features %d", n.PID(), n.Features())
		}
		r, w, _ := os.Pipe()
		defer r.Close()
		defer w.Close()
		if err := n.Admit(callbuf.Welcome{Version: callbuf.Version, WorkerPID: 42}, r, w); err != nil {
			t.Error(err)
		}
	})
	w, fds := knock(t, door.Address(), callbuf.Hello{Version: callbuf.Version, Features: 6}.Append(nil))
	if w.Result != 0 || w.WorkerPID != 42 || len(fds) != callbuf.WelcomeFDs {
		t.Fatalf("welcome %+v with %d descriptors", w, len(fds))
	}
	for _, fd := range fds {
		unix.Close(fd)
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
			door := open(t, hypervisor.Domain{Name: "web", Mode: 0o600}, func(context.Context, hypervisor.Newcomer) {
				t.Error("was let in")
			})
			w, fds := knock(t, door.Address(), message)
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
	door := open(t, d, nil)
	var st unix.Stat_t
	if err := unix.Stat(door.Address(), &st); err != nil {
		t.Fatal(err)
	}
	if fs.FileMode(st.Mode&0o777) != 0o640 {
		t.Errorf("mode %o", st.Mode&0o777)
	}
	if os.Getuid() == 0 && (st.Uid != 12 || st.Gid != 34) {
		t.Errorf("owner %d:%d", st.Uid, st.Gid)
	}
	if entries, _ := os.ReadDir(filepath.Dir(door.Address())); len(entries) != 1 {
		t.Errorf("the directory holds %v", entries)
	}
	door.Close()
	if _, err := os.Stat(door.Address()); !os.IsNotExist(err) {
		t.Errorf("the socket outlives its door: %v", err)
	}
}

func TestUnknownOwnerIsNamed(t *testing.T) {
	_, err := Adapter{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}.Open(t.Context(),
		hypervisor.Domain{Name: "web", Owner: "nobody-of-that-name", Mode: 0o600}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "nobody-of-that-name") {
		t.Fatalf("error %v", err)
	}
}

// A path of the greatest length serves; a longer one is refused in words.
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
	door, err := a.Open(t.Context(), hypervisor.Domain{Name: name, Mode: 0o600}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	door.Close()
	if _, err := a.Open(t.Context(), hypervisor.Domain{Name: name + "s", Mode: 0o600}, nil, nil); err == nil || !strings.Contains(err.Error(), "108 bytes") {
		t.Errorf("a byte more: %v", err)
	}
}
