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

// Tx is a transaction: what is done through it others see all at once when it is
// committed, or never. It belongs to one connection and ends with that.
type Tx struct {
	Nodes
	conn  *conn
	ended atomic.Bool
}

// Update does f in a transaction and commits it. If others have changed meanwhile what f read
// or wrote, all of it is done again, so f should change nothing else. When f fails, or
// panics, nothing has been changed, and it isn't done again.
//
// That others have changed something is found out in the end: until then f may see one node as
// it was before, and another as it was after. It shouldn't take that for an error.
//
// A client of DialAgain does all of it again on the next connection, too, if one is lost before the commit was sent: ErrLost says that
// nobody knows whether it was carried out.
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

// attempt says besides whether nothing has been changed because of what may be otherwise the next time.
func (c *Client) attempt(ctx context.Context, f func(*Tx) error) (again bool, err error) {
	lost := func(err error) bool { return c.dial != nil && errors.Is(err, ErrLost) }
	tx, err := c.Begin(ctx)
	if err != nil {
		return lost(err), err
	}
	defer tx.Abort()
	if err := f(tx); err != nil {
		// It may have come from elsewhere, or of a commit by f.
		return lost(err) && tx.conn.failed() && !tx.ended.Load(), err
	}
	sent, err := tx.commit(ctx)
	return errors.Is(err, syscall.EAGAIN) || !sent && lost(err), err
}

// yield lets others go before us, after some attempts for a moment that grows: the quick must not
// keep the slow from ever getting through.
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

// Begin starts a transaction, which the caller has to Commit or Abort. Update does all that.
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

// do is what Nodes asks with.
func (tx *Tx) do(ctx context.Context, call *call) ([]byte, error) {
	if tx.ended.Load() {
		return nil, call.wrap(ErrEnded)
	}
	return tx.conn.do(ctx, call)
}

// Commit makes the changes true, or fails and there are none. EAGAIN says that others have changed
// meanwhile what was read or written. If ctx ends before the answer comes, nobody knows.
func (tx *Tx) Commit(ctx context.Context) error {
	_, err := tx.commit(ctx)
	return err
}

// commit says besides whether it was sent.
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

// Abort drops the changes. It doesn't wait, and after Commit does nothing, so it can be deferred.
func (tx *Tx) Abort() {
	if !tx.ended.Swap(true) {
		tx.conn.post(wire.TransactionEnd, tx.tx, wire.Join("F"))
	}
}

// was says whether a call was sent.
func (c *conn) was(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return call.sent
}

// failed says whether the connection has ended.
func (c *conn) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}
