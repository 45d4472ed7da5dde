// Package xenstoretest tests whether a XenStore server and package xenstore are compatible. The same cases run against
// Xen's own server, on a host without Xen and inside domains, and against the one in memory, which validates the
// tests that use the latter.
//
// Callers: tests, and the program in cmd.
package xenstoretest

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"pegasus/xenstore"
)

// Target is a server, and the operations available on it.
type Target struct {
	Dial   xenstore.Dialer
	Dom    xenstore.DomID // the domain of Dial; 0 has all permissions
	Device bool           // Dial is a kernel's device
	Single bool           // Dial makes one connection at a time: a domain's ring
	// As returns a Dialer as another domain, which needn't be real; nil where that is impossible. A domain has one
	// connection.
	As func(xenstore.DomID) xenstore.Dialer
	// Shutdown and Destroy do that to a domain of As.
	Shutdown, Destroy func(xenstore.DomID) error
	// Quotas: the limits of domains are the defaults of Xen's server.
	Quotas bool
	// Requests is the number of requests of the largest case, which scales the others; 0: 10,000.
	Requests int
	// Base is a path that no other program uses.
	Base string
}

// Case is a test case.
type Case struct {
	Name  string
	Needs string // a description of its targets; empty for all
	fits  func(Target) bool
	check func(*env)
}

// Fits reports whether a case is for a target.
func (c Case) Fits(t Target) bool { return c.fits == nil || c.fits(t) }

// Cases returns all cases.
func Cases() []Case {
	return slices.Concat(valueCases, treeCases, pathCases, permCases, txCases, watchCases, domainCases, quotaCases, protocolCases, crowdCases)
}

// The requirements of cases.
var (
	needsAs     = func(c Case) Case { return c.need("can be other domains", func(t Target) bool { return t.As != nil }) }
	needsTools  = func(c Case) Case { return c.need("is domain 0", func(t Target) bool { return t.Dom == 0 }) }
	needsLink   = func(c Case) Case { return c.need("is no device", func(t Target) bool { return !t.Device }) }
	needsDevice = func(c Case) Case { return c.need("is a device", func(t Target) bool { return t.Device }) }
	needsMany   = func(c Case) Case { return c.need("has several connections", func(t Target) bool { return !t.Single }) }
	needsQuotas = func(c Case) Case {
		return needsAs(c.need("has Xen's quotas", func(t Target) bool { return t.Quotas }))
	}
	needsEnds = func(c Case) Case {
		return needsAs(c.need("can end domains", func(t Target) bool { return t.Destroy != nil }))
	}
)

func (c Case) need(words string, fits func(Target) bool) Case {
	before, all := c, strings.TrimPrefix(c.Needs+", "+words, ", ")
	c.Needs, c.fits = all, func(t Target) bool { return before.Fits(t) && fits(t) }
	return c
}

const manyRequests = 10_000

// patience bounds the time of a case.
const patience = 3 * time.Minute

// Run runs a case, and returns its failures.
func (c Case) Run(ctx context.Context, t Target) (err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	t.Requests = cmp.Or(t.Requests, manyRequests)
	e := &env{Target: t, ctx: ctx, base: t.Base + "/" + strings.Map(plain, c.Name)}
	defer func() {
		if r := recover(); r != nil && r != (stop{}) {
			e.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		e.clean()
		if len(e.wrong) > 0 {
			err = fmt.Errorf("%s", strings.Join(e.wrong, "; "))
		}
	}()
	e.c = e.dial(t.Dial)
	e.ok(e.c.Mkdir(ctx, e.base))
	e.removeLater(e.base)
	c.check(e)
	return nil
}

// plain maps the characters of a case's name to those allowed in a path.
func plain(r rune) rune {
	switch {
	case r == ' ':
		return '-'
	case r == ',' || r == '\'':
		return -1
	}
	return r
}

// stop is the value of Fatalf's panic.
type stop struct{}

// env is the environment of a case: a connection, and a directory.
type env struct {
	Target
	ctx   context.Context
	c     *xenstore.Client
	base  string
	after []func()

	mu    sync.Mutex
	wrong []string
}

// Errorf records a failure; further ones beyond a bound are dropped.
func (e *env) Errorf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.wrong) < 8 {
		e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
	}
}

// Fatalf records a failure and ends the case.
func (e *env) Fatalf(format string, args ...any) {
	e.Errorf(format, args...)
	panic(stop{})
}

// later registers a clean-up, run in reverse order.
func (e *env) later(f func()) { e.after = append(e.after, f) }

func (e *env) clean() {
	for len(e.after) > 0 {
		f := e.after[len(e.after)-1]
		e.after = e.after[:len(e.after)-1]
		func() {
			defer func() {
				if r := recover(); r != nil && r != (stop{}) {
					e.Errorf("panic: %v\n%s", r, debug.Stack())
				}
			}()
			f()
		}()
	}
}
