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

// The server speaks with tools and with domains, and learns of domains that go.
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
