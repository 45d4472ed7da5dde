package xenstore

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

// stuck is a server that accepts and sends nothing.
type stuck struct{ closed chan struct{} }

func (s stuck) Read([]byte) (int, error)  { <-s.closed; return 0, io.EOF }
func (s stuck) Write([]byte) (int, error) { <-s.closed; return 0, io.ErrClosedPipe }
func (s stuck) Close() error              { close(s.closed); return nil }

// Abandoned unsent requests are dropped, however long the server is stuck.
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

// within is a kernel's device with a server that is away: a Write that sets a watch blocks within the kernel, and so
// does a Close then.
type within struct {
	closed, back chan struct{}
	in           chan struct{} // has a token when a Write has begun
	writes       *sync.WaitGroup
}

func (w within) Read([]byte) (int, error) { <-w.closed; return 0, os.ErrClosed }
func (w within) Write(b []byte) (int, error) {
	w.in <- struct{}{}
	<-w.back
	w.writes.Done()
	return len(b), nil
}
func (w within) Close() error { close(w.closed); w.writes.Wait(); return nil }

// A Write blocked within the kernel blocks neither calls, nor Close, nor the next connection.
func TestStuckDevice(t *testing.T) {
	links := make(chan within, 8)
	c, err := DialAgain(t.Context(), func(context.Context) (Link, error) {
		w := within{make(chan struct{}), make(chan struct{}), make(chan struct{}, 1), new(sync.WaitGroup)}
		w.writes.Add(1)
		links <- w
		return Link{ReadWriteCloser: w, Device: true}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	later := func(do func() error) <-chan error {
		failed := make(chan error, 1)
		go func() { failed <- do() }()
		return failed
	}
	fails := func(failed <-chan error, want error) {
		t.Helper()
		select {
		case err := <-failed:
			if !errors.Is(err, want) {
				t.Errorf("%v, wanted %v", err, want)
			}
		case <-time.After(time.Minute):
			t.Fatal("it waits for the kernel")
		}
	}
	watch := func() <-chan error {
		failed := later(func() error { _, err := c.Watch(t.Context(), "/v"); return err })
		w := <-links
		<-w.in
		t.Cleanup(func() { close(w.back) })
		return failed
	}
	watched := watch()
	c.conn.fail(ErrLost)
	fails(watched, ErrLost)
	watched = watch()
	ctx, cancel := context.WithCancel(t.Context())
	read := later(func() error { _, err := c.Read(ctx, "/unsent"); return err })
	cancel()
	fails(read, context.Canceled)
	closed := later(c.Close)
	fails(watched, ErrClosed)
	fails(closed, nil)
}
