package xen

import (
	"context"
	"errors"
	"testing"
	"time"

	"pegasus/callbuf/region"
	"pegasus/xenstore"
	"pegasus/xenstore/memory"
)

// stores returns clients of Dom0 and a domU for one XenStore.
func stores(t *testing.T) (dom0, domU *xenstore.Client) {
	t.Helper()
	s := memory.New(memory.Options{})
	t.Cleanup(s.Close)
	dial := func(dom xenstore.DomID) *xenstore.Client {
		c, err := xenstore.DialAgain(t.Context(), s.Domain(dom))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dom0 = dial(0)
	for path, value := range map[string]string{"/local/domain/7/domid": "7", "/local/domain/7/data": ""} {
		if err := dom0.Write(t.Context(), path, []byte(value)); err != nil {
			t.Fatal(err)
		}
		perm := xenstore.Perm{Dom: 0, Access: xenstore.CanRead}
		if value == "" {
			perm = xenstore.Perm{Dom: 7, Access: xenstore.None}
		}
		if err := dom0.SetPerms(t.Context(), path, perm); err != nil {
			t.Fatal(err)
		}
	}
	return dom0, dial(7)
}

// Dom0 finds the rendezvous that an agent publishes, and none after it is withdrawn.
func TestRendezvous(t *testing.T) {
	dom0, domU := stores(t)
	if _, err := read(t.Context(), domU); !errors.Is(err, errNoRendezvous) {
		t.Errorf("before: %v", err)
	}
	r := rendezvous{control: 1234, port: 9}
	if err := publish(domU, &r); err != nil {
		t.Fatal(err)
	}
	const dir = "/local/domain/7/" + region.StoreDir + "/"
	for name, want := range map[string]string{"version": "1", "control": "1234", "port": "9", "state": "ready"} {
		if b, err := dom0.Read(t.Context(), dir+name); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if got, err := read(t.Context(), domU); err != nil || got != r || got.domain != "7" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := domU.Write(t.Context(), region.StoreDir+"/port", []byte("nine")); err != nil {
		t.Fatal(err)
	}
	if _, err := read(t.Context(), domU); !errors.Is(err, errNoRendezvous) {
		t.Errorf("nonsense: %v", err)
	}
	for range 2 {
		if err := withdraw(domU); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := dom0.List(t.Context(), "/local/domain/7/"+region.StoreDir); err == nil {
		t.Error("something is left")
	}
}

// An agent notices that Dom0 has lost it: the domU was restored, has another number, or another program has changed the
// nodes.
func TestMoved(t *testing.T) {
	for what, change := range map[string]func(ctx context.Context, dom0 *xenstore.Client) error{
		"removed": func(ctx context.Context, c *xenstore.Client) error {
			return c.Remove(ctx, "/local/domain/7/data/pegasus")
		},
		"another port": func(ctx context.Context, c *xenstore.Client) error {
			return c.Write(ctx, "/local/domain/7/data/pegasus/port", []byte("10"))
		},
		"another domain": func(ctx context.Context, c *xenstore.Client) error {
			if err := c.Write(ctx, "/local/domain/7/domid", []byte("8")); err != nil {
				return err
			}
			return c.Write(ctx, "/local/domain/7/data/pegasus/state", []byte("ready"))
		},
	} {
		dom0, domU := stores(t)
		r := rendezvous{control: 1234, port: 9}
		if err := publish(domU, &r); err != nil {
			t.Fatal(err)
		}
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		w, err := domU.Watch(ctx, region.StoreDir)
		if err != nil {
			t.Fatal(err)
		}
		seen := make(chan error, 1)
		go func() { seen <- watch(ctx, domU, w, r) }()
		if err := dom0.Write(ctx, "/local/domain/7/data/pegasus/other", nil); err != nil { // which is unrelated
			t.Fatal(err)
		}
		select {
		case err := <-seen:
			t.Errorf("%s: too early: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
		if err := change(ctx, dom0); err != nil {
			t.Fatal(err)
		}
		if err := <-seen; !errors.Is(err, errNoRendezvous) {
			t.Errorf("%s: %v", what, err)
		}
		w.Close(ctx)
		done()
	}
}
