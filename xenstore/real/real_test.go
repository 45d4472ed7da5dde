package real

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"pegasus/xenstore"
)

// start runs a server until the test ends.
func start(t *testing.T) *Server {
	s, err := Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func dial(t *testing.T, d xenstore.Dialer) *xenstore.Client {
	c, err := xenstore.Dial(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// The server serves tools and domains, and notices ended domains.
func TestServer(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tools := dial(t, s.Socket())
	if err := tools.Write(ctx, "/local/domain/7/name", []byte("seven")); err != nil {
		t.Fatal(err)
	}
	if err := tools.SetPerms(ctx, "/local/domain/7/name", xenstore.Perm{Dom: 0}, xenstore.Perm{Access: xenstore.CanRead, Dom: 7}); err != nil {
		t.Fatal(err)
	}
	seven := dial(t, s.Domain(7))
	if name, err := seven.Read(ctx, "name"); err != nil || string(name) != "seven" {
		t.Errorf("name %q, %v", name, err)
	}
	if err := seven.Write(ctx, "name", nil); !errors.Is(err, syscall.EACCES) {
		t.Errorf("writing: %v", err)
	}
	gone, err := tools.Watch(ctx, xenstore.ReleaseDomain)
	if err != nil {
		t.Fatal(err)
	}
	for _, end := range []func(xenstore.DomID) error{func(xenstore.DomID) error { return nil }, s.Shutdown, s.Destroy} {
		if err := end(7); err != nil {
			t.Fatal(err)
		}
		if _, err := gone.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if ok, err := tools.IsIntroduced(ctx, 7); ok || err != nil {
		t.Errorf("a domain that is gone: %v, %v", ok, err)
	}
}

// A client that dials again finds the restarted server, which has an empty store, and sets its watches there again.
func TestRestart(t *testing.T) {
	s := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := xenstore.DialAgain(ctx, s.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Watch(ctx, "/v")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if e, err := w.Next(ctx); err != nil || e.Path != "/v" {
			t.Fatalf("%+v, %v", e, err)
		}
		if err := c.Write(ctx, "/v", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(ctx); err != nil {
			t.Fatal(err)
		}
		s.Stop()
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		_, err := c.Read(ctx, "/v")
		for errors.Is(err, xenstore.ErrLost) { // a call may precede the detection of the end
			_, err = c.Read(ctx, "/v")
		}
		if !errors.Is(err, syscall.ENOENT) {
			t.Fatal(err)
		}
	}
}
