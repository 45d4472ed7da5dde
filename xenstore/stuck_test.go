package xenstore

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"
)

// stuck is a server that takes nothing and says nothing.
type stuck struct{ closed chan struct{} }

func (s stuck) Read([]byte) (int, error)  { <-s.closed; return 0, io.EOF }
func (s stuck) Write([]byte) (int, error) { <-s.closed; return 0, io.ErrClosedPipe }
func (s stuck) Close() error              { close(s.closed); return nil }

// Of requests that nobody waits for any more nothing is kept that wasn't sent, however long the server is stuck.
func TestStuckServer(t *testing.T) {
	c, err := Dial(t.Context(), func(context.Context) (Link, error) {
		return Link{ReadWriteCloser: stuck{make(chan struct{})}}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 1000 {
		ctx, done := context.WithTimeout(t.Context(), 100*time.Microsecond)
		if _, err := c.Read(ctx, "name"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		done()
	}
	c.conn.mu.Lock()
	defer c.conn.mu.Unlock()
	if len(c.conn.outbox) > 0 || len(c.conn.pending) > 1 { // one is being written
		t.Errorf("%d requests are to be sent, and %d have no answer", len(c.conn.outbox), len(c.conn.pending))
	}
}
