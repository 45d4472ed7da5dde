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

// door is where the domain's guests knock, as the daemon last said.
type door struct {
	mu      sync.Mutex
	path    string
	answers int // of daemons so far; path is the last
}

// find returns the last answer, and which one it is, or asks for another. A daemon that came after
// the one that was asked may not have the door: then that answer and those before are no good any more.
// One answer is for all that wait, though it may read as the one before: with each, the daemon holds
// the domain once more.
func (d *door) find(ctx context.Context, ask func() (string, error), bad int) (path string, answer int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil { // a daemon that doesn't answer isn't asked for all that wait, one after the other
		return "", 0, errAway
	}
	if d.answers > bad {
		return d.path, d.answers, nil
	}
	if path, err = ask(); err == nil {
		d.path = path
		d.answers++
	}
	return path, d.answers, err
}

// Refusal is the answer of a daemon that is there, and lets nobody into the domain.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

// dial connects to the daemon, which may be on its way back.
func (d *door) dial(ctx context.Context, ask func() (string, error)) (*net.UnixConn, error) {
	bad := 0
	for deadline := time.Now().Add(daemonTime); ; {
		path, answer, err := d.find(ctx, ask, bad)
		if err == nil {
			var c *net.UnixConn
			if c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}); err == nil {
				return c, nil
			}
			bad = answer
			// EAGAIN: a daemon that is stopped or busy has let others wait.
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
