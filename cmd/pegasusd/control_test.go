package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pegasus/backend/client"
	"pegasus/backend/control"
)

// shortDir is a directory for sockets, which have paths of at most 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A control socket at another path is found through the runtime directory, remains the daemon's own, and is
// removed from its original path, even if the file has changed by then.
func TestControlSocketElsewhere(t *testing.T) {
	other := shortDir(t)
	at := func(name string) string {
		return twoDomains + fmt.Sprintf("[daemon]\ncontrol_socket = %q\n", filepath.Join(other, name))
	}
	h := newHost(t, at("one.sock"))
	h.domain("a") // by the link

	start := time.Now()
	second := &host{t: t, dir: h.dir}
	if said := second.tryStart(); !strings.Contains(said, "has a daemon already") || time.Since(start) > 30*time.Second {
		t.Errorf("a second daemon of the directory says %q after %v", said, time.Since(start))
	}
	second.stop()
	third := &host{t: t, dir: shortDir(t)}
	third.configure(at("one.sock"))
	if said := third.tryStart(); !strings.Contains(said, "is in use") {
		t.Errorf("a daemon with the same control socket says %q", said)
	}
	third.stop()
	if _, err := os.Lstat(filepath.Join(third.dir, control.SocketName)); err == nil {
		t.Error("the refused daemon leaves a link")
	}

	precious := filepath.Join(other, "two.sock")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.configure(at("two.sock"))
	if _, err := h.api().Reload(bg); err != nil {
		t.Fatal(err)
	}
	h.stop()
	if _, err := os.Lstat(precious); err != nil {
		t.Errorf("a file of another's: %v", err)
	}
	for _, path := range []string{filepath.Join(other, "one.sock"), filepath.Join(h.dir, control.SocketName)} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
	if said := h.tryStart(); !strings.Contains(said, "is no socket") {
		t.Errorf("with a file in the socket's place the daemon says %q", said)
	}
}

// A caller beyond the most connections reads the reason of its refusal, and the log has the refusals once.
func TestTooManyConnections(t *testing.T) {
	h := newHost(t, twoDomains)
	path := filepath.Join(h.dir, control.SocketName)
	var all []*client.Client
	for range 256 {
		c, err := client.Dial(path)
		if err == nil {
			_, err = c.Status(bg)
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for range 20 {
		c, err := client.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Status(bg)
		var e *control.Error
		if !errors.As(err, &e) || e.Code != control.CodeConflict || !strings.Contains(e.Message, "256 connections") {
			t.Errorf("got %v, want the number of connections", err)
		}
		c.Close()
	}
	for _, c := range all {
		c.Close()
	}
	h.eventually("the daemon serves another", func() bool {
		c, err := client.Dial(path)
		if err != nil {
			return false
		}
		defer c.Close()
		_, err = c.Status(bg)
		return err == nil
	})
	log, err := os.ReadFile(filepath.Join(h.dir, "log"))
	if n := strings.Count(string(log), "too many connections"); err != nil || n != 1 {
		t.Errorf("the log has %d refusals, want 1: %s, %v", n, log, err)
	}
}
