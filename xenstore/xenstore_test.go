package xenstore_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pegasus/xenstore"
	"pegasus/xenstore/memory"
	"pegasus/xenstore/wire"
)

// Package xenstoretest covers clients and servers together. These tests cover connections that end, and servers that
// misbehave.

func server(t *testing.T) *memory.Server {
	s := memory.New(memory.Options{})
	t.Cleanup(s.Close)
	return s
}

func dial(t *testing.T, d xenstore.Dialer) *xenstore.Client {
	c, err := xenstore.Dial(t.Context(), d)
	return opened(t, c, err)
}

func opened(t *testing.T, c *xenstore.Client, err error) *xenstore.Client {
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fails(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%v, wanted %v", err, want)
	}
}

func TestErrors(t *testing.T) {
	c := dial(t, server(t).Domain(0))
	_, err := c.Read(t.Context(), "/none")
	fails(t, err, syscall.ENOENT)
	fails(t, err, fs.ErrNotExist)
	var e *xenstore.Error
	if !errors.As(err, &e) || e.Path != "/none" || e.Op.String() != "READ" {
		t.Errorf("%#v", err)
	}
	if errors.Is(err, xenstore.ErrQuota) {
		t.Errorf("%v is one of a quota", err)
	}
	if want := "xenstore: READ /none: no such file or directory"; err.Error() != want {
		t.Errorf("%q, wanted %q", err, want)
	}
	if _, err := xenstore.Dial(t.Context(), xenstore.Socket("/none/at/all")); err == nil {
		t.Error("a socket that isn't there")
	}
	fails(t, c.SetPerms(t.Context(), "/"), syscall.EINVAL)
	fails(t, c.SetPerms(t.Context(), "@else", xenstore.Perm{}), syscall.EINVAL)
	_, err = c.Control(t.Context(), "print", "a\x00b")
	fails(t, err, syscall.EINVAL)
}

// A request that doesn't fit into a packet fails with the limit in the error, which doesn't count as a domain's
// quota.
func TestTooLong(t *testing.T) {
	tooLong := func(err error) {
		t.Helper()
		fails(t, err, syscall.E2BIG)
		if errors.Is(err, xenstore.ErrQuota) {
			t.Errorf("%v is one of a quota", err)
		}
	}
	s := server(t)
	for most, dialer := range map[int]xenstore.Dialer{4096: s.Domain(0), 4080: memory.Device(s.Domain(0), false)} {
		c := dial(t, dialer)
		ok(t, c.Write(t.Context(), "/v", make([]byte, most-len("/v\x00"))))
		err := c.Write(t.Context(), "/v", make([]byte, most-len("/v")))
		tooLong(err)
		fails(t, err, xenstore.ErrTooLong)
		if want := fmt.Sprintf("%d bytes, where %d is the most", most+1, most); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, wanted %q in it", err, want)
		}
		_, err = c.Request(t.Context(), wire.Watch, make([]byte, 5000))
		tooLong(err)
	}
	c, answers := play(t)
	wait := later(func() ([]byte, error) { return c.Read(t.Context(), "/v") })
	q := answers.asked()
	q.Type = wire.Error
	answers.answer(q, "E2BIG\x00")
	_, err := wait()
	tooLong(err)
}

// The end of a connection ends its calls, watches and transactions.
func TestLost(t *testing.T) {
	s := server(t)
	c := dial(t, s.Domain(0))
	w, err := c.Watch(t.Context(), "/v")
	ok(t, err)
	tx, err := c.Begin(t.Context())
	ok(t, err)
	if c.Err() != nil {
		t.Error(c.Err())
	}
	s.Disconnect()
	<-c.Done()
	fails(t, c.Err(), xenstore.ErrLost)
	_, err = c.Read(t.Context(), "/")
	fails(t, err, xenstore.ErrLost)
	_, err = c.Begin(t.Context())
	fails(t, err, xenstore.ErrLost)
	_, err = c.Watch(t.Context(), "/v")
	fails(t, err, xenstore.ErrLost)
	if e, err := w.Next(t.Context()); err != nil || e.Path != "/v" {
		t.Errorf("what came before is lost, too: %v, %v", e, err)
	}
	_, err = w.Next(t.Context())
	fails(t, err, xenstore.ErrLost)
	<-w.Ended()
	fails(t, tx.Write(t.Context(), "/v", nil), xenstore.ErrLost)
	fails(t, tx.Commit(t.Context()), xenstore.ErrLost)
	ok(t, w.Close(t.Context()))
}

