package xenstoretest

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"pegasus/xenstore"
)

// dial connects until the case's end.
func (e *env) dial(d xenstore.Dialer) *xenstore.Client {
	c, err := xenstore.Dial(e.ctx, d)
	e.ok(err)
	e.later(func() { c.Close() })
	return c
}

// The domains used by cases. No other program may use them.
const (
	guest xenstore.DomID = 30171
	other xenstore.DomID = 30172
)

// as connects as another domain, with a home, until the case's end.
func (e *env) as(dom xenstore.DomID) *xenstore.Client {
	home, err := e.c.DomainPath(e.ctx, dom)
	e.ok(err)
	c := e.dial(e.As(dom))
	e.later(func() {
		ctx, cancel := afterwards()
		defer cancel()
		if err := e.c.Release(ctx, dom); err != nil && !errors.Is(err, syscall.ENOENT) {
			e.ok(err)
		}
		e.ok(e.c.Remove(ctx, home))
	})
	e.ok(e.c.Mkdir(e.ctx, home))
	e.ok(e.c.SetPerms(e.ctx, home, xenstore.Perm{Dom: dom}))
	return c
}

// path returns a path of the case's own.
func (e *env) path(name string) string { return e.base + "/" + name }

// ok expects no error.
func (e *env) ok(err error) {
	if err != nil {
		e.Fatalf("%v", err)
	}
}

// fails expects the given error.
func (e *env) fails(err, want error) {
	if !errors.Is(err, want) {
		e.Fatalf("%v, wanted %v", err, want)
	}
}

// nodes is a client or a transaction.
type nodes interface {
	Read(context.Context, string) ([]byte, error)
	Write(context.Context, string, []byte) error
	List(context.Context, string) ([]string, error)
}

func (e *env) write(n nodes, path, value string) { e.ok(n.Write(e.ctx, path, []byte(value))) }

// reads expects the given value.
func (e *env) reads(n nodes, path, want string) {
	got, err := n.Read(e.ctx, path)
	e.ok(err)
	if string(got) != want {
		e.Fatalf("%s is %.60q, wanted %.60q", path, got, want)
	}
}

// lists expects the given children, in this order.
func (e *env) lists(n nodes, path string, want ...string) {
	got, err := n.List(e.ctx, path)
	e.ok(err)
	if !slices.Equal(got, want) {
		e.Fatalf("%s has %.200q, wanted %.200q", path, got, want)
	}
}

// none expects no such node.
func (e *env) none(n nodes, path string) {
	_, err := n.Read(e.ctx, path)
	e.fails(err, syscall.ENOENT)
}

// watch watches, until the case's end, and takes the first event.
func (e *env) watch(c *xenstore.Client, path string) *xenstore.Watch {
	w, err := c.Watch(e.ctx, path)
	e.ok(err)
	e.sees(w, path)
	return w
}

// sees expects this event next.
func (e *env) sees(w *xenstore.Watch, path string) {
	got, err := w.Next(e.ctx)
	e.ok(err)
	if got != (xenstore.Event{Path: path}) {
		e.Fatalf("event %+v, wanted %s", got, path)
	}
}

// quiet expects no event before that of a new watch, as events come in order.
func (e *env) quiet(c *xenstore.Client, w *xenstore.Watch) {
	mark, err := c.Watch(e.ctx, e.path("mark"))
	e.ok(err)
	_, err = mark.Next(e.ctx)
	e.ok(err)
	e.ok(mark.Close(e.ctx))
	if all := w.Take(); len(all) > 0 {
		e.Fatalf("events %+v, wanted none", all)
	}
}

// removeLater removes a node when the case ends.
func (e *env) removeLater(path string) {
	e.later(func() {
		ctx, cancel := afterwards()
		defer cancel()
		e.ok(e.c.Remove(ctx, path))
	})
}

// afterwards returns a context for the clean-up, when that of the case may have ended.
func afterwards() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}
