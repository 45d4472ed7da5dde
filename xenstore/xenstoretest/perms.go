package xenstoretest

import (
	"fmt"
	"slices"
	"syscall"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

// perms parses "b0 r7".
func perms(e *env, words ...string) []xenstore.Perm {
	all, err := wire.ParsePerms(words)
	e.ok(err)
	return all
}

// letters returns a permission in its text form.
func letters(access string, dom xenstore.DomID) string { return fmt.Sprint(access, dom) }

// hasPerms expects the given permissions.
func (e *env) hasPerms(c *xenstore.Client, path string, want ...string) {
	got, err := c.Perms(e.ctx, path)
	e.ok(err)
	if !slices.Equal(got, perms(e, want...)) {
		e.Fatalf("%s has permissions %v, wanted %v", path, got, want)
	}
}

func (e *env) setPerms(c *xenstore.Client, path string, words ...string) {
	e.ok(c.SetPerms(e.ctx, path, perms(e, words...)...))
}

var permCases = []Case{
	{Name: "permissions are kept and inherited", check: func(e *env) {
		me := letters("r", e.Dom)
		e.write(e.c, e.path("v"), "kept")
		e.setPerms(e.c, e.path("v"), me, "r0")
		e.hasPerms(e.c, e.path("v"), me, "r0")
		e.reads(e.c, e.path("v"), "kept")
		e.write(e.c, e.path("v/child/grandchild"), "")
		e.hasPerms(e.c, e.path("v/child"), me, "r0")
		e.hasPerms(e.c, e.path("v/child/grandchild"), me, "r0")
		e.setPerms(e.c, e.path("v"), letters("n", e.Dom))
		e.hasPerms(e.c, e.path("v/child"), me, "r0")
		e.write(e.c, e.path("v"), "new")
		e.hasPerms(e.c, e.path("v"), letters("n", e.Dom))
	}},
	{Name: "permissions that are refused", check: func(e *env) {
		e.write(e.c, e.path("v"), "")
		e.fails(e.c.SetPerms(e.ctx, e.path("v")), syscall.EINVAL)
		for _, words := range [][]string{{}, {"x0"}, {""}, {"r"}, {letters("r", e.Dom), "q1"}} {
			_, err := e.c.Request(e.ctx, wire.SetPerms, wire.Join(append([]string{e.path("v")}, words...)...))
			e.fails(err, syscall.EINVAL)
		}
		e.fails(e.c.SetPerms(e.ctx, e.path("none"), perms(e, letters("r", e.Dom))...), syscall.ENOENT)
	}},
	needsAs(Case{Name: "a guest may what it is allowed", check: func(e *env) {
		g := e.as(guest)
		for _, test := range []struct {
			words       []string
			read, write bool
		}{
			{[]string{"n0"}, false, false},
			{[]string{"r0"}, true, false},
			{[]string{"w0"}, false, true},
			{[]string{"b0"}, true, true},
			{[]string{"n0", letters("r", guest)}, true, false},
			{[]string{"n0", letters("w", guest)}, false, true},
			{[]string{"n0", letters("b", guest)}, true, true},
			{[]string{"b0", letters("n", guest)}, false, false},
			{[]string{"n0", letters("b", other)}, false, false},
			{[]string{"n0", letters("r", other), letters("b", guest)}, true, true},
			{[]string{letters("n", guest)}, true, true},
		} {
			path := e.path("v")
			e.write(e.c, path, "old")
			e.setPerms(e.c, path, test.words...)
			_, err := g.Read(e.ctx, path)
			e.allowed(test.words, "read", err, test.read)
			_, err = g.List(e.ctx, path)
			e.allowed(test.words, "list", err, test.read)
			_, err = g.Perms(e.ctx, path)
			e.allowed(test.words, "permissions", err, test.read)
			e.allowed(test.words, "write", g.Write(e.ctx, path, nil), test.write)
			e.allowed(test.words, "make", g.Mkdir(e.ctx, path+"/child"), test.write)
			owner := test.words[0] == letters("n", guest)
			e.allowed(test.words, "set permissions", g.SetPerms(e.ctx, path, perms(e, test.words...)...), owner)
			e.allowed(test.words, "remove", g.Remove(e.ctx, path), test.write)
		}
	}}),
	needsAs(Case{Name: "a guest does not learn what is not there", check: func(e *env) {
		g := e.as(guest)
		_, err := g.Read(e.ctx, e.path("none"))
		e.fails(err, syscall.EACCES)
		e.fails(g.Write(e.ctx, e.path("none"), nil), syscall.EACCES)
		e.fails(g.Remove(e.ctx, e.path("none")), syscall.EACCES)
		e.setPerms(e.c, e.base, "r0")
		_, err = g.Read(e.ctx, e.path("none"))
		e.fails(err, syscall.ENOENT)
		_, err = g.List(e.ctx, e.path("none/either"))
		e.fails(err, syscall.ENOENT)
		e.fails(g.Write(e.ctx, e.path("none"), nil), syscall.EACCES)
	}}),
	needsAs(Case{Name: "a guest has its home", check: func(e *env) {
		g := e.as(guest)
		e.write(g, "data/v", "mine")
		home, err := g.DomainPath(e.ctx, guest)
		e.ok(err)
		e.reads(e.c, home+"/data/v", "mine")
		e.hasPerms(e.c, home+"/data/v", letters("n", guest))
		e.lists(g, "data", "v")
		e.fails(g.SetPerms(e.ctx, "data/v", perms(e, "r0")...), syscall.EPERM)
		e.setPerms(g, "data/v", letters("r", guest))
		o := e.as(other)
		e.reads(o, home+"/data/v", "mine")
		e.fails(o.Write(e.ctx, home+"/data/v", nil), syscall.EACCES)
		e.ok(g.Remove(e.ctx, "data"))
		_, err = g.List(e.ctx, "/local/domain")
		e.fails(err, syscall.EACCES)
	}}),
	needsAs(Case{Name: "a guest owns what it makes for others", check: func(e *env) {
		g := e.as(guest)
		e.setPerms(e.c, e.base, "n0", letters("b", guest), letters("r", other))
		e.write(g, e.path("shared/v"), "")
		e.hasPerms(e.c, e.path("shared/v"), letters("n", guest), letters("b", guest), letters("r", other))
		e.write(e.c, e.path("shared/tools"), "")
		e.hasPerms(e.c, e.path("shared/tools"), letters("n", guest), letters("b", guest), letters("r", other))
	}}),
	needsAs(Case{Name: "a target lends its permissions", check: func(e *env) {
		g, o := e.as(guest), e.as(other)
		e.write(o, "data/v", "theirs")
		home, err := e.c.DomainPath(e.ctx, other)
		e.ok(err)
		_, err = g.Read(e.ctx, home+"/data/v")
		e.fails(err, syscall.EACCES)
		e.ok(e.c.SetTarget(e.ctx, guest, other))
		e.reads(g, home+"/data/v", "theirs")
		e.write(g, home+"/data/v", "ours")
		e.reads(o, "data/v", "ours")
		_, err = o.Read(e.ctx, e.base)
		e.fails(err, syscall.EACCES)
	}}),
}

// allowed expects success or EACCES.
func (e *env) allowed(words []string, what string, err error, want bool) {
	switch {
	case want && err != nil:
		e.Errorf("%v: %s: %v", words, what, err)
	case !want:
		e.fails(err, syscall.EACCES)
	}
}
