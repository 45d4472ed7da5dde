package xenstore

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"pegasus/internal/testkit"
	"pegasus/xenstore/wire"
)

// another returns a client that dials again, and the servers' ends of its connections.
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

// unsent loses the first connection with a request in the outbox, which is sent on the next one.
func unsent(t *testing.T, c *Client, server net.Conn, ask func()) {
	go c.Read(t.Context(), "/first")
	if _, err := server.Read(make([]byte, 1)); err != nil { // of the first, which is being written from now on
		t.Fatal(err)
	}
	go ask()
	testkit.Eventually(t, "a request waits", func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return len(c.conn.outbox) > 0
	})
	server.Close()
}

// asked returns the next request at a server.
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

// A call that moves to the next connection, since the previous one ended before it was sent, ends with its context
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
	case <-time.After(time.Minute):
		t.Error("it waits for its answer, though nobody waits for it")
	}
}

// answer answers a request with success.
func answer(t *testing.T, server net.Conn, q wire.Packet) {
	t.Helper()
	q.Body = wire.Join("OK")
	if _, err := server.Write(q.Append(nil)); err != nil {
		t.Fatal(err)
	}
}

// A watch that moves to the next connection is set there once: a kernel's device would have it twice, and one of them
// for ever.
func TestWatchUnsentGoesOn(t *testing.T) {
	c, servers := another(t)
	watched := make(chan error, 1)
	unsent(t, c, <-servers, func() {
		_, err := c.Watch(t.Context(), "/v")
		watched <- err
	})
	server := <-servers
	q := asked(t, server)
	if q.Type != wire.Watch {
		t.Fatalf("asked %+v", q)
	}
	answer(t, server, q)
	go func() {
		if err := <-watched; err != nil {
			t.Error(err)
		}
		c.Read(t.Context(), "/next")
	}()
	if q := asked(t, server); q.Type != wire.Read {
		t.Errorf("asked %s %q", q.Type, q.Body)
	}
}

// watched sets a watch, with the answer of the given server.
func watched(t *testing.T, c *Client, server net.Conn) *Watch {
	t.Helper()
	watch := make(chan *Watch, 1)
	go func() {
		w, err := c.Watch(t.Context(), "/v")
		if err != nil {
			t.Error(err)
		}
		watch <- w
	}()
	answer(t, server, asked(t, server))
	return <-watch
}

// closes expects Close of a watch to succeed without an answer.
func closes(t *testing.T, w *Watch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// A watch that is closed while the next connection sets all watches is removed there. Close doesn't wait for it.
func TestClosedMeanwhile(t *testing.T) {
	c, servers := another(t)
	server := <-servers
	w := watched(t, c, server)
	server.Close()
	server = <-servers
	q := asked(t, server)
	if q.Type != wire.Watch {
		t.Fatalf("asked %+v", q)
	}
	closes(t, w)
	answer(t, server, q)
	go c.Read(t.Context(), "/next")
	if end := asked(t, server); end.Type != wire.Unwatch || string(end.Body) != string(q.Body) {
		t.Errorf("asked %s %q, wanted the end of the watch %q", end.Type, end.Body, q.Body)
	}
}

// Close of a watch doesn't wait for a connection, whether the loss of the last one has been detected yet or not, and
// the next connection doesn't set it.
func TestClosedWithout(t *testing.T) {
	for _, known := range []bool{true, false} {
		var away atomic.Bool
		servers := make(chan net.Conn, 8)
		c, err := DialAgain(t.Context(), func(context.Context) (Link, error) {
			if away.Load() {
				return Link{}, errors.New("it is away")
			}
			here, there := net.Pipe()
			there.SetDeadline(time.Now().Add(time.Minute))
			servers <- there
			return Link{ReadWriteCloser: here}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		server := <-servers
		w := watched(t, c, server)
		away.Store(true)
		if known {
			server.Close()
			testkit.Eventually(t, "the client has no connection", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.conn == nil
			})
		} else {
			go func() {
				asked(t, server)
				server.Close()
			}()
		}
		closes(t, w)
		away.Store(false)
		go c.Read(t.Context(), "/next")
		if q := asked(t, <-servers); q.Type != wire.Read {
			t.Errorf("asked %s %q", q.Type, q.Body)
		}
	}
}

// An update is run again after a loss of its connection as long as its commit wasn't sent, for until then nothing can
// have been changed.
func TestUpdateAgain(t *testing.T) {
	c, servers := another(t)
	updated, calls := make(chan error, 1), 0
	go func() {
		updated <- c.Update(t.Context(), func(tx *Tx) error {
			if calls++; calls == 2 {
				for !tx.conn.failed() {
					time.Sleep(time.Millisecond)
				}
				return nil
			}
			return tx.Write(t.Context(), "/v", nil)
		})
	}()
	begin := func() net.Conn {
		t.Helper()
		server := <-servers
		q := asked(t, server)
		if q.Type != wire.TransactionStart {
			t.Fatalf("asked %s", q.Type)
		}
		q.Body = wire.Join("7")
		if _, err := server.Write(q.Append(nil)); err != nil {
			t.Fatal(err)
		}
		return server
	}
	server := <-servers
	asked(t, server) // TRANSACTION_START
	server.Close()
	server = begin()
	asked(t, server) // WRITE
	server.Close()
	begin().Close() // before the commit
	server = begin()
	answer(t, server, asked(t, server))
	if q := asked(t, server); q.Type != wire.TransactionEnd {
		t.Fatalf("asked %s", q.Type)
	}
	server.Close() // the server may have carried it out
	select {
	case err := <-updated:
		if !errors.Is(err, ErrLost) || calls != 3 {
			t.Errorf("%v, after it was done %d times", err, calls)
		}
	case <-time.After(time.Minute):
		t.Error("it hangs, or is done again, though it may have been carried out")
	}
}
