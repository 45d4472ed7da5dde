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
	mu   sync.Mutex
	path string
}

// find returns the path that is known, or asks for it. A daemon that came after the one
// that was asked may not have the door: then known is no good any more.
func (d *door) find(ctx context.Context, ask func() (string, error), known string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil { // a daemon that doesn't answer isn't asked for all that wait, one after the other
		return "", errAway
	}
	if d.path != "" && d.path != known {
		return d.path, nil
	}
	path, err := ask()
	if err == nil {
		d.path = path
	}
	return path, err
}

// Refusal is the answer of a daemon that is there, and lets nobody into the domain.
type Refusal struct{ Err error }

func (r *Refusal) Error() string { return r.Err.Error() }

// dial connects to the daemon, which may be on its way back.
func (d *door) dial(ctx context.Context, ask func() (string, error)) (*net.UnixConn, error) {
	bad := ""
	for deadline := time.Now().Add(daemonTime); ; {
		path, err := d.find(ctx, ask, bad)
		if err == nil {
			var c *net.UnixConn
			if c, err = net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}); err == nil {
				return c, nil
			}
			bad = path
			if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.ENOENT) {
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
