package guests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"testing"

	"pegasus/accel/placement"
	"pegasus/backend/control"
	"pegasus/backend/events"
	"pegasus/backend/workers"
	"pegasus/configs"
	"pegasus/hypervisor"
)

// endpoints is an adapter that records the opened and closed endpoints.
type endpoints struct {
	broken string // the domain whose endpoint fails to open
	firm   string // the domain whose endpoint fails to change its guard
	open   map[string]bool
	guards map[string]hypervisor.Domain // by domain; as opened and changed
	opened map[string]hypervisor.Domain // by domain; as opened
}

type fakeEndpoint struct {
	of   *endpoints
	name string
}

func (a *endpoints) Open(_ context.Context, d hypervisor.Domain, _ func(context.Context, hypervisor.Connection), _ func(error)) (hypervisor.Endpoint, error) {
	if d.Name == a.broken {
		return nil, errors.New("stuck")
	}
	a.open[d.Name] = true
	if a.guards == nil {
		a.guards = map[string]hypervisor.Domain{}
	}
	a.guards[d.Name] = d
	if a.opened == nil {
		a.opened = map[string]hypervisor.Domain{}
	}
	a.opened[d.Name] = d
	return fakeEndpoint{a, d.Name}, nil
}

func (d fakeEndpoint) Address() string { return "/" + d.name }
func (d fakeEndpoint) Guard(to hypervisor.Domain) error {
	if d.name == d.of.firm {
		return errors.New("firm")
	}
	d.of.guards[d.name] = to
	return nil
}

func (d fakeEndpoint) Wait()        {}
func (d fakeEndpoint) Leave() error { return d.Close() }
func (d fakeEndpoint) Close() error {
	delete(d.of.open, d.name)
	return nil
}

func (a *endpoints) Sweep(func(string) bool) error { return nil }

// newTestRegistry returns a registry without accelerators that does not run.
func newTestRegistry(t *testing.T, a *endpoints) *Registry {
	t.Helper()
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	d := New(Options{Config: configs.Default(), RuntimeDir: dir, Adapter: a, Journal: events.NewJournal(log),
		Workers: workers.New(workers.Options{RuntimeDir: dir, Types: []string{""}, Log: log}), Log: log})
	d.SetCPUs(noCPUs{})
	d.Start(context.WithCancel(t.Context()))
	d.queue = placement.NewQueue(placement.ByWeight)
	return d
}

// noCPUs is a CPU side without data.
type noCPUs struct{}

func (noCPUs) WeighSoon()                                   {}
func (noCPUs) Steal(string) (_ hypervisor.Spent, _ float64) { return }

func declaring(names ...string) *configs.Config {
	c := configs.Default()
	c.Daemon.UndeclaredDomains = false
	for _, name := range names {
		dom := c.Template
		dom.Name = name
		c.Domains = append(c.Domains, dom)
	}
	return c
}

func TestFollow(t *testing.T) {
	a := &endpoints{broken: "bad", open: map[string]bool{}}
	d := newTestRegistry(t, a)
	expect := func(what string, open ...string) {
		t.Helper()
		known := 0
		for _, name := range open {
			if dom := d.domains[name]; dom != nil && dom.socket() == "/"+name {
				known++
			}
		}
		if !slices.Equal(slices.Sorted(maps.Keys(a.open)), open) || known != len(open) || len(d.domains) != len(open) {
			t.Errorf("%s: open %v, known %d of %d; want %v", what, a.open, known, len(d.domains), open)
		}
	}
	follow := func(c *configs.Config) error { _, err := d.follow(c); return err }
	if err := follow(declaring("x", "y")); err != nil {
		t.Fatal(err)
	}
	expect("two come", "x", "y")
	if err := follow(declaring("p", "bad", "q")); err == nil {
		t.Error("an endpoint that doesn't open is no error")
	}
	expect("one of three doesn't open", "x", "y")
	if err := follow(declaring("y", "z")); err != nil {
		t.Fatal(err)
	}
	expect("one comes, one goes", "y", "z")

	var names []string
	for i := range maxDomains + 1 {
		names = append(names, fmt.Sprint("d", i))
	}
	if err := follow(declaring(names...)); err == nil {
		t.Error("too many domains are no error")
	}
	expect("too many", "y", "z")
	if err := follow(declaring(names[1:]...)); err != nil { // the maximum number, in the place of others
		t.Error(err)
	}
	if err := follow(declaring("y")); err != nil {
		t.Error(err)
	}
	expect("one again", "y")
	d.ending = true
	if err := follow(declaring("y", "late")); err == nil {
		t.Error("a daemon that ends follows")
	}
	expect("at the end", "y")
}