// Close ends all waiting calls, and blocks until all goroutines have ended.
func TestClose(t *testing.T) {
	c := dial(t, mute(t))
	ended := make(chan error)
	for range 10 {
		go func() {
			_, err := c.Read(t.Context(), "/")
			ended <- err
		}()
	}
	time.Sleep(time.Millisecond)
	c.Close()
	for range 10 {
		fails(t, <-ended, xenstore.ErrClosed)
	}
	fails(t, c.Err(), xenstore.ErrClosed)
	c.Close()
}

// mute is a server that accepts everything and sends nothing.
func mute(t *testing.T) xenstore.Dialer {
	return script(t, func(l net.Conn) {
		b := make([]byte, 4096)
		for {
			if _, err := l.Read(b); err != nil {
				return
			}
		}
	})
}

// script is a server for one connection.
func script(t *testing.T, serve func(net.Conn)) xenstore.Dialer {
	return func(context.Context) (xenstore.Link, error) {
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		go serve(there)
		return xenstore.Link{ReadWriteCloser: here}, nil
	}
}

// A client that dials again continues after the server was away for a while; calls in flight fail.
func TestDialAgain(t *testing.T) {
	s := server(t)
	var up atomic.Bool
	up.Store(true)
	c, err := xenstore.DialAgain(t.Context(), func(ctx context.Context) (xenstore.Link, error) {
		if !up.Load() {
			return xenstore.Link{}, errors.New("not now")
		}
		return s.Domain(0)(ctx)
	})
	opened(t, c, err)
	ctx := t.Context()
	kept, err := c.Watch(ctx, "/v")
	ok(t, err)
	closed, err := c.Watch(ctx, "/v")
	ok(t, err)
	ok(t, closed.Close(ctx))
	see := func() {
		t.Helper()
		if e, err := kept.Next(ctx); err != nil || e != (xenstore.Event{Path: "/v"}) {
			t.Fatalf("%+v, %v", e, err)
		}
	}
	see()
	for i := range 20 {
		tx, err := c.Begin(ctx)
		ok(t, err)
		up.Store(false)
		s.Disconnect()
		fails(t, tx.Commit(ctx), xenstore.ErrLost)
		if i == 0 {
			short, cancel := context.WithTimeout(ctx, time.Millisecond)
			_, err = c.Read(short, "/")
			fails(t, err, context.DeadlineExceeded)
			cancel()
		}
		up.Store(true)
		ok(t, c.Write(ctx, "/v", fmt.Append(nil, i))) // waits for the next connection
		if got, err := c.Read(ctx, "/v"); err != nil || string(got) != fmt.Sprint(i) {
			t.Fatalf("%q, %v", got, err)
		}
		see()
		kept.Take()
	}
	select {
	case <-c.Done():
		t.Errorf("ended: %v", c.Err())
	default:
	}
}

