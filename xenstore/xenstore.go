// Package xenstore speaks to XenStore, the small database by which the domains of a Xen
// host tell each other what they are and have.
//
//	c, err := xenstore.Dial(ctx, xenstore.Local())
//	…
//	name, err := c.Read(ctx, "name")               // of this domain: /local/domain/N/name
//	err = c.Write(ctx, "data/greeting", []byte("hello"))
//
// A Client serves any number of goroutines; what they ask is under way at the same time.
// Every call takes a context, and returns when that ends: a request that was sent is then
// carried out or not, but its answer never becomes another call's.
//
// Errors of the server are an *Error round a syscall.Errno, so that
// errors.Is(err, syscall.ENOENT) and errors.Is(err, fs.ErrNotExist) say what they should;
// errors.Is(err, ErrQuota) says that the domain has used up what it may have.
//
// Changes that belong together are made in a transaction (Update). What others change is
// learnt by watching (Watch). A watch says that something has changed, not what to: look,
// when it tells. It begins with an event, so a reader needs no first look of its own.
//
// Links. The server's socket (Socket) is there in the domain where it runs, as a rule
// domain 0; every other domain has a device (Device). Local finds what there is. A
// connection that ends takes along all calls and watches, with ErrLost; a Client
// of DialAgain makes a new one and sets the watches again.
//
// Who calls it: whoever needs XenStore; it knows nothing of the rest of this project.
// Package memory is a server for the tests of such programs, package conformance what
// tells whether a server and this client understand each other.
//
// Whom it trusts: the server to be XenStore, as far as its answers' meaning goes. Answers
// that break the protocol end the connection, and nothing that a server sends makes the
// client hold more than bounds allow.
package xenstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"pegasus/xenstore/wire"
)

// What a permission is made of, and the numbers of domains: see package wire.
type (
	Perm   = wire.Perm
	Access = wire.Access
	DomID  = wire.DomID
)

// What a domain may do to a node.
const (
	None      = wire.None
	CanRead   = wire.CanRead
	CanWrite  = wire.CanWrite
	ReadWrite = wire.ReadWrite
)

// What can be watched besides nodes.
const (
	IntroduceDomain = wire.IntroduceDomain
	ReleaseDomain   = wire.ReleaseDomain
)

// Client is a connection to a server, or with DialAgain one after the other.
type Client struct {
	Nodes

	dial  Dialer // nil when a lost connection is the end
	ctx   context.Context
	close context.CancelFunc
	done  chan struct{} // closed when all goroutines have ended

	mu      sync.Mutex
	conn    *conn         // nil while there is none
	changed chan struct{} // closed when conn is another
	err     error         // why there will be none any more
	watches map[string]*Watch
	tokens  uint64
}

// Dial connects. When the connection is lost, the client is of no use any more.
func Dial(ctx context.Context, dial Dialer) (*Client, error) { return open(ctx, dial, nil) }

// DialAgain connects, and again whenever the connection is lost. A call that was under
// way then fails with ErrLost, because nobody can say whether it was carried out; one that
// begins while there is no connection waits for the next. Watches are set again and
// report an event then.
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

// Close ends the connection, and with ErrClosed all calls and watches.
func (c *Client) Close() error {
	c.close()
	<-c.done
	return nil
}

// Done is closed when the client is of no use any more. Err says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is nil until Done is closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// keep has a connection at hand until there won't be one any more.
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

// use makes conn the one that calls go to. Of the watches that were set on it, those that have been given up
// meanwhile are taken back first: whoever gives up another one from now on does so on conn.
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

// end has all calls and watches fail from now on.
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

// next waits for a connection that isn't last.
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

// ask asks over whatever connection there is, which it returns, and again if the request wasn't sent.
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

// do is what Nodes asks with.
func (c *Client) do(ctx context.Context, call *call) ([]byte, error) {
	body, _, err := c.ask(ctx, call)
	return body, err
}
