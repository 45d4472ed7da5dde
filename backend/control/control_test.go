package control

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// The kernel reports the process at the other end.
func TestPeer(t *testing.T) {
	l := listen(t, shortDir(t), "")
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := PeerOf(c.(*net.UnixConn))
	if err != nil || p.PID != os.Getpid() || p.UID != os.Getuid() || p.GID != os.Getgid() {
		t.Errorf("%+v, %v", p, err)
	}
	if !p.Member(os.Getgid()) || p.Member(987654) {
		t.Errorf("groups of %+v", p)
	}
}

// Every code has a status, and every status gives an error with a code.
func TestCodes(t *testing.T) {
	for code, status := range statuses {
		if e := Errorf(code, "%s", code); e.Status != status || e.Title == "" || e.Message != code {
			t.Errorf("%s: %+v", code, e)
		}
		if e := OfStatus(status, "text"); e.Status != status || statuses[e.Code] != status {
			t.Errorf("status %d: %+v", status, e)
		}
	}
	for status, code := range map[int]string{405: CodeMalformed, 415: CodeMalformed, 502: CodeInternal} {
		if e := OfStatus(status, "text"); e.Code != code || e.Status != status {
			t.Errorf("status %d: %+v, want code %s", status, e, code)
		}
	}
}

func TestMakeRuntimeDir(t *testing.T) {
	base := shortDir(t)
	dir := filepath.Join(base, "a", "b")
	if err := MakeRuntimeDir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := MakeRuntimeDir(dir, 0o700); err != nil {
		t.Errorf("a second time: %v", err)
	}
	link := filepath.Join(base, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := MakeRuntimeDir(link, 0o700); err == nil {
		t.Error("a link was taken")
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 4242, -1); err != nil {
			t.Fatal(err)
		}
		if err := MakeRuntimeDir(dir, 0o700); err == nil {
			t.Error("another user's directory was taken")
		}
	}
}
