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
	// Handle does what the request asks and returns the value to answer with.
	// Each emit sends a value ahead of it; emit fails when the caller has gone.
	// ctx ends when the server does, or the caller hangs up.
	Handle(ctx context.Context, p Peer, q *Request, emit func(v any) error) (any, error)
}

// maxConnections bounds what callers can make the daemon hold.
const maxConnections = 256

// idleLimit ends connections that ask nothing.
const idleLimit = 5 * time.Minute

// server is one daemon's.
type server struct {
	h    Handler
	log  *slog.Logger
	idle time.Duration // ends connections that ask nothing
}

// Serve answers on l until ctx ends, closes it, and waits for the handlers that run.
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
			case <-time.After(100 * time.Millisecond): // out of descriptors, say
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

// serveConn answers one caller. When ctx ends it takes no more requests, but an
// answer that is on its way goes out.
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

// readLines reads ahead by one line, so that a caller who hangs up during a
// long answer is noticed and cancelled. It ends with ctx or the connection.
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

// serveLine answers one request and tells whether the connection goes on.
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
