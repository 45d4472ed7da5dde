package xenstoretest

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

var watchCases = []Case{
	{Name: "a watch tells of all below", check: func(e *env) {
		w := e.watch(e.c, e.path("v"))
		e.write(e.c, e.path("v"), "1")
		e.sees(w, e.path("v"))
		e.write(e.c, e.path("v"), "1")
		e.sees(w, e.path("v"))
		e.write(e.c, e.path("v/a/b"), "")
		e.sees(w, e.path("v/a/b"))
		e.quiet(e.c, w)
		e.ok(e.c.Mkdir(e.ctx, e.path("v/c")))
		e.sees(w, e.path("v/c"))
		e.setPerms(e.c, e.path("v/c"), letters("r", e.Dom))
		e.sees(w, e.path("v/c"))
		e.ok(e.c.Remove(e.ctx, e.path("v/c")))
		e.sees(w, e.path("v/c"))
		e.quiet(e.c, w)
	}},
	{Name: "a watch does not tell of others", check: func(e *env) {
		e.write(e.c, e.path("v"), "")
		w := e.watch(e.c, e.path("v"))
		e.write(e.c, e.path("vv"), "")
		e.write(e.c, e.path("w"), "")
		e.reads(e.c, e.path("v"), "")
		e.ok(e.c.Mkdir(e.ctx, e.path("v")))
		e.ok(e.c.Mkdir(e.ctx, e.base))
		e.ok(e.c.Remove(e.ctx, e.path("none")))
		e.setPerms(e.c, e.base, letters("r", e.Dom))
		e.quiet(e.c, w)
	}},
	{Name: "a watch tells that what it watches went with what is above", check: func(e *env) {
		e.write(e.c, e.path("a/b/c/d"), "")
		at, above, below := e.watch(e.c, e.path("a/b/c")), e.watch(e.c, e.base), e.watch(e.c, e.path("a/b/c/none"))
		e.ok(e.c.Remove(e.ctx, e.path("a")))
		e.sees(at, e.path("a/b/c"))
		e.sees(above, e.path("a"))
		e.quiet(e.c, at)
		e.quiet(e.c, below)
	}},
	{Name: "a transaction tells when it is committed", check: func(e *env) {
		e.write(e.c, e.path("old"), "")
		w := e.watch(e.c, e.base)
		tx := e.begin(e.c)
		e.write(tx, e.path("v"), "1")
		e.write(tx, e.path("v"), "2")
		e.ok(tx.Remove(e.ctx, e.path("old")))
		e.quiet(e.c, w)
		e.ok(tx.Commit(e.ctx))
		e.seesAll(w, e.path("old"), e.path("v"))
		tx = e.begin(e.c)
		e.write(tx, e.path("v"), "3")
		tx.Abort()
		e.quiet(e.c, w)
	}},
	{Name: "a watch that was closed", check: func(e *env) {
		w, kept := e.watch(e.c, e.path("v")), e.watch(e.c, e.path("v"))
		e.ok(w.Close(e.ctx))
		e.ok(w.Close(e.ctx))
		e.write(e.c, e.path("v"), "")
		e.sees(kept, e.path("v"))
		_, err := w.Next(e.ctx)
		e.fails(err, xenstore.ErrEnded)
	}},
	{Name: "a relative watch tells relative paths", check: func(e *env) {
		path := "data/conformance-watch"
		w := e.watch(e.c, path)
		e.removeLater(path)
		e.write(e.c, path+"/v", "")
		e.sees(w, path+"/v")
		home, err := e.c.DomainPath(e.ctx, e.Dom)
		e.ok(err)
		e.write(e.c, home+"/"+path, "")
		e.sees(w, path)
	}},
	needsLink(Case{Name: "a watch is set once", check: func(e *env) {
		body := wire.Join(e.path("v"), "a token")
		_, err := e.c.Request(e.ctx, wire.Watch, body)
		e.ok(err)
		_, err = e.c.Request(e.ctx, wire.Watch, body)
		e.fails(err, syscall.EEXIST)
		_, err = e.c.Request(e.ctx, wire.Watch, wire.Join(e.path("v"), "another"))
		e.ok(err)
		_, err = e.c.Request(e.ctx, wire.Unwatch, body)
		e.ok(err)
		_, err = e.c.Request(e.ctx, wire.Unwatch, body)
		e.fails(err, syscall.ENOENT)
	}}),
	{Name: "what cannot be watched", check: func(e *env) {
		for _, path := range []string{"/x/", "/x//y", "/x y"} {
			_, err := e.c.Request(e.ctx, wire.Watch, wire.Join(path, "t"))
			e.fails(err, syscall.EINVAL)
			_, err = e.c.Watch(e.ctx, path)
			e.fails(err, syscall.EINVAL)
		}
		_, err := e.c.Watch(e.ctx, "@"+strings.Repeat("x", wire.RelativeMax))
		e.fails(err, syscall.EINVAL)
	}},
	needsLink(Case{Name: "watches are reset", check: func(e *env) {
		w := e.watch(e.c, e.path("v"))
		tx := e.begin(e.c)
		e.ok(e.c.ResetWatches(e.ctx))
		_, err := w.Next(e.ctx)
		e.fails(err, xenstore.ErrEnded)
		e.fails(tx.Commit(e.ctx), syscall.ENOENT)
		e.write(e.c, e.path("v"), "")
		e.watch(e.c, e.path("v"))
	}}),
	needsDevice(Case{Name: "a device does not reset watches", check: func(e *env) {
		w := e.watch(e.c, e.path("v"))
		e.fails(e.c.ResetWatches(e.ctx), syscall.ENOTSUP)
		e.write(e.c, e.path("v"), "")
		e.sees(w, e.path("v"))
	}}),
	needsDevice(Case{Name: "a device does not watch to a depth", check: func(e *env) {
		_, err := e.c.WatchDepth(e.ctx, e.path("v"), 0)
		e.fails(err, syscall.ENOTSUP)
	}}),
	{Name: "a watch that nobody reads", check: func(e *env) {
		w := e.watch(e.c, e.base)
		for i := range 20 {
			for range 5 {
				e.write(e.c, e.path(fmt.Sprint(i)), "")
			}
		}
		e.watch(e.c, e.path("mark"))
		all := w.Take()
		if len(all) != 20 {
			e.Fatalf("%d events of 20 paths", len(all))
		}
		for i, event := range all {
			if event != (xenstore.Event{Path: e.path(fmt.Sprint(i))}) {
				e.Fatalf("event %d is %+v", i, event)
			}
		}
	}},
	needsAs(Case{Name: "a guest is told of what it may read", check: func(e *env) {
		g := e.as(guest)
		e.write(e.c, e.path("v"), "")
		w := e.watch(g, e.path("v"))
		e.write(e.c, e.path("v"), "")
		e.write(e.c, e.path("v/child"), "")
		e.quietAs(g, w)
		e.setPerms(e.c, e.path("v"), "r0") // the guest gets an event of this
		e.sees(w, e.path("v"))
		e.write(e.c, e.path("v/child"), "") // the guest can read the parent
		e.sees(w, e.path("v/child"))
		e.setPerms(e.c, e.path("v"), "n0") // the guest could read the node before
		e.sees(w, e.path("v"))
		e.write(e.c, e.path("v/child"), "")
		e.quietAs(g, w)
		e.setPerms(e.c, e.path("v"), "r0")
		e.sees(w, e.path("v"))
		e.ok(e.c.Remove(e.ctx, e.path("v")))
		e.sees(w, e.path("v"))
	}}),
	needsAs(Case{Name: "guests tell each other", check: func(e *env) {
		g, o := e.as(guest), e.as(other)
		home, err := g.DomainPath(e.ctx, guest)
		e.ok(err)
		e.write(g, "data/v", "1")
		w := e.watch(o, home+"/data/v")
		e.setPerms(g, "data/v", letters("r", guest))
		e.sees(w, home+"/data/v")
		e.write(g, "data/v", "2")
		e.sees(w, home+"/data/v")
		e.reads(o, home+"/data/v", "2")
	}}),
}

// seesAll expects these events, in any order, and no others.
func (e *env) seesAll(w *xenstore.Watch, paths ...string) {
	var got []string
	for range paths {
		event, err := w.Next(e.ctx)
		e.ok(err)
		got = append(got, event.Path)
	}
	slices.Sort(got)
	if !slices.Equal(got, paths) {
		e.Fatalf("events %v, wanted %v", got, paths)
	}
	e.quiet(e.c, w)
}

// quietAs does the same as quiet for a guest, with a mark of its own.
func (e *env) quietAs(g *xenstore.Client, w *xenstore.Watch) {
	mark, err := g.Watch(e.ctx, "data/mark")
	e.ok(err)
	_, err = mark.Next(e.ctx)
	e.ok(err)
	e.ok(mark.Close(e.ctx))
	if all := w.Take(); len(all) > 0 {
		e.Fatalf("events %+v, wanted none", all)
	}
}
