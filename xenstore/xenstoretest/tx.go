package xenstoretest

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"syscall"

	"pegasus/xenstore"
	"pegasus/xenstore/wire"
)

// begin starts a transaction.
func (e *env) begin(c *xenstore.Client) *xenstore.Tx {
	tx, err := c.Begin(e.ctx)
	e.ok(err)
	e.later(tx.Abort)
	return tx
}

var txCases = []Case{
	{Name: "a transaction is seen when it is committed", check: func(e *env) {
		e.write(e.c, e.path("old"), "old")
		tx := e.begin(e.c)
		e.write(tx, e.path("new/deep"), "new")
		e.write(tx, e.path("old"), "changed")
		e.reads(tx, e.path("new/deep"), "new")
		e.lists(tx, e.base, "old", "new")
		e.none(e.c, e.path("new"))
		e.reads(e.c, e.path("old"), "old")
		e.ok(tx.Commit(e.ctx))
		e.reads(e.c, e.path("new/deep"), "new")
		e.reads(e.c, e.path("old"), "changed")
		e.lists(e.c, e.base, "old", "new")
	}},
	{Name: "an aborted transaction has changed nothing", check: func(e *env) {
		e.write(e.c, e.path("old"), "old")
		tx := e.begin(e.c)
		e.write(tx, e.path("new"), "new")
		e.ok(tx.Remove(e.ctx, e.path("old")))
		e.none(tx, e.path("old"))
		tx.Abort()
		e.none(e.c, e.path("new"))
		e.reads(e.c, e.path("old"), "old")
		boom := errors.New("boom")
		e.fails(e.c.Update(e.ctx, func(tx *xenstore.Tx) error {
			e.write(tx, e.path("old"), "changed")
			return boom
		}), boom)
		e.reads(e.c, e.path("old"), "old")
	}},
	{Name: "a transaction removes", check: func(e *env) {
		e.write(e.c, e.path("a/b/c"), "")
		e.write(e.c, e.path("a/d"), "")
		tx := e.begin(e.c)
		e.ok(tx.Remove(e.ctx, e.path("a/b")))
		e.lists(tx, e.path("a"), "d")
		e.write(tx, e.path("a/e"), "")
		e.ok(tx.Remove(e.ctx, e.path("a/e")))
		e.ok(tx.Commit(e.ctx))
		e.lists(e.c, e.path("a"), "d")
		e.none(e.c, e.path("a/b/c"))
	}},
	{Name: "transactions conflict in what they read and write", check: func(e *env) {
		for _, test := range []struct {
			name     string
			in       func(tx *xenstore.Tx)
			out      func()
			conflict bool
		}{
			{"read and written", func(tx *xenstore.Tx) { e.reads(tx, e.path("v"), "v") }, func() { e.write(e.c, e.path("v"), "v") }, true},
			{"both written", func(tx *xenstore.Tx) { e.write(tx, e.path("v"), "1") }, func() { e.write(e.c, e.path("v"), "v") }, true},
			{"missing and made", func(tx *xenstore.Tx) { e.none(tx, e.path("x")) }, func() { e.write(e.c, e.path("x"), "") }, true},
			{"read and removed", func(tx *xenstore.Tx) { e.reads(tx, e.path("w"), "w") }, func() { e.ok(e.c.Remove(e.ctx, e.path("w"))) }, true},
			{"listed and added to", func(tx *xenstore.Tx) { e.lists(tx, e.path("d"), "1") }, func() { e.write(e.c, e.path("d/2"), "") }, true},
			{"both added to", func(tx *xenstore.Tx) { e.write(tx, e.path("d/3"), "") }, func() { e.write(e.c, e.path("d/4"), "") }, true},
			{"permissions", func(tx *xenstore.Tx) { e.reads(tx, e.path("v"), "v") }, func() { e.setPerms(e.c, e.path("v"), letters("r", e.Dom)) }, true},
			{"elsewhere", func(tx *xenstore.Tx) { e.write(tx, e.path("v"), "1") }, func() { e.write(e.c, e.path("d/1"), "1") }, false},
			{"listed and child written", func(tx *xenstore.Tx) { e.lists(tx, e.path("d"), "1") }, func() { e.write(e.c, e.path("d/1"), "1") }, false},
			{"read by both", func(tx *xenstore.Tx) { e.reads(tx, e.path("v"), "v") }, func() { e.reads(e.c, e.path("v"), "v") }, false},
		} {
			e.ok(e.c.Remove(e.ctx, e.base))
			for path, value := range map[string]string{"v": "v", "w": "w", "d/1": "1"} {
				e.write(e.c, e.path(path), value)
			}
			tx := e.begin(e.c)
			test.in(tx)
			test.out()
			err := tx.Commit(e.ctx)
			if test.conflict != errors.Is(err, syscall.EAGAIN) || !test.conflict && err != nil {
				e.Errorf("%s: %v, wanted a conflict: %v", test.name, err, test.conflict)
			}
		}
	}},
	{Name: "of two transactions the first to commit wins", check: func(e *env) {
		e.write(e.c, e.path("v"), "0")
		one, two := e.begin(e.c), e.begin(e.c)
		e.reads(one, e.path("v"), "0")
		e.reads(two, e.path("v"), "0")
		e.write(one, e.path("v"), "1")
		e.write(two, e.path("v"), "2")
		e.ok(two.Commit(e.ctx))
		e.fails(one.Commit(e.ctx), syscall.EAGAIN)
		e.reads(e.c, e.path("v"), "2")
	}},
	{Name: "a transaction ends once", check: func(e *env) {
		tx := e.begin(e.c)
		e.ok(tx.Commit(e.ctx))
		e.fails(tx.Commit(e.ctx), xenstore.ErrEnded)
		tx.Abort()
		_, err := tx.Read(e.ctx, e.base)
		e.fails(err, xenstore.ErrEnded)
		e.lists(e.c, e.base)
	}},
	needsMany(Case{Name: "a transaction that nobody began", check: func(e *env) {
		l := e.raw()
		e.answers(l, wire.Packet{Type: wire.Read, ID: 5, Tx: 77, Body: wire.Join(e.base)}, wire.Error, "ENOENT\x00")
		e.answers(l, wire.Packet{Type: wire.TransactionEnd, ID: 6, Tx: 77, Body: wire.Join("T")}, wire.Error, "ENOENT\x00")
		if e.Device {
			return // Linux doesn't pass on the answer to the next
		}
		e.answers(l, wire.Packet{Type: wire.TransactionEnd, ID: 7, Body: wire.Join("T")}, wire.Error, "ENOENT\x00")
	}}),
	{Name: "counters lose nothing", check: func(e *env) {
		const callers = 8
		each := 1 + e.Requests/500
		e.write(e.c, e.path("n"), "0")
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					if err := increment(e.ctx, e.c, e.path("n")); err != nil {
						e.Errorf("%v", err)
					}
				}
			})
		}
		all.Wait()
		e.reads(e.c, e.path("n"), strconv.Itoa(callers*each))
	}},
	needsMany(Case{Name: "a transaction goes with its connection", check: func(e *env) {
		c, err := xenstore.Dial(e.ctx, e.Dial)
		e.ok(err)
		tx, err := c.Begin(e.ctx)
		e.ok(err)
		e.write(tx, e.path("v"), "")
		c.Close()
		_, err = tx.Read(e.ctx, e.path("v"))
		e.fails(err, xenstore.ErrClosed)
		e.none(e.c, e.path("v"))
	}}),
}

// increment adds 1 to a number.
func increment(ctx context.Context, c *xenstore.Client, path string) error {
	return c.Update(ctx, func(tx *xenstore.Tx) error {
		value, err := tx.Read(ctx, path)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(value))
		if err != nil {
			return err
		}
		return tx.Write(ctx, path, []byte(strconv.Itoa(n+1)))
	})
}
