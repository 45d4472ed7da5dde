package xenstoretest

import (
	"context"
	"testing"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
	"pegasus/xenstore/real"
)

// try runs all cases for a target.
func try(t *testing.T, target Target) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if !c.Fits(target) {
				t.Skipf("it is for who %s", c.Needs)
			}
			if err := c.Run(t.Context(), target); err != nil {
				t.Error(err)
			}
		})
	}
}

// tools returns the target of a server as domain 0.
func tools(dial xenstore.Dialer, as func(xenstore.DomID) xenstore.Dialer) Target {
	return Target{Dial: dial, As: as, Quotas: true, Base: "/conformance"}
}

// asGuest returns the target as a domain with a home.
func asGuest(t *testing.T, tools, guest xenstore.Dialer, dom xenstore.DomID) Target {
	c, err := xenstore.Dial(t.Context(), tools)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	home, err := c.DomainPath(t.Context(), dom)
	if err == nil {
		err = c.Mkdir(t.Context(), home)
	}
	if err == nil {
		err = c.SetPerms(t.Context(), home, xenstore.Perm{Dom: dom})
	}
	if err != nil {
		t.Fatal(err)
	}
	return Target{Dial: guest, Dom: dom, Base: "data/conformance"}
}

func TestMemory(t *testing.T) {
	s := memory.New(memory.Options{})
	t.Cleanup(s.Close)
	target := tools(s.Domain(0), s.Domain)
	target.Destroy = func(d xenstore.DomID) error { s.Destroy(d); return nil }
	target.Shutdown = func(d xenstore.DomID) error { s.Shutdown(d); return nil }
	t.Run("tools", func(t *testing.T) { try(t, target) })
	for name, old := range map[string]bool{"device": false, "old device": true} {
		target := target
		target.Dial, target.Device = memory.Device(s.Domain(0), old), true
		t.Run(name, func(t *testing.T) { try(t, target) })
	}
	t.Run("guest", func(t *testing.T) { try(t, asGuest(t, s.Domain(0), s.Domain(5), 5)) })
}

func TestReal(t *testing.T) {
	s, err := real.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	t.Logf("the server of Xen %s", s.Version)
	target := tools(s.Socket(), s.Domain)
	target.Destroy, target.Shutdown = s.Destroy, s.Shutdown
	t.Run("tools", func(t *testing.T) { try(t, target) })
	t.Run("ring", func(t *testing.T) {
		target := asGuest(t, s.Socket(), s.Domain(5), 5)
		target.Single = true
		try(t, target)
	})
	t.Run("device", func(t *testing.T) {
		target := asGuest(t, s.Socket(), memory.Device(s.Domain(6), false), 6)
		target.Single, target.Device = true, true
		try(t, target)
	})
}

// A failing case returns its failures, and a panicking one, too.
func TestFailures(t *testing.T) {
	s := memory.New(memory.Options{})
	t.Cleanup(s.Close)
	for _, c := range []Case{
		{Name: "wrong", check: func(e *env) { e.reads(e.c, e.base, "something") }},
		{Name: "panics", check: func(e *env) { panic("boom") }},
	} {
		if err := c.Run(context.Background(), tools(s.Domain(0), s.Domain)); err == nil {
			t.Errorf("%s: no error", c.Name)
		} else {
			t.Log(err)
		}
	}
}
