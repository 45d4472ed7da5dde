package xenstoretest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"pegasus/xenstore"
)

// The size of the crowd.
const (
	crowdCallers = 64
	crowdWatches = 100
)

var crowdCases = []Case{
	{Name: "a crowd of 64 callers and 100 watches", check: crowd},
	{Name: "calls that are cancelled", check: cancelled},
	needsAs(Case{Name: "transactions whose start is cancelled are not left", check: func(e *env) {
		g := e.as(guest)
		for range 200 { // a guest may have a few at once
			cancelledSoon(e.ctx, func(ctx context.Context) {
				if tx, err := g.Begin(ctx); err == nil {
					tx.Abort()
				}
			})
		}
		e.undone(g)
		e.begin(g)
	}}),
	needsAs(Case{Name: "watches whose start is cancelled are not left", check: func(e *env) {
		g := e.as(guest)
		for range 300 { // more than a guest may have
			cancelledSoon(e.ctx, func(ctx context.Context) {
				if w, err := g.Watch(ctx, "data"); err == nil {
					e.ok(w.Close(e.ctx))
				}
			})
		}
		e.undone(g)
		e.watch(g, "data")
	}}),
}

// undone waits until the abandoned requests of a client are undone: when their answers come, which is before the answer
// to a later request.
func (e *env) undone(c *xenstore.Client) {
	_, err := c.DomainPath(e.ctx, guest)
	e.ok(err)
}

// crowd runs many concurrent callers and watches. Each caller checks its answers, and each watch's reader must get the
// last value in the end.
func crowd(e *env) {
	ctx, cancel := context.WithCancelCause(e.ctx)
	defer cancel(nil)
	var asked atomic.Int64
	few := make(chan struct{}, 8)         // concurrent transactions: a guest may have 11
	final := make([]string, crowdWatches) // the last value of each watched node
	var callers, readers sync.WaitGroup
	for i := range crowdWatches {
		final[i] = fmt.Sprintf("last of %d", i)
		w, err := e.c.Watch(ctx, e.path(fmt.Sprint("w", i)))
		e.ok(err)
		readers.Go(func() {
			if err := until(ctx, e.c, w, final[i]); err != nil {
				e.Errorf("watch %d: %v", i, err)
			}
		})
	}
	e.write(e.c, e.path("sum"), "0")
	for i := range crowdCallers {
		callers.Go(func() {
			err := caller(ctx, e, i, final, &asked)
			if few <- struct{}{}; err == nil {
				err = increment(ctx, e.c, e.path("sum"))
			}
			if <-few; err != nil {
				e.Errorf("caller %d: %v", i, err)
				cancel(err)
			}
		})
	}
	callers.Wait()
	readers.Wait()
	if asked.Load() < int64(e.Requests) {
		e.Errorf("%d requests, wanted %d", asked.Load(), e.Requests)
	}
	if len(e.wrong) == 0 {
		e.reads(e.c, e.path("sum"), strconv.Itoa(crowdCallers))
	}
}

// until reads a watched node after each event, until it has its last value.
func until(ctx context.Context, c *xenstore.Client, w *xenstore.Watch, last string) error {
	for {
		event, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if event.Path != w.Path() {
			return fmt.Errorf("event %+v", event)
		}
		if value, err := c.Read(ctx, event.Path); err == nil && string(value) == last {
			return nil
		}
	}
}

// caller reads and writes nodes of its own, and writes watched ones.
func caller(ctx context.Context, e *env, me int, final []string, asked *atomic.Int64) error {
	own := e.path(fmt.Sprint("c", me))
	var most int64 = 2000 // bytes of values, so that packets differ in length
	if e.Dom != 0 {
		most = 1000
	}
	for n := 0; asked.Load() < int64(e.Requests); n++ {
		value := fmt.Sprintf("%d:%d:%0*d", me, n, rand.Int64N(most), 0)
		if err := e.c.Write(ctx, own, []byte(value)); err != nil {
			return err
		}
		got, err := e.c.Read(ctx, own)
		if err != nil {
			return err
		}
		if string(got) != value {
			return fmt.Errorf("got %.40q, wanted %.40q", got, value)
		}
		if got, err := e.c.DomainPath(ctx, xenstore.DomID(me)); err != nil || got != fmt.Sprint("/local/domain/", me) {
			return fmt.Errorf("path %q, %w", got, err)
		}
		watched := (me + n*crowdCallers) % len(final)
		if watched%crowdCallers == me { // so that each watched node has one writer
			if err := e.c.Write(ctx, e.path(fmt.Sprint("w", watched)), []byte(value)); err != nil {
				return err
			}
			asked.Add(1)
		}
		asked.Add(3)
	}
	for i := me; i < len(final); i += crowdCallers {
		if err := e.c.Write(ctx, e.path(fmt.Sprint("w", i)), []byte(final[i])); err != nil {
			return err
		}
	}
	return nil
}

// cancelled makes calls that end early: the answers of the others must still be their own.
func cancelled(e *env) {
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			own := e.path(fmt.Sprint("c", i))
			for n := range 1 + e.Requests/250 {
				value := fmt.Sprint(i, ":", n)
				if err := e.c.Write(e.ctx, own, []byte(value)); err != nil {
					e.Errorf("%v", err)
					return
				}
				cancelledSoon(e.ctx, func(ctx context.Context) {
					got, err := e.c.Read(ctx, own)
					if err != nil && !errors.Is(err, context.DeadlineExceeded) || err == nil && string(got) != value {
						e.Errorf("%q, %v; wanted %q", got, err, value)
					}
				})
				if got, err := e.c.Read(e.ctx, own); err != nil || string(got) != value {
					e.Errorf("%q, %v; wanted %q", got, err, value)
				}
			}
		})
	}
	all.Wait()
}

// cancelledSoon calls f with a context that ends about when an answer comes.
func cancelledSoon(ctx context.Context, f func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, rand.N(200*time.Microsecond))
	defer cancel()
	f(ctx)
}
