package xenstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"pegasus/xenstore/wire"
)

// Tx is a transaction: its changes become visible to others all at once when it is committed, or never. It belongs to
// one connection and ends with that.
type Tx struct {
	Nodes
	conn  *conn
	ended atomic.Bool
}

// Update runs f in a transaction and commits it. If another client has meanwhile changed a node that f read or wrote,
// all of it is run again, so f should change nothing else. When f fails, or panics, nothing has been changed, and f
// isn't run again.
//
// Conflicts are detected at the commit: until then f may see one node from before another client's change, and
// another from after it. f shouldn't treat that as an error.
//
// A client of DialAgain also runs all of it again on the next connection if one is lost before the commit was sent:
// ErrLost means that the outcome of the commit is unknown.
func (c *Client) Update(ctx context.Context, f func(*Tx) error) error {
	for try := 0; ; try++ {
		again, err := c.attempt(ctx, f)
		if !again {
			return err
		}
		if err := yield(ctx, try); err != nil {
			return &Error{wire.TransactionEnd, "", fmt.Errorf("%w, after %d attempts", err, try+1)}
		}
	}
}

// attempt runs f once; again reports whether nothing was changed and another attempt may succeed.
func (c *Client) attempt(ctx context.Context, f func(*Tx) error) (again bool, err error) {
	lost := func(err error) bool { return c.dial != nil && errors.Is(err, ErrLost) }
	tx, err := c.Begin(ctx)
	if err != nil {
		return lost(err), err
	}
	defer tx.Abort()
	if err := f(tx); err != nil {
		// The error may come from another connection, or f has committed.
		return lost(err) && tx.conn.failed() && !tx.ended.Load(), err
	}
	sent, err := tx.commit(ctx)
	return errors.Is(err, syscall.EAGAIN) || !sent && lost(err), err
}

// yield backs off after some attempts, for a random time that grows, so that fast clients don't starve slow ones.
func yield(ctx context.Context, try int) error {
	if try < 3 {
		return ctx.Err()
	}
	select {
	case <-time.After(rand.N(time.Millisecond << min(try-2, 6))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begin starts a transaction, which the caller has to Commit or Abort. Update does both.
func (c *Client) Begin(ctx context.Context) (*Tx, error) {
	start := &call{
		packet: wire.Packet{Type: wire.TransactionStart, Body: wire.Join("")},
		undo: func(on *conn, body []byte) {
			if id, err := parseTx(body); err == nil {
				on.post(wire.TransactionEnd, id, wire.Join("F"))
			}
		},
	}
	body, on, err := c.ask(ctx, start)
	if err != nil {
		return nil, err
	}
	id, err := parseTx(body)
	if err != nil {
		return nil, start.wrap(err)
	}
	tx := &Tx{conn: on}
	tx.Nodes = Nodes{on: tx, tx: id}
	return tx, nil
}

func parseTx(body []byte) (uint32, error) {
	id, err := strconv.ParseUint(wire.Text(body), 10, 32)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("%w: a transaction called %q", syscall.EIO, body)
	}
	return uint32(id), nil
}

// do implements asker.
func (tx *Tx) do(ctx context.Context, call *call) ([]byte, error) {
	if tx.ended.Load() {
		return nil, call.wrap(ErrEnded)
	}
	return tx.conn.do(ctx, call)
}

// Commit makes the changes visible, or fails and discards them. EAGAIN reports that another client has meanwhile
// changed a node that was read or written. If ctx ends before the answer comes, the outcome is unknown.
func (tx *Tx) Commit(ctx context.Context) error {
	_, err := tx.commit(ctx)
	return err
}

// commit does the work of Commit; sent reports whether the request was sent.
func (tx *Tx) commit(ctx context.Context) (sent bool, err error) {
	end := &call{packet: wire.Packet{Type: wire.TransactionEnd, Tx: tx.tx, Body: wire.Join("T")}}
	if tx.ended.Swap(true) {
		return false, end.wrap(ErrEnded)
	}
	_, err = tx.conn.do(ctx, end)
	if sent = tx.conn.was(end); err != nil && !sent {
		tx.conn.post(wire.TransactionEnd, tx.tx, wire.Join("F"))
	}
	return sent, err
}

// Abort discards the changes. It doesn't block, and after Commit does nothing, so it can be deferred.
func (tx *Tx) Abort() {
	if !tx.ended.Swap(true) {
		tx.conn.post(wire.TransactionEnd, tx.tx, wire.Join("F"))
	}
}

// was reports whether a call was sent.
func (c *conn) was(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return call.sent
}

// failed reports whether the connection has ended.
func (c *conn) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}
