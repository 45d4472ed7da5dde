package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// endpoint is the address of the domain's endpoint, as the daemon last reported it. mu guards it.
type endpoint struct {
	mu      sync.Mutex
	path    string
	answers int // answers of daemons so far; path is the last
}

// find returns the last answer and its number, or calls `ask` for another if the number is at most bad. A daemon that
// replaced the one that answered may lack the endpoint: then that answer and those before are invalid. One answer
// serves all waiting callers, even if it equals the one before: with each answer, the daemon holds the domain once
// more.
func (e *endpoint) find(ctx context.Context, ask func() (string, error), bad int) (path string, answer int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil { // a daemon that doesn't answer gets no request for callers that have left
		return "", 0, errAway
	}
	if e.answers > bad {
		return e.path, e.answers, nil
	}
	if path, err = ask(); err == nil {
		e.path = path
		e.answers++
	}
	return path, e.answers, err
}

// Refusal is the answer of a running daemon that lets no process into the domain.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

// dial connects to the daemon, which may be restarting.
func (e *endpoint) dial(ctx context.Context, ask func() (string, error)) (*net.UnixConn, error) {
	bad := 0
	for deadline := time.Now().Add(daemonTime); ; {
		path, answer, err := e.find(ctx, ask, bad)
		if err == nil {
			var c *net.UnixConn
			if c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}); err == nil {
				return c, nil
			}
			bad = answer
			// EAGAIN: the backlog of a stopped or busy daemon is full.
			if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EAGAIN) {
				return nil, err
			}
		}
		if errors.As(err, new(*Refusal)) {
			return nil, err
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the daemon is away: %w", err)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, errAway
		}
	}
}
