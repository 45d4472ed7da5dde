package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Handler answers requests. It is called from many goroutines.
type Handler interface {
	// Authorize returns nil if the peer may use the method.
	Authorize(p Peer, method string) error
	// Handle executes the request and returns the value of the answer. Each emit sends a value before it; emit fails
	// when the caller has hung up. ctx ends when the server does, or the caller hangs up.
	Handle(ctx context.Context, p Peer, q *Request, emit func(v any) error) (any, error)
}

// maxConnections bounds the callers' connections, and with them the daemon's resources.
const maxConnections = 256

// idleLimit is how long a connection may go without a request before the server closes it.
const idleLimit = 5 * time.Minute

// server serves one daemon's control socket.
type server struct {
	h    Handler
	log  *slog.Logger
	idle time.Duration // closes connections without requests
}

// Serve answers requests on l until ctx ends, closes l, and waits for the running handlers.
func Serve(ctx context.Context, l *Listener, h Handler, log *slog.Logger) error {
	s := &server{h, log, idleLimit}
	return s.serve(ctx, l)
}

func (s *server) serve(ctx context.Context, l *Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	slots := make(chan struct{}, maxConnections)
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if errors.Is(err, net.ErrClosed) {
				return err
			}
			s.log.Warn("control socket: accept", "err", err)
			select {
			case <-time.After(100 * time.Millisecond): // such as EMFILE
			case <-ctx.Done():
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			c.Close()
			s.log.Warn("control socket: too many connections", "limit", maxConnections)
			continue
		}
		all.Go(func() {
			defer func() { <-slots }()
			s.serveConn(ctx, c)
		})
	}
}

// serveConn answers one caller. When ctx ends it takes no more requests, but a started answer is sent.
func (s *server) serveConn(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	peer, err := PeerOf(c)
	if err != nil {
		s.log.Warn("control socket", "err", err)
		return
	}
	lines := readLines(ctx, cancel, c)
	for {
		c.SetReadDeadline(time.Now().Add(s.idle))
		select {
		case line := <-lines:
			c.SetReadDeadline(time.Time{})
			if !s.serveLine(ctx, c, peer, line) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// readLines returns a channel of lines, read ahead by one, so that a caller that hangs up during a long answer is
// noticed and cancelled. It ends with ctx or the connection.
func readLines(ctx context.Context, cancel func(), c *net.UnixConn) <-chan []byte {
	lines := make(chan []byte)
	go func() {
		defer cancel()
		r := bufio.NewReader(c)
		for {
			line, err := readLine(r, MaxRequest)
			if errors.Is(err, errTooLong) {
				line, err = make([]byte, MaxRequest), nil // answered as too long, then dropped
			}
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines
}

// serveLine answers one request and reports whether the connection continues.
func (s *server) serveLine(ctx context.Context, c net.Conn, p Peer, line []byte) bool {
	q, bad := DecodeRequest(line)
	if bad != nil {
		send(c, q.ID, nil, bad, false)
		return false
	}
	if err := s.h.Authorize(p, q.Method); err != nil {
		return send(c, q.ID, nil, err, false) == nil
	}
	emit := func(v any) error { return send(c, q.ID, v, nil, true) }
	v, err := s.h.Handle(ctx, p, &q, emit)
	return send(c, q.ID, v, err, false) == nil
}

func send(c net.Conn, id uint64, v any, err error, more bool) error {
	a := Answer{Version: Version, ID: id, More: more}
	if err != nil {
		var known *Error
		if !errors.As(err, &known) {
			known = Errorf(CodeInternal, "%v", err)
		}
		a.Error = known
	} else {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode answer: %w", err)
		}
		a.Result = data
	}
	c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	return encode(c, a)
}
