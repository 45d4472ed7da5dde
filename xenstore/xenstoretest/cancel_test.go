package xenstoretest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
	"pegasus/xenstore/real"
)

// hurried runs callers whose contexts end at any point of their calls. Afterwards the domain still has all of its
// quotas: no abandoned watch or transaction is left at the server.
func hurried(t *testing.T, c *xenstore.Client, q memory.Quota) {
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(i)))
			for range 700 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(400))*time.Microsecond)
				switch r.IntN(5) {
				case 0:
					if tx, err := c.Begin(ctx); err == nil {
						tx.Write(ctx, "data/v", []byte("1"))
						tx.Commit(ctx)
					}
				case 1:
					if w, err := c.Watch(ctx, "data"); err == nil {
						w.Next(ctx)
						w.Close(ctx)
					}
				case 2:
					c.Update(ctx, func(tx *xenstore.Tx) error {
						_, err := tx.Read(ctx, "data/v")
						return errors.Join(err, tx.Write(ctx, "data/v", nil))
					})
				case 3:
					c.List(ctx, "data")
				case 4:
					if tx, err := c.Begin(ctx); err == nil {
						tx.Abort()
					}
				}
				cancel()
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// Abandoned requests are undone when their answers come, which is before the answer to this one.
	if _, err := c.DomainPath(ctx, guest); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		most int
		do   func() error
	}{
		"transactions": {q.Transactions + 1, func() error { _, err := c.Begin(ctx); return err }},
		"watches":      {q.Watches + 1, func() error { _, err := c.Watch(ctx, "data"); return err }},
	} {
		n := 0
		err := try.do()
		for ; err == nil; err = try.do() {
			n++
		}
		if n != try.most || !errors.Is(err, xenstore.ErrQuota) {
			t.Errorf("of %d %s it has %d left: %v", try.most, name, n, err)
		}
	}
}

func TestCancelled(t *testing.T) {
	q := memory.Quota{Watches: 20, Transactions: 10, Nodes: 1000, NodeBytes: 2048, Perms: 5, TransactionNodes: 100}
	x, err := real.Start(t.TempDir(), quotaArgs(q)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Stop)
	m := memory.New(memory.Options{Quota: q})
	t.Cleanup(m.Close)
	for name, dials := range map[string][2]xenstore.Dialer{
		"real":   {x.Socket(), x.Domain(guest)},
		"memory": {m.Domain(0), m.Domain(guest)},
		"device": {m.Domain(0), memory.Device(m.Domain(other), false)},
		"old":    {m.Domain(0), memory.Device(m.Domain(other+1), true)},
	} {
		t.Run(name, func(t *testing.T) {
			tools, err := xenstore.Dial(t.Context(), dials[0])
			if err != nil {
				t.Fatal(err)
			}
			defer tools.Close()
			c, err := xenstore.Dial(t.Context(), dials[1])
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, dom := range []xenstore.DomID{guest, other, other + 1} {
				home, err := tools.DomainPath(t.Context(), dom)
				if err == nil {
					err = tools.Mkdir(t.Context(), home)
				}
				if err == nil {
					err = tools.SetPerms(t.Context(), home, xenstore.Perm{Dom: dom})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			hurried(t, c, q)
		})
	}
}
