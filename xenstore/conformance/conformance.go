// Package conformance tells whether a XenStore server and package xenstore understand each
// other. The same cases run against Xen's own server, on a host without Xen and inside
// domains, and against the one in memory: so that what passes with the latter can be
// believed.
//
// Who calls it: tests, and the program in cmd.
package conformance

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

// Target is a server, and what can be done with it.
type Target struct {
	Dial   xenstore.Dialer
	Dom    xenstore.DomID // who Dial is; 0 may do everything
	Device bool           // Dial is a kernel's device
	Single bool           // Dial makes one connection at a time: a domain's ring
	// As dials as another domain, which needn't be real; nil where that can't be. A
	// domain has one connection.
	As func(xenstore.DomID) xenstore.Dialer
	// Shutdown and Destroy do that to a domain of As.
	Shutdown, Destroy func(xenstore.DomID) error
	// Quotas says that the limits of domains are those that Xen's server has by itself.
	Quotas bool
	// Requests is how many the largest case makes, to which others are in proportion; 0 is 10,000.
	Requests int
	// Base is a path where nobody else is.
	Base string
}

// Case is something that has to be true.
type Case struct {
	Name  string
	Needs string // which targets it is for, in words; empty for all
	fits  func(Target) bool
	check func(*env)
}

// Fits says whether a case is for a target.
func (c Case) Fits(t Target) bool { return c.fits == nil || c.fits(t) }

// Cases are all there are.
func Cases() []Case {
	return slices.Concat(valueCases, treeCases, pathCases, permCases, txCases, watchCases, domainCases, quotaCases, protocolCases, crowdCases)
}

// The needs of cases.
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

// patience is how long a case may take.
const patience = 3 * time.Minute

// Run tries a case, and says what is wrong.
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

// plain leaves of a name what a path may have.
func plain(r rune) rune {
	switch {
	case r == ' ':
		return '-'
	case r == ',' || r == '\'':
		return -1
	}
	return r
}

// stop is thrown by Fatalf.
type stop struct{}

// env is what a case has: a connection, and a directory.
type env struct {
	Target
	ctx   context.Context
	c     *xenstore.Client
	base  string
	after []func()

	mu    sync.Mutex
	wrong []string
}

// Errorf says what is wrong; only so much is kept.
func (e *env) Errorf(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.wrong) < 8 {
		e.wrong = append(e.wrong, fmt.Sprintf(format, args...))
	}
}

// Fatalf says what is wrong, after which nothing is right.
func (e *env) Fatalf(format string, args ...any) {
	e.Errorf(format, args...)
	panic(stop{})
}

// later is done in the end, the last first.
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
