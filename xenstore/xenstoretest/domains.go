package xenstoretest

import (
	"fmt"
	"strings"
	"syscall"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

var domainCases = []Case{
	{Name: "a domain's path", check: func(e *env) {
		for _, dom := range []xenstore.DomID{0, 1, 32751} {
			path, err := e.c.DomainPath(e.ctx, dom)
			e.ok(err)
			if want := fmt.Sprint("/local/domain/", dom); path != want {
				e.Errorf("%s, wanted %s", path, want)
			}
		}
	}},
	needsAs(Case{Name: "domains come and go", check: func(e *env) {
		come, gone := e.watch(e.c, xenstore.IntroduceDomain), e.watch(e.c, xenstore.ReleaseDomain)
		e.introduced(guest, false)
		g := e.as(guest)
		e.sees(come, xenstore.IntroduceDomain)
		e.introduced(guest, true)
		e.write(g, "data/v", "")
		home, err := e.c.DomainPath(e.ctx, guest)
		e.ok(err)
		e.write(e.c, home+"/tools", "")         // the guest's, since it is created in its home
		e.ok(e.c.Introduce(e.ctx, guest, 1, 1)) // again: no event
		e.ok(e.c.Release(e.ctx, guest))
		e.sees(gone, xenstore.ReleaseDomain)
		e.introduced(guest, false)
		e.none(e.c, home)
		e.fails(e.c.Release(e.ctx, guest), syscall.ENOENT)
		e.quiet(e.c, come)
		e.quiet(e.c, gone)
	}}),
	needsEnds(Case{Name: "domains shut down, resume and are destroyed", check: func(e *env) {
		gone := e.watch(e.c, xenstore.ReleaseDomain)
		g := e.as(guest)
		e.write(g, "data/v", "")
		e.ok(e.Shutdown(guest))
		e.sees(gone, xenstore.ReleaseDomain)
		e.introduced(guest, true)
		e.ok(e.c.Resume(e.ctx, guest))
		e.ok(e.Shutdown(guest))
		e.sees(gone, xenstore.ReleaseDomain)
		e.ok(e.Destroy(guest))
		e.sees(gone, xenstore.ReleaseDomain)
		e.introduced(guest, false)
		home, err := e.c.DomainPath(e.ctx, guest)
		e.ok(err)
		e.none(e.c, home)
	}}),
	needsTools(Case{Name: "domains that are not there", check: func(e *env) {
		e.introduced(0, true)
		e.introduced(wire.Self, true)
		e.introduced(other, false)
		e.fails(e.c.Release(e.ctx, other), syscall.ENOENT)
		e.fails(e.c.Release(e.ctx, 0), syscall.EINVAL)
		e.fails(e.c.Resume(e.ctx, other), syscall.ENOENT)
		e.fails(e.c.SetTarget(e.ctx, other, 0), syscall.ENOENT)
		e.fails(e.c.Introduce(e.ctx, other, 1, 0), syscall.EINVAL)
	}}),
	needsAs(Case{Name: "a guest may not manage domains", check: func(e *env) {
		g := e.as(guest)
		_, err := g.IsIntroduced(e.ctx, guest)
		e.fails(err, syscall.EACCES)
		_, err = g.Control(e.ctx, "help")
		e.fails(err, syscall.EACCES)
		for _, err := range []error{
			g.Introduce(e.ctx, other, 1, 1), g.Release(e.ctx, other), g.Resume(e.ctx, other), g.SetTarget(e.ctx, guest, 0),
		} {
			e.fails(err, syscall.EACCES)
		}
	}}),
	needsAs(Case{Name: "a guest learns of domains when it is allowed", check: func(e *env) {
		g := e.as(guest)
		w := e.watch(g, xenstore.IntroduceDomain)
		e.as(other)
		e.quietAs(g, w)
		e.setPerms(e.c, xenstore.IntroduceDomain, "n0", letters("r", guest))
		e.later(func() {
			ctx, cancel := afterwards()
			defer cancel()
			e.ok(e.c.SetPerms(ctx, xenstore.IntroduceDomain, perms(e, "n0")...))
		})
		e.ok(e.c.Release(e.ctx, other))
		e.ok(e.c.Introduce(e.ctx, other, 1, 1))
		e.sees(w, xenstore.IntroduceDomain)
		// Features that a guest may not set, or that don't exist, aren't tested: Xen 4.17's server fails to answer,
		// and ends.
	}}),
	needsAs(Case{Name: "a new domain has nothing of the one before", check: func(e *env) {
		before := e.as(guest)
		e.write(e.c, e.path("v"), "secret")
		e.setPerms(e.c, e.path("v"), "n0", letters("b", guest))
		e.reads(before, e.path("v"), "secret")
		before.Close()
		e.ok(e.c.Release(e.ctx, guest))
		g := e.dial(e.As(guest))
		_, err := g.Read(e.ctx, e.path("v"))
		e.fails(err, syscall.EACCES)
	}}),
	needsTools(Case{Name: "commands to the server", check: func(e *env) {
		help, err := e.c.Control(e.ctx, "help")
		e.ok(err)
		if !strings.Contains(help, "help") {
			e.Errorf("help says %q", help)
		}
		if _, err = e.c.Control(e.ctx, "check"); err != nil {
			e.Errorf("check: %v", err)
		}
		_, err = e.c.Control(e.ctx, "no-such-command")
		e.fails(err, syscall.EINVAL)
	}}),
}

// introduced checks whether the server serves a domain.
func (e *env) introduced(dom xenstore.DomID, want bool) {
	got, err := e.c.IsIntroduced(e.ctx, dom)
	e.ok(err)
	if got != want {
		e.Errorf("domain %d is introduced: %v, wanted %v", dom, got, want)
	}
}

// The default quotas of Xen's server. Some admit one more.
var quotaCases = []Case{
	needsQuotas(Case{Name: "how long a guest's node may be", check: func(e *env) {
		g := e.as(guest)
		e.ok(g.Write(e.ctx, "data/v", make([]byte, 2047-24-8)))
		e.exhausted(g.Write(e.ctx, "data/v", make([]byte, 2048-24-8)), syscall.ENOSPC)
		e.exhausted(g.Write(e.ctx, "data/w", make([]byte, 2048)), syscall.ENOSPC)
		_, err := g.Read(e.ctx, "data/w")
		e.fails(err, syscall.ENOENT)
		e.lists(g, "data", "v")
	}}),
	needsQuotas(Case{Name: "how many children a guest's node may have", check: func(e *env) {
		g := e.as(guest)
		made := 0
		var err error
		for ; err == nil && made < 1000; made++ {
			err = g.Mkdir(e.ctx, fmt.Sprintf("data/%04d", made))
		}
		e.exhausted(err, syscall.ENOSPC)
		if made != 404 {
			e.Errorf("the %dth child is one too many, wanted the 404th", made)
		}
	}}),
	needsQuotas(Case{Name: "how many nodes a guest may have", check: func(e *env) {
		g := e.as(guest)
		made := 0
		var err error
		for ; err == nil && made < 2000; made++ {
			err = g.Mkdir(e.ctx, fmt.Sprintf("data/%d/%d", made/100, made%100))
		}
		e.exhausted(err, syscall.ENOSPC)
		if made < 900 || made > 1000 {
			e.Errorf("the %dth node is one too many, wanted about the 990th", made)
		}
		e.ok(g.Remove(e.ctx, "data/0/0"))
		e.ok(g.Mkdir(e.ctx, "data/0/x"))
		e.ok(e.c.Write(e.ctx, e.path("tools"), nil))
	}}),
	needsQuotas(Case{Name: "how many watches a guest may have", check: func(e *env) {
		g := e.as(guest)
		made := 0
		var err error
		for ; err == nil && made < 200; made++ {
			_, err = g.Watch(e.ctx, fmt.Sprint("data/", made))
		}
		e.exhausted(err, syscall.E2BIG)
		if made != 130 {
			e.Errorf("the %dth watch is one too many, wanted the 130th", made)
		}
	}}),
	needsQuotas(Case{Name: "how many transactions a guest may have", check: func(e *env) {
		g := e.as(guest)
		for range 11 {
			e.begin(g)
		}
		tx, err := g.Begin(e.ctx)
		if err == nil {
			tx.Abort()
		}
		e.exhausted(err, syscall.ENOSPC)
	}}),
	needsQuotas(Case{Name: "how many permissions a guest's node may have", check: func(e *env) {
		g := e.as(guest)
		e.write(g, "data/v", "")
		words := []string{letters("n", guest), "r0", "r0", "r0", "r0"}
		e.setPerms(g, "data/v", words...)
		e.exhausted(g.SetPerms(e.ctx, "data/v", perms(e, append(words, "r0")...)...), syscall.ENOSPC)
	}}),
	needsQuotas(Case{Name: "a quota in a transaction", check: func(e *env) {
		g := e.as(guest)
		tx := e.begin(g)
		e.exhausted(tx.Write(e.ctx, "data/w", make([]byte, 2048)), syscall.ENOSPC)
		e.fails(tx.Commit(e.ctx), syscall.ENOMEM)
		_, err := g.Read(e.ctx, "data/w")
		e.fails(err, syscall.ENOENT)
	}}),
}

// exhausted expects an error of a quota.
func (e *env) exhausted(err, want error) {
	e.fails(err, want)
	e.fails(err, xenstore.ErrQuota)
}
