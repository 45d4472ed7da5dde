package main

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "web.sock")
	if f := checkSocket(""); f.ok() || !strings.Contains(f.detail, "PEGASUS_SOCKET") {
		t.Errorf("no variable: %+v", f)
	}
	if f := checkSocket(path); f.ok() || !strings.Contains(f.detail, "doesn't exist") {
		t.Errorf("no socket: %+v", f)
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if f := checkSocket(path); !f.ok() {
		t.Errorf("listening: %+v", f)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	if f := checkSocket(path); f.ok() {
		t.Errorf("nobody listening: %+v", f)
	}
}

func TestLibrary(t *testing.T) {
	dir := t.TempDir()
	if f := checkLibrary([]string{dir}); f.ok() || !strings.Contains(f.detail, "finds no") {
		t.Errorf("no library: %+v", f)
	}
	path := filepath.Join(dir, library)
	if err := os.WriteFile(path, []byte("not ELF"), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := checkLibrary([]string{dir}); f.ok() || !strings.Contains(f.detail, "can't be loaded") {
		t.Errorf("no ELF file: %+v", f)
	}
	self, err := os.Executable() // an ELF file that isn't our library, though it has the name in it
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(path)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	if f := checkLibrary([]string{dir}); f.ok() || !strings.Contains(f.detail, "isn't Pegasus'") {
		t.Errorf("another library: %+v", f)
	}
}

func TestUsage(t *testing.T) {
	var out, errs strings.Builder
	if code := run(nil, &out, &errs); code != 2 || !strings.Contains(errs.String(), "usage:") {
		t.Errorf("no arguments: %d, %q", code, errs.String())
	}
	if code := run([]string{"dance"}, &out, &errs); code != 2 || !strings.Contains(errs.String(), `"dance"`) {
		t.Errorf("unknown: %d, %q", code, errs.String())
	}
}

// A port is good to have, and nothing fails without.
func TestPort(t *testing.T) {
	if f := checkPort("/dev/vport1p1", nil); !f.ok() || !strings.Contains(f.detail, "/dev/vport1p1") {
		t.Errorf("there: %+v", f)
	}
	if f := checkPort("", errors.New("none")); !f.ok() || !strings.Contains(f.detail, "pegasus attach") {
		t.Errorf("not there: %+v", f)
	}
}
