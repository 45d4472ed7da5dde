package xenstore

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"syscall"

	"pegasus/xenstore/wire"
)

// pathsHeld is the number of different paths that a watch holds for a reader that doesn't take them.
const pathsHeld = 1024

// Event reports a change at Path; the reader reads the new value itself.
type Event struct {
	Path string
	// Many reports that more paths have changed than are held: read all below Path, which is the watch's own then.
	Many bool
}

// Watch reports changes at a node and below. Its first event, of the path itself, comes when it is set, and again on
// each new connection. Pending events of one path are merged into one. Safe for concurrent use; mu guards the fields
// below it.
type Watch struct {
	client *Client
	path   string
	token  string
	body   []byte
	set    bool // set in the server, so to be set on the next connection; under the client's lock

	mu      sync.Mutex
	pending []Event
	known   map[string]bool // the paths in pending
	ready   chan struct{}   // has a token when an event is pending
	err     error
	ended   chan struct{} // closed when err is set
}

// Watch watches a node, which need not exist, and all below it; or IntroduceDomain or ReleaseDomain. Paths of events
// are relative where path is. The caller closes the Watch.
func (c *Client) Watch(ctx context.Context, path string) (*Watch, error) {
	return c.watch(ctx, path)
}

// WatchDepth watches only so many levels below a node: 0 is the node itself. With 1, events of IntroduceDomain and
// ReleaseDomain name the domain: @releaseDomain/7. It needs a server since Xen 4.22 (FeatureWatchDepth); the kernel's
// device doesn't pass the depth on.
func (c *Client) WatchDepth(ctx context.Context, path string, depth uint) (*Watch, error) {
	return c.watch(ctx, path, strconv.FormatUint(uint64(depth), 10))
}

func (c *Client) watch(ctx context.Context, path string, rest ...string) (*Watch, error) {
	if err := wire.CheckWatchPath(path); err != nil {
		return nil, invalid(wire.Watch, path, err)
	}
	w := &Watch{client: c, path: path, known: map[string]bool{}, ready: make(chan struct{}, 1), ended: make(chan struct{})}
	if err := c.add(w, rest); err != nil {
		return nil, &Error{wire.Watch, path, err}
	}
	_, err := c.do(ctx, &call{
		packet: wire.Packet{Type: wire.Watch, Body: w.body}, path: path,
		undo: func(on *conn, _ []byte) { on.post(wire.Unwatch, 0, w.name()) },
		did: func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			w.set = true
		},
	})
	if err != nil {
		c.remove(w)
		return nil, err
	}
	if !c.has(w) { // as with ResetWatches, which the server may have received first
		c.post(wire.Unwatch, w.name())
		<-w.ended
		return nil, &Error{wire.Watch, path, w.err}
	}
	return w, nil
}

// add registers a watch under a new token, which identifies its events, before the first one can come.
func (c *Client) add(w *Watch, rest []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.tokens++
	w.token = strconv.FormatUint(c.tokens, 36)
	w.body = wire.Join(append([]string{w.path, w.token}, rest...)...)
	c.watches[w.token] = w
	return nil
}

// remove unregisters a watch, and returns the connection that it may be set on.
func (c *Client) remove(w *Watch) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.watches, w.token)
	return c.conn
}

func (c *Client) has(w *Watch) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watches[w.token] == w
}

// event is called by the connection's reader. It never blocks; events of removed watches are dropped.
func (c *Client) event(path, token string) {
	c.mu.Lock()
	w := c.watches[token]
	c.mu.Unlock()
	if w != nil {
		w.enqueue(path)
	}
}

// rearm sets all watches on a new connection, and returns those that are set. A watch that the server rejects fails.
// A watch that wasn't set yet is left to its caller, which waits for the connection or gives up.
func (c *Client) rearm(conn *conn) (set []*Watch, ok bool) {
	c.mu.Lock()
	calls := map[*Watch]*call{}
	for _, w := range c.watches {
		if !w.set {
			continue
		}
		calls[w] = &call{packet: wire.Packet{Type: wire.Watch, Body: w.body}, path: w.path, done: make(chan struct{})}
	}
	c.mu.Unlock()
	for _, call := range calls {
		conn.send(call)
	}
	for w, call := range calls {
		select {
		case <-call.done:
		case <-c.ctx.Done():
			return nil, false
		}
		if errors.Is(call.err, ErrLost) {
			return nil, false
		}
		if call.err != nil {
			c.remove(w)
			w.fail(call.wrap(call.err))
		} else {
			set = append(set, w)
		}
	}
	return set, true
}