// A reload and a set change which users may enter domains, for all of them or, if one cannot be changed, for none.
func TestGuards(t *testing.T) {
	a := &endpoints{open: map[string]bool{}}
	d := newTestRegistry(t, a)
	config := func(mode fs.FileMode) *configs.Config {
		c := declaring("x", "y", "z")
		for i := range c.Domains {
			c.Domains[i].SocketMode = mode
		}
		return c
	}
	expect := func(what string, want fs.FileMode) {
		t.Helper()
		for _, name := range []string{"x", "y", "z"} {
			if got, said := a.guards[name].Mode, d.domains[name].settings.SocketMode; got != want || said != want {
				t.Errorf("%s: the socket of %s has mode %v and is said to have %v, want %v", what, name, got, said, want)
			}
		}
	}
	follow := func(c *configs.Config) error { _, err := d.follow(c); return err }
	if err := follow(config(0o660)); err != nil {
		t.Fatal(err)
	}
	if err := follow(config(0o606)); err != nil {
		t.Fatal(err)
	}
	expect("after a reload", 0o606)
	a.firm = "y"
	if err := follow(config(0o600)); err == nil {
		t.Error("an endpoint that can't be guarded is no error")
	}
	expect("after a reload that failed", 0o606)
	if _, err := d.Requests().Set(control.Peer{}, control.SetParams{Domain: "y", Settings: map[string]string{"socket_mode": "0600", "credits": "7"}}); err == nil {
		t.Error("an endpoint that can't be guarded is no error of set")
	}
	expect("after a set that failed", 0o606)
	a.firm = ""
	for _, name := range []string{"x", "y", "z"} {
		if _, err := d.Requests().Set(control.Peer{}, control.SetParams{Domain: name, Settings: map[string]string{"socket_mode": "0666"}}); err != nil {
			t.Error(err)
		}
	}
	expect("after a set", 0o666)
}

// The next daemon opens the endpoint of a declared domain to the users of a set only, and at no time to those of the
// file.
func TestGuardsAfterRestart(t *testing.T) {
	c := declaring("x")
	c.Domains[0].SocketMode = 0o666
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	if _, err := d.follow(c); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Requests().Set(control.Peer{}, control.SetParams{Domain: "x", Settings: map[string]string{"socket_mode": "0600"}}); err != nil {
		t.Fatal(err)
	}
	n := d.next(t, c)
	a := n.opt.Adapter.(*endpoints)
	if got, said := a.opened["x"].Mode, n.domains["x"].settings.SocketMode; got != 0o600 || said != 0o600 {
		t.Errorf("the socket was opened with mode %v and is said to have %v, want 0600", got, said)
	}
}

// A setting of `pegasus set` that no longer fits, such as a removed user, does not affect the other settings.
func TestSettingThatFitsNoMore(t *testing.T) {
	c := declaring("x")
	c.Domains[0].SocketMode, c.Domains[0].Memory, c.Domains[0].Guarantee = 0o666, 2<<30, 1<<30
	d := newTestRegistry(t, &endpoints{open: map[string]bool{}})
	if _, err := d.follow(c); err != nil {
		t.Fatal(err)
	}
	settings := settingsFrom("socket_mode=0600", "socket_owner=root", "memory=512MiB", "memory_guarantee=256MiB")
	if _, err := d.Requests().Set(control.Peer{}, control.SetParams{Domain: "x", Settings: settings}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(d.store.statePath())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.store.statePath(), bytes.ReplaceAll(text, []byte(`"root"`), []byte(`"no-such-user"`)), 0o600); err != nil {
		t.Fatal(err)
	}
	dom := d.next(t, c).domains["x"]
	want := c.Domains[0]
	want.SocketMode, want.Memory, want.Guarantee = 0o600, 512<<20, 256<<20
	if dom.settings != want {
		t.Errorf("in force is %+v, want %+v", dom.settings, want)
	}
	if _, is := dom.set["socket_owner"]; is || len(dom.set) != 3 {
		t.Errorf("set are %v", dom.set)
	}
}
