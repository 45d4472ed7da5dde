package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"pegasus/callbuf"
)

// door is where the processes of the machine come in. It is open before there is a
// session: who comes early waits, and is told why when that takes too long.
type door struct {
	log      *slog.Logger
	release  string
	patience time.Duration // how long a process waits for a session
	record   string        // the file that is there while a session may be gone on with

	mu      sync.Mutex
	session *session // nil while there is none
	why     string   // and why
}

// leadTo says who serves those who come.
func (d *door) leadTo(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session, d.why = s, ""
}

// because says why nobody does, and whether that is new.
func (d *door) because(why string) (fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh = d.why != why
	d.why = why
	return fresh
}

func (d *door) state() (*session, string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session, d.why
}

func (d *door) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			d.log.Warn("accept a process", "err", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go d.greet(c)
	}
}

// helloTime is how long a process may take to say hello.
const helloTime = 5 * time.Second

// greet hears what a process wants: to be served, as a rule.
func (d *door) greet(c *net.UnixConn) {
	c.SetReadDeadline(time.Now().Add(helloTime))
	buf := make([]byte, callbuf.HelloBytes+1)
	n, err := c.Read(buf)
	if err != nil || n == 0 {
		c.Close()
		return
	}
	if bytes.Equal(buf[:n], question) {
		d.tellStatus(c)
		return
	}
	hello, err := callbuf.ParseHello(buf[:n])
	if err != nil {
		refuse(c, resultSystemDriverMismatch, err.Error())
		c.Close()
		return
	}
	d.admit(c, hello, time.Now())
}

// admit hands a process to the session, when there is one.
func (d *door) admit(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	s, why := d.state()
	switch {
	case s != nil && s.post(func() { s.meet(c, hello, came) }):
	case hello.Features&callbuf.HelloBack != 0 && !exists(d.record):
		dismiss(c)
	case time.Since(came) < d.patience:
		time.AfterFunc(50*time.Millisecond, func() { d.admit(c, hello, came) })
	case hello.Features&callbuf.HelloBack != 0:
		c.Close() // its worker may well be there: it comes again
	default:
		refuse(c, resultSystemNotReady, cmp.Or(why, "the agent isn't ready yet"))
		c.Close()
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// lastWords is how long a worker has to say in its process's segment why it ends. It only hears from the hub, or of
// the hub's end, at the moment at which the agent does; on the other side, where others may be running.
const lastWords = 300 * time.Millisecond

// dismiss tells a process that comes back to a session that is no more.
func dismiss(c *net.UnixConn) {
	time.AfterFunc(lastWords, func() {
		refuse(c, resultUnknown, "its worker has gone")
		c.Close()
	})
}

// meet begins to serve a process, or goes on to.
func (s *session) meet(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	if hello.Features&callbuf.HelloBack != 0 {
		s.back(c)
	} else {
		s.open(c, hello, came)
	}
}

// What a process is told that isn't served for a reason of the agent's.
const (
	resultSystemNotReady       = 802 // CUDA_ERROR_SYSTEM_NOT_READY
	resultSystemDriverMismatch = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	resultUnknown              = 999 // CUDA_ERROR_UNKNOWN
)

func refuse(c *net.UnixConn, result int32, why string) {
	c.SetWriteDeadline(time.Now().Add(helloTime))
	c.Write(callbuf.Welcome{Version: callbuf.Version, Result: result, Message: why}.Append(nil))
}

// tellStatus answers a question.
func (d *door) tellStatus(c *net.UnixConn) {
	s, why := d.state()
	answer := func(st Status) {
		defer c.Close()
		b, err := json.Marshal(st)
		if err != nil {
			d.log.Error("status", "err", err) // it always can be
			return
		}
		c.SetWriteDeadline(time.Now().Add(helloTime))
		c.Write(b)
	}
	if s == nil || !s.post(func() { st := s.status(); go answer(st) }) {
		answer(Status{Release: d.release, Why: why})
	}
}