// With connections that end at any time, under many callers: each call succeeds or returns ErrLost, none hangs, and
// watches see the last value in the end.
func TestDialAgainOften(t *testing.T) {
	s := server(t)
	c, err := xenstore.DialAgain(t.Context(), s.Domain(0))
	opened(t, c, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var cuts, calls sync.WaitGroup
	var seen atomic.Int64 // events
	cuts.Go(func() {
		for last := int64(-1); ; {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				// Not before a watch has made progress: a slow machine takes longer to resume.
				if now := seen.Load(); now != last {
					last = now
					s.Disconnect()
				}
			}
		}
	})
	for i := range 16 {
		calls.Go(func() {
			path := fmt.Sprint("/n", i)
			for n := range 200 {
				w, err := c.Watch(ctx, path)
				if err != nil && !errors.Is(err, xenstore.ErrLost) {
					t.Errorf("watch: %v", err)
				}
				err = c.Write(ctx, path, fmt.Append(nil, n))
				if err != nil && !errors.Is(err, xenstore.ErrLost) {
					t.Errorf("write: %v", err)
				}
				if w == nil {
					continue
				}
				if _, err := w.Next(ctx); err != nil {
					t.Errorf("next: %v", err)
				}
				seen.Add(1)
				if err := w.Close(ctx); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	calls.Wait()
	close(stop)
	cuts.Wait()
	w, err := c.Watch(ctx, "/last")
	for errors.Is(err, xenstore.ErrLost) {
		w, err = c.Watch(ctx, "/last")
	}
	ok(t, err)
	s.Disconnect()
	for {
		if _, err := w.Next(ctx); err != nil {
			t.Fatal(err)
		}
		err := c.Write(ctx, "/last", nil)
		if err == nil {
			break
		}
		fails(t, err, xenstore.ErrLost)
	}
}

// A watch that the next server refuses returns the error.
func TestRefusedAgain(t *testing.T) {
	s := memory.New(memory.Options{})
	small := memory.New(memory.Options{Quota: memory.Quota{Watches: 1}})
	t.Cleanup(small.Close)
	first := true
	c, err := xenstore.DialAgain(t.Context(), func(ctx context.Context) (xenstore.Link, error) {
		if first {
			first = false
			return s.Domain(3)(ctx)
		}
		return small.Domain(3)(ctx)
	})
	opened(t, c, err)
	var all []*xenstore.Watch
	for i := range 3 {
		w, err := c.Watch(t.Context(), fmt.Sprint("w", i))
		ok(t, err)
		all = append(all, w)
	}
	s.Close()
	refused := make(chan *xenstore.Watch, 3)
	for _, w := range all {
		go func() {
			<-w.Ended()
			refused <- w
		}()
	}
	w := <-refused
	w.Take()
	_, err = w.Next(t.Context())
	fails(t, err, xenstore.ErrQuota)
	if c.Err() != nil {
		t.Error(c.Err())
	}
	c.Close()
}

// Of any number of untaken changes, few are held, and Many reports that there were more.
func TestSlowWatch(t *testing.T) {
	c := dial(t, server(t).Domain(0))
	ctx := t.Context()
	w, err := c.Watch(ctx, "/w")
	ok(t, err)
	for i := range 1500 {
		ok(t, c.Write(ctx, fmt.Sprintf("/w/%d/%d", i/50, i%50), nil))
	}
	mark, err := c.Watch(ctx, "/mark")
	ok(t, err)
	_, err = mark.Next(ctx)
	ok(t, err)
	all := w.Take()
	if len(all) != 1 || all[0] != (xenstore.Event{Path: "/w", Many: true}) {
		t.Fatalf("%d events, the first %+v", len(all), all[0])
	}
	ok(t, c.Write(ctx, "/w/x", nil))
	if e, err := w.Next(ctx); err != nil || e != (xenstore.Event{Path: "/w/x"}) {
		t.Errorf("%+v, %v", e, err)
	}
	select {
	case <-w.Ready():
	default:
	}
	ok(t, c.Write(ctx, "/w/y", nil))
	<-w.Ready()
	if all := w.Take(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// Several readers of one watch all make progress.
func TestSharedWatch(t *testing.T) {
	c := dial(t, server(t).Domain(0))
	ctx := t.Context()
	w, err := c.Watch(ctx, "/w")
	ok(t, err)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := w.Next(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 19 { // and the initial event
		ok(t, c.Write(ctx, fmt.Sprint("/w/", i), nil))
	}
	all.Wait()
}

func TestLocal(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XENSTORED_PATH", "")
	t.Setenv("XENSTORED_RUNDIR", dir)
	if _, err := os.Stat(xenstore.DevicePath); err != nil {
		_, err := xenstore.Dial(t.Context(), xenstore.Local())
		for _, want := range []string{dir, xenstore.DevicePath, xenstore.OldDevicePath, "XENSTORED_PATH"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: wanted %s in it", err, want)
			}
		}
	}
	s := server(t)
	path := filepath.Join(dir, "socket")
	l, err := net.Listen("unix", path)
	ok(t, err)
	t.Cleanup(func() { l.Close() })
	go s.Serve(l)
	c := dial(t, xenstore.Local())
	ok(t, c.Write(t.Context(), "/v", nil))
	t.Setenv("XENSTORED_RUNDIR", "")
	t.Setenv("XENSTORED_PATH", path)
	c = dial(t, xenstore.Local())
	_, err = c.Read(t.Context(), "/v")
	ok(t, err)

	// A FIFO stands for a device: it is no socket, and Close ends a read that waits.
	fifo := filepath.Join(dir, "device")
	ok(t, syscall.Mkfifo(fifo, 0o600))
	link, err := xenstore.Device(fifo)(t.Context())
	ok(t, err)
	ended := make(chan error)
	go func() {
		_, err := link.Read(make([]byte, 1))
		ended <- err
	}()
	time.Sleep(time.Millisecond)
	link.Close()
	fails(t, <-ended, os.ErrClosed)
	if _, err := xenstore.Device(filepath.Join(dir, "none"))(t.Context()); !errors.Is(err, fs.ErrNotExist) || !link.Device {
		t.Error(err)
	}
}
