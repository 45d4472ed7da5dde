package control

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shortDir returns a directory whose sockets' paths are short enough.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func listen(t *testing.T, dir, path string) *Listener {
	t.Helper()
	l, err := Listen(dir, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// leave makes a socket at path without a listener.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// Wherever the socket is, the command finds it in the runtime directory, and both are removed when it closes.
func TestListen(t *testing.T) {
	for name, place := range map[string]func(dir, other string) string{
		"in the directory":           func(dir, _ string) string { return "" },
		"in the directory, by name":  func(dir, _ string) string { return filepath.Join(dir, SocketName) },
		"in the directory, by a way": func(dir, other string) string { return filepath.Join(other, "way", SocketName) },
		"elsewhere":                  func(_, other string) string { return filepath.Join(other, "here.sock") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, other := shortDir(t), shortDir(t)
			if err := os.Symlink(dir, filepath.Join(other, "way")); err != nil {
				t.Fatal(err)
			}
			path := place(dir, other)
			l := listen(t, dir, path)
			for _, p := range []string{path, filepath.Join(dir, SocketName)} {
				if p == "" {
					continue
				}
				c, err := net.Dial("unix", p)
				if err != nil {
					t.Errorf("at %s: %v", p, err)
					continue
				}
				c.Close()
			}
			l.Close()
			if got := append(entries(t, dir), entries(t, other)...); len(got) != 1 || got[0] != "way" {
				t.Errorf("left behind: %v", got)
			}
		})
	}
}

func TestListenAfterKilledDaemon(t *testing.T) {
	dir, other := shortDir(t), shortDir(t)
	path := filepath.Join(other, "here.sock")
	leave(t, path)
	if err := os.Symlink(path, filepath.Join(dir, SocketName)); err != nil {
		t.Fatal(err)
	}
	listen(t, dir, path).Close()
	leave(t, filepath.Join(dir, SocketName)) // of a daemon with another configuration
	listen(t, dir, path).Close()
	leave(t, path)
	if err := os.Symlink(path, filepath.Join(dir, SocketName)); err != nil {
		t.Fatal(err)
	}
	listen(t, dir, "")
	if got := entries(t, other); len(got) != 1 {
		t.Errorf("beside the daemon's own directory: %v", got)
	}
}

// Listen removes nothing but a socket without a listener.
func TestListenTakesNothingAway(t *testing.T) {
	dir, other := shortDir(t), shortDir(t)
	used, file, folder := filepath.Join(other, "used"), filepath.Join(other, "file"), filepath.Join(other, "folder")
	listen(t, other, used)
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		used:   "in use",
		file:   "is no socket",
		folder: "is no socket",
		filepath.Join(other, strings.Repeat("x", 100)): "may have 107",
	} {
		if _, err := Listen(dir, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if c, err := net.Dial("unix", used); err != nil {
		t.Errorf("the other daemon's socket: %v", err)
	} else {
		c.Close()
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if err := os.WriteFile(filepath.Join(dir, SocketName), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir, filepath.Join(other, "new")); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file in the link's place: %v", err)
	}
	if got := entries(t, other); len(got) != 4 { // used's link is the fourth
		t.Errorf("%v", got)
	}
}