// Path returns the watched path.
func (w *Watch) Path() string { return w.path }

// Next blocks until there is an event, and removes and returns it. It fails with ErrEnded when the watch is closed, and
// with the client's error when that ends.
func (w *Watch) Next(ctx context.Context) (Event, error) {
	for {
		w.mu.Lock()
		if len(w.pending) > 0 {
			e := w.pending[0]
			w.pending = w.pending[1:]
			delete(w.known, e.Path)
			more := len(w.pending) > 0
			w.mu.Unlock()
			if more { // for other callers of Next
				w.signal()
			}
			return e, nil
		}
		err := w.err
		w.mu.Unlock()
		if err != nil {
			return Event{}, &Error{wire.Watch, w.path, err}
		}
		select {
		case <-w.ready:
		case <-w.ended: // an event may have come before
		case <-ctx.Done():
			return Event{}, &Error{wire.Watch, w.path, ctx.Err()}
		}
	}
}

// Ready returns a channel for select: it has a token when Take may return events.
func (w *Watch) Ready() <-chan struct{} { return w.ready }

// Ended returns a channel that is closed when no more events will come.
func (w *Watch) Ended() <-chan struct{} { return w.ended }

// Take takes all pending events, without blocking.
func (w *Watch) Take() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.pending
	w.pending = nil
	clear(w.known)
	return all
}

// enqueue adds an event.
func (w *Watch) enqueue(path string) {
	w.mu.Lock()
	switch {
	case w.err != nil || w.known[path]:
	case len(w.pending) == 1 && w.pending[0].Many:
	case len(w.pending) == pathsHeld:
		clear(w.known)
		w.pending = []Event{{Path: w.path, Many: true}}
	default:
		w.known[path] = true
		w.pending = append(w.pending, Event{Path: path})
	}
	w.mu.Unlock()
	w.signal()
}

func (w *Watch) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// fail ends a watch. Its pending events can still be taken.
func (w *Watch) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		close(w.ended)
	}
}

// ResetWatches makes the server drop all watches and transactions of this connection. The watches registered at the
// call end. The kernel's device doesn't support it: it would remove the kernel's own watches, too.
func (c *Client) ResetWatches(ctx context.Context) error {
	c.mu.Lock()
	watches := maps.Clone(c.watches)
	c.mu.Unlock()
	if _, err := c.send(ctx, wire.ResetWatches, "", wire.Join("")); err != nil {
		return err
	}
	for _, w := range watches {
		c.remove(w)
		w.fail(ErrEnded)
	}
	return nil
}

// post sends a request without waiting, if there is a connection.
func (c *Client) post(op wire.Type, body []byte) {
	c.mu.Lock()
	on := c.conn
	c.mu.Unlock()
	if on != nil {
		on.post(op, 0, body)
	}
}

// name returns the body of the request that removes a watch.
func (w *Watch) name() []byte { return wire.Join(w.path, w.token) }

// Close makes the server send no more events; if ctx ends before the answer, the server still will. Without a
// connection no request is sent. Further calls do nothing.
func (w *Watch) Close(ctx context.Context) error {
	on := w.client.remove(w)
	select {
	case <-w.ended:
		return nil
	default:
	}
	w.fail(ErrEnded)
	if on == nil { // the next connection doesn't set the watch, or removes it: see use
		return nil
	}
	_, err := on.do(ctx, &call{packet: wire.Packet{Type: wire.Unwatch, Body: w.name()}, path: w.path})
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, ErrClosed), errors.Is(err, ErrLost): // the watch has ended already
		return nil
	case ctx.Err() != nil: // the request may not have been sent; a second one is harmless
		on.post(wire.Unwatch, 0, w.name())
	}
	return err
}
