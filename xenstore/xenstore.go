// Package xenstore is a client of XenStore, the small database in which the domains of a Xen host publish their
// configuration and state.
//
//	c, err := xenstore.Dial(ctx, xenstore.Local())
//	…
//	name, err := c.Read(ctx, "name")               // of this domain: /local/domain/N/name
//	err = c.Write(ctx, "data/greeting", []byte("hello"))
//
// A Client is safe for concurrent use; concurrent requests are in flight at the same time. Every call takes a
// context, and returns when that ends: a request that was sent is then carried out or not, but its answer never
// becomes another call's.
//
// Errors of the server are an *Error round a syscall.Errno, so that errors.Is(err, syscall.ENOENT) and errors.Is(err,
// fs.ErrNotExist) match; errors.Is(err, ErrQuota) reports that the domain has reached a limit.
//
// Changes that belong together are made in a transaction (Update). Changes by others are observed by a watch (Watch).
// An event names the changed path, not the new value: the reader reads that. A watch begins with an event, so a
// reader needs no separate first read.
//
// Links. The server's socket (Socket) exists in the domain where it runs, as a rule domain 0; every other domain has
// a device (Device). Local selects the one that exists. A connection that ends fails all its calls and watches with
// ErrLost; a Client of DialAgain opens a new one and sets the watches again.
//
// Callers: any program that needs XenStore; the package is independent of the rest of this project. Package memory is
// a server for the tests of such programs, package xenstoretest tests whether a server and this client are compatible.
//
// Trust boundary: the server is trusted to be XenStore, as far as the meaning of its answers goes. Answers that break
// the protocol end the connection, and nothing that a server sends makes the client hold more than
// bounds allow.
package xenstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pegasus/xenstore/wire"
)

// The parts of a permission, and the numbers of domains: see package wire.
type (
	Perm   = wire.Perm
	Access = wire.Access
	DomID  = wire.DomID
)

// A domain's access to a node.
const (
	None      = wire.None
	CanRead   = wire.CanRead
	CanWrite  = wire.CanWrite
	ReadWrite = wire.ReadWrite
)

// Special paths that can be watched besides nodes.
const (
	IntroduceDomain = wire.IntroduceDomain
	ReleaseDomain   = wire.ReleaseDomain
)

// Client is a connection to a server, or with DialAgain a sequence of them. Safe for concurrent use; mu guards the
// fields below it.
type Client struct {
	Nodes

	dial  Dialer // nil: a lost connection ends the client
	ctx   context.Context
	close context.CancelFunc
	done  chan struct{} // closed when all goroutines have ended

	mu      sync.Mutex
	conn    *conn         // nil while there is none
	changed chan struct{} // closed when conn changes
	err     error         // why there will be no further connection
	watches map[string]*Watch
	tokens  uint64
}

// Dial connects. When the connection is lost, the client fails for good.
func Dial(ctx context.Context, dial Dialer) (*Client, error) { return open(ctx, dial, nil) }

// DialAgain connects, and again whenever the connection is lost. A call in flight then fails with ErrLost, because
// its outcome is unknown; a call that begins while there is no connection waits for the next. Watches are set again
// and report an event then.
func DialAgain(ctx context.Context, dial Dialer) (*Client, error) { return open(ctx, dial, dial) }

func open(ctx context.Context, dial, again Dialer) (*Client, error) {
	link, err := dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("xenstore: %w", err)
	}
	c := &Client{dial: again, done: make(chan struct{}), changed: make(chan struct{}), watches: map[string]*Watch{}}
	c.ctx, c.close = context.WithCancel(context.Background())
	c.Nodes = Nodes{on: c}
	c.conn = connect(link, c.event)
	go c.keep()
	return c, nil
}

// Close ends the connection, and all calls and watches with ErrClosed.
func (c *Client) Close() error {
	c.close()
	<-c.done
	return nil
}

// Done returns a channel that is closed when the client has ended. Err returns the cause.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns nil until Done is closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// keep maintains a connection until the client ends.
func (c *Client) keep() {
	defer close(c.done)
	for conn := c.conn; conn != nil; {
		select {
		case <-conn.dead:
		case <-c.ctx.Done():
			conn.fail(ErrClosed)
		}
		conn.wait()
		err := conn.err
		var set []*Watch
		if conn = nil; c.dial != nil && c.ctx.Err() == nil {
			c.use(nil, nil)
			conn, set = c.again()
		}
		if conn != nil {
			c.use(conn, set)
		} else {
			c.end(err)
		}
	}
}

// again dials until there is a connection with all watches set, or the client is closed.
func (c *Client) again() (*conn, []*Watch) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if link, err := c.dial(c.ctx); err == nil {
			conn := connect(link, c.event)
			if set, ok := c.rearm(conn); ok {
				return conn, set
			}
			conn.fail(ErrClosed)
			conn.wait()
		}
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return nil, nil
		}
	}
}

// use makes conn the current connection. It first unsets the watches of set that were removed while they were being set
// on conn; one that is removed later is unset by its Close.
func (c *Client) use(conn *conn, set []*Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range set {
		if c.watches[w.token] != w {
			conn.post(wire.Unwatch, 0, w.name())
		}
	}
	c.conn = conn
	close(c.changed)
	c.changed = make(chan struct{})
}

// end makes all calls and watches fail from now on.
func (c *Client) end(err error) {
	if c.ctx.Err() != nil {
		err = ErrClosed
	}
	c.close()
	c.mu.Lock()
	c.err = err
	watches := c.watches
	c.watches = nil
	c.mu.Unlock()
	c.use(nil, nil)
	for _, w := range watches {
		w.fail(err)
	}
}

// next blocks until there is a connection other than last.
func (c *Client) next(ctx context.Context, last *conn) (*conn, error) {
	for {
		c.mu.Lock()
		conn, changed, err := c.conn, c.changed, c.err
		c.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if conn != nil && conn != last {
			return conn, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w, waiting for a connection", ctx.Err())
		}
	}
}

// ask sends a call over the current connection, which it returns, and again if the request wasn't sent.
func (c *Client) ask(ctx context.Context, call *call) (body []byte, on *conn, err error) {
	for {
		if on, err = c.next(ctx, on); err != nil {
			return nil, nil, call.wrap(err)
		}
		if body, err = on.do(ctx, call); c.dial == nil || !errors.Is(err, errUnsent) {
			return body, on, err
		}
	}
}

// do implements asker.
func (c *Client) do(ctx context.Context, call *call) ([]byte, error) {
	body, _, err := c.ask(ctx, call)
	return body, err
}
