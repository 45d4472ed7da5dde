package xenstore

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"pegasus/xenstore/wire"
)

// another is a client that dials again, and the servers' ends of its connections.
func another(t *testing.T) (*Client, <-chan net.Conn) {
	servers := make(chan net.Conn, 8)
	c, err := DialAgain(t.Context(), func(context.Context) (Link, error) {
		here, there := net.Pipe()
		there.SetDeadline(time.Now().Add(time.Minute))
		servers <- there
		return Link{ReadWriteCloser: here}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, servers
}

// unsent loses the first connection with a request in the outbox, which goes to the next one.
func unsent(t *testing.T, c *Client, server net.Conn, ask func()) {
	go c.Read(t.Context(), "/first")
	if _, err := server.Read(make([]byte, 1)); err != nil { // of the first, which is being written from now on
		t.Fatal(err)
	}
	go ask()
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		c.conn.mu.Lock()
		waiting = len(c.conn.outbox)
		c.conn.mu.Unlock()
	}
	server.Close()
}

// asked is the next request at a server.
func asked(t *testing.T, server net.Conn) wire.Packet {
	t.Helper()
	var parser wire.Parser
	for {
		p, ok, err := parser.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return p
		}
		b := make([]byte, parser.Need())
		if _, err := io.ReadFull(server, b); err != nil {
			t.Fatal(err)
		}
		parser.Feed(b)
	}
}

// A call that goes to the next connection, since the one before ended before it was sent, ends with its context
// there, too.
func TestUnsentGoesOn(t *testing.T) {
	c, servers := another(t)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	unsent(t, c, <-servers, func() {
		_, err := c.Read(ctx, "/second")
		failed <- err
	})
	if q := asked(t, <-servers); wire.Text(q.Body) != "/second" {
		t.Fatalf("asked %+v", q)
	}
	cancel()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for its answer, though nobody waits for it")
	}
}
