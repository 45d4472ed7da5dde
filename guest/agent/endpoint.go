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

// endpoint accepts connections of the machine's processes. It accepts them before a session exists: early processes
// wait, and after a timeout receive the reason.
type endpoint struct {
	log      *slog.Logger
	release  string
	patience time.Duration // how long a process waits for a session
	record   string        // exists while a session can be resumed

	mu      sync.Mutex
	session *session // nil without a session
	why     string   // why there is no session
}

// leadTo sets the session that serves new connections.
func (e *endpoint) leadTo(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.session, e.why = s, ""
}

// because sets the reason why there is no session, and reports whether it has changed.
func (e *endpoint) because(why string) (fresh bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	fresh = e.why != why
	e.why = why
	return fresh
}

func (e *endpoint) state() (*session, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.session, e.why
}

func (e *endpoint) accept(l *net.UnixListener) {
	for {
		c, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			e.log.Warn("accept a process", "err", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go e.greet(c)
	}
}

// helloTime is how long a process may take to send its hello.
const helloTime = 5 * time.Second

// greet reads a process's first message: a hello or a status query.
func (e *endpoint) greet(c *net.UnixConn) {
	c.SetReadDeadline(time.Now().Add(helloTime))
	buf := make([]byte, callbuf.HelloBytes+1)
	n, err := c.Read(buf)
	if err != nil || n == 0 {
		c.Close()
		return
	}
	if bytes.Equal(buf[:n], question) {
		e.tellStatus(c)
		return
	}
	hello, err := callbuf.ParseHello(buf[:n])
	if err != nil {
		refuse(c, resultSystemDriverMismatch, err.Error())
		c.Close()
		return
	}
	e.admit(c, hello, time.Now())
}

// admit passes a process to the session, waiting for one if necessary.
func (e *endpoint) admit(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	s, why := e.state()
	switch {
	case s != nil && s.post(func() { s.meet(c, hello, came) }):
	case hello.Features&callbuf.HelloBack != 0 && !exists(e.record):
		dismiss(c)
	case time.Since(came) < e.patience:
		time.AfterFunc(50*time.Millisecond, func() { e.admit(c, hello, came) })
	case hello.Features&callbuf.HelloBack != 0:
		c.Close() // its worker may be alive: the process connects again
	default:
		refuse(c, resultSystemNotReady, cmp.Or(why, "the agent isn't ready yet"))
		c.Close()
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// lastWords is how long a worker has to write the reason of its end into its process's segment. The worker is notified
// by the hub, or by the hub's end, only at the same time as the agent, and on the host, where other work may delay it.
const lastWords = 300 * time.Millisecond

// dismiss rejects a process of an earlier session, which cannot be resumed.
func dismiss(c *net.UnixConn) {
	time.AfterFunc(lastWords, func() {
		refuse(c, resultUnknown, "its worker has gone")
		c.Close()
	})
}

// meet starts to serve a process, or reconnects it.
func (s *session) meet(c *net.UnixConn, hello callbuf.Hello, came time.Time) {
	if hello.Features&callbuf.HelloBack != 0 {
		s.back(c)
	} else {
		s.open(c, hello, came)
	}
}

// Results of processes that the agent itself rejects.
const (
	resultSystemNotReady       = 802 // CUDA_ERROR_SYSTEM_NOT_READY
	resultSystemDriverMismatch = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	resultUnknown              = 999 // CUDA_ERROR_UNKNOWN
)

func refuse(c *net.UnixConn, result int32, why string) {
	c.SetWriteDeadline(time.Now().Add(helloTime))
	c.Write(callbuf.Welcome{Version: callbuf.Version, Result: result, Message: why}.Append(nil))
}

// tellStatus answers a status query.
func (e *endpoint) tellStatus(c *net.UnixConn) {
	s, why := e.state()
	answer := func(st Status) {
		defer c.Close()
		b, err := json.Marshal(st)
		if err != nil {
			e.log.Error("status", "err", err) // cannot fail
			return
		}
		c.SetWriteDeadline(time.Now().Add(helloTime))
		c.Write(b)
	}
	if s == nil || !s.post(func() { st := s.status(); go answer(st) }) {
		answer(Status{Release: e.release, Why: why})
	}
}
