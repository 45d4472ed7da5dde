package memory

import (
	"errors"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"pegasus/xenstore"
)

func dial(t *testing.T, d xenstore.Dialer) *xenstore.Client {
	c, err := xenstore.Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Package xenstoretest covers a server's behaviour; this tests the extensions of this one.
func TestServer(t *testing.T) {
	s := New(Options{Quota: Quota{NodeBytes: 100}, Exists: func(d xenstore.DomID) bool { return d < 10 }})
	t.Cleanup(s.Close)
	ctx := t.Context()
	one, two := dial(t, s.Domain(7)), dial(t, s.Domain(7))
	tools := dial(t, s.Domain(0))
	if err := tools.Mkdir(ctx, "/local/domain/7"); err != nil {
		t.Fatal(err)
	}
	if err := tools.SetPerms(ctx, "/local/domain/7", xenstore.Perm{Dom: 7}); err != nil {
		t.Fatal(err)
	}
	if err := one.Write(ctx, "v", []byte("shared")); err != nil {
		t.Error(err)
	}
	if got, err := two.Read(ctx, "v"); err != nil || string(got) != "shared" {
		t.Errorf("%q, %v", got, err)
	}
	if err := one.Write(ctx, "v", make([]byte, 100)); !errors.Is(err, xenstore.ErrQuota) {
		t.Errorf("beyond the quota: %v", err)
	}
	if err := tools.SetPerms(ctx, "/local/domain/7/v", xenstore.Perm{Dom: 11}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("an owner who doesn't exist: %v", err)
	}
	s.Disconnect()
	<-one.Done()
	<-tools.Done()
	again := dial(t, s.Domain(7))
	if got, err := again.Read(ctx, "v"); err != nil || string(got) != "shared" {
		t.Errorf("after the connection was lost: %q, %v", got, err)
	}
	s.Destroy(7)
	<-again.Done()
	s.Close()
	if _, err := xenstore.Dial(ctx, s.Domain(0)); err == nil {
		t.Error("a server that was closed takes connections")
	}
}

// Serve works on a socket, as Xen's server does.
func TestServe(t *testing.T) {
	s := New(Options{})
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- s.Serve(l) }()
	c := dial(t, xenstore.Socket(path))
	if err := c.Write(t.Context(), "/v", nil); err != nil {
		t.Error(err)
	}
	l.Close()
	<-ended
	s.Close()
	<-c.Done()
}

// The requests of a peer that doesn't read stop being handled, and other peers aren't blocked.
func TestSilent(t *testing.T) {
	s := New(Options{})
	t.Cleanup(s.Close)
	silent, err := s.Domain(0)(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range 100_000 {
			if _, err := silent.Write([]byte("\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x005\x00")); err != nil {
				return
			}
		}
		t.Error("100,000 requests are taken from who doesn't read the answers")
	}()
	c := dial(t, s.Domain(0))
	for range 100 {
		if err := c.Write(t.Context(), "/v", nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	for _, p := range s.peers {
		if len(p.out) > outMax+1 {
			t.Errorf("%d answers are held for who doesn't read", len(p.out))
		}
	}
	s.mu.Unlock()
	silent.Close()
}

// A domain's permissions don't pass to the next domain of its number. Xen's server was seen to ensure that also where
// a transaction removes the node.
func TestRightsEndWithDomain(t *testing.T) {
	s := New(Options{})
	t.Cleanup(s.Close)
	ctx := t.Context()
	tools := dial(t, s.Domain(0))
	first := dial(t, s.Domain(7))
	for _, path := range []string{"/one", "/two", "/three", "/public"} {
		if err := tools.Write(ctx, path, nil); err != nil {
			t.Fatal(err)
		}
		perms := []xenstore.Perm{{Dom: 0}, {Dom: 7, Access: xenstore.ReadWrite}}
		if path == "/public" {
			perms = []xenstore.Perm{{Dom: 0, Access: xenstore.CanRead}}
		}
		if err := tools.SetPerms(ctx, path, perms...); err != nil {
			t.Fatal(err)
		}
	}
	s.Destroy(7)
	<-first.Done()

	second := dial(t, s.Domain(7))
	w, err := second.Watch(ctx, "/")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := w.Next(ctx); err != nil || e.Path != "/" {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := errors.Join(
		tools.Update(ctx, func(tx *xenstore.Tx) error { return tx.Remove(ctx, "/one") }),
		tools.Update(ctx, func(tx *xenstore.Tx) error { return tx.SetPerms(ctx, "/two", xenstore.Perm{Dom: 0}) }),
		tools.SetPerms(ctx, "/three", xenstore.Perm{Dom: 0}),
		tools.Write(ctx, "/public", []byte("news")),
	); err != nil {
		t.Fatal(err)
	}
	if e, err := w.Next(ctx); err != nil || e.Path != "/public" {
		t.Errorf("it learns of %q, %v", e.Path, err)
	}
}
